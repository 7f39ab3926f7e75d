//! The files of an nginx configuration, and the tree that their includes form.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use crate::proxy::attach::Refused;
use crate::proxy::nginx_syntax::{Directive, parse};

/// Options with which the patterns of includes match the same paths as in nginx.
pub(crate) const PATTERNS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// The maximum numbers of files, of their bytes, and of nested includes. A file counts each time it is included.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 << 20;
const DEPTH_MAX: usize = 64;

/// The beginning of the line above each file in the output of `nginx -T`.
const MARK: &str = "# configuration file ";

/// The maximum number of comparisons of a path with a pattern, and of stars in a pattern. Both multiply the work.
const COMPARED_MAX: usize = 2_000_000;
const STARS_MAX: usize = 4;

/// The files of a configuration: the main files, and all files that they include.
#[derive(Clone, Debug, Default)]
pub struct NginxFiles {
    main: Vec<PathBuf>,
    files: BTreeMap<PathBuf, NginxFile>,
}

#[derive(Clone, Debug)]
struct NginxFile {
    text: String,
    directives: Vec<Directive>,
    /// The files that this file includes.
    included: Vec<PathBuf>,
    /// The position of the first byte of each line.
    lines: Vec<usize>,
    /// The number of lines above the file in the output of `nginx -T`.
    above: usize,
}

impl NginxFile {
    fn read(
        path: &Path,
        text: String,
        folder: &Path,
        list: &impl Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<NginxFile, Refused> {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut file = NginxFile { text, directives: Vec::new(), included: Vec::new(), lines, above: 0 };
        file.directives =
            parse(&file.text).map_err(|at| Refused::Syntax { path: path.to_owned(), line: file.line(at) })?;
        includes(&mut file.directives, &mut |include, pattern| {
            include.files = list(&folder.join(pattern));
            file.included.extend(include.files.iter().cloned());
        });
        Ok(file)
    }

    /// The number of the line with the byte at this position. Lines are numbered from 1.
    fn line(&self, at: usize) -> usize {
        self.above + self.lines.partition_point(|start| *start <= at)
    }
}

/// A directive and the file that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'f> {
    pub(crate) path: &'f Path,
    file: &'f NginxFile,
    pub(crate) directive: &'f Directive,
}

impl<'f> Placed<'f> {
    pub(crate) fn line(&self) -> usize {
        self.file.line(self.directive.place.start)
    }

    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.line())
    }

    pub(crate) fn name(&self) -> &'f str {
        self.directive.name()
    }

    pub(crate) fn words(&self) -> Vec<&'f str> {
        self.directive.words.iter().map(String::as_str).collect()
    }

    /// The text of the directive's file.
    pub(crate) fn text(&self) -> &'f str {
        &self.file.text
    }

    /// The directive as written. If it has a block, this is only the text before the opening brace.
    pub(crate) fn source(&self) -> &'f str {
        let Directive { place, block, .. } = self.directive;
        &self.file.text[place.start..block.as_ref().map_or(place.end, |block| block.start - 1)]
    }

    pub(crate) fn refuse(&self, reason: &'static str) -> Refused {
        Refused::Odd { place: self.place(), reason }
    }
}

impl NginxFiles {
    /// Reads the main files and all files that they include. `read` reads a file, and `list` lists the files that match
    /// a pattern. Relative paths in includes are relative to `folder`, as in nginx.
    ///
    /// # Errors
    /// A file cannot be read or is not understood, or there are too many includes.
    pub fn read(
        main: &[&Path],
        folder: &Path,
        read: impl Fn(&Path) -> Result<String, Refused>,
        list: impl Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<NginxFiles, Refused> {
        let main: Vec<PathBuf> = main.iter().map(|path| (*path).to_owned()).collect();
        let mut left: Vec<(PathBuf, usize)> = main.iter().map(|path| (path.clone(), 0)).collect();
        let (mut files, mut count, mut bytes) = (NginxFiles { main, files: BTreeMap::new() }, 0, 0);
        while let Some((path, depth)) = left.pop() {
            if !files.files.contains_key(&path) {
                files.files.insert(path.clone(), NginxFile::read(&path, read(&path)?, folder, &list)?);
            }
            let own = &files.files[&path];
            (count, bytes) = (count + 1, bytes + own.text.len());
            if count > FILES_MAX || bytes > BYTES_MAX || depth > DEPTH_MAX {
                let reason = format!("more than {FILES_MAX} files are included, or a file includes itself");
                return Err(Refused::Unread(reason));
            }
            left.extend(own.included.iter().map(|path| (path.clone(), depth + 1)));
        }
        Ok(files)
    }

    /// Reads the output of `nginx -T`. `None` if the text names no files, and is therefore itself a configuration.
    ///
    /// # Errors
    /// A file in the output is not understood, or there are too many includes.
    pub(crate) fn printed(text: &str) -> Result<Option<NginxFiles>, Refused> {
        let starts: Vec<usize> = text.match_indices(MARK).map(|(at, _)| at).collect();
        if starts.len() * text.matches("include").count() > COMPARED_MAX {
            return Err(Refused::Unread("the configuration has too many includes".to_owned()));
        }
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let path = |start: usize| text[start + MARK.len()..].lines().next().unwrap_or_default();
        let path = |start: usize| Path::new(path(start).trim_end().trim_end_matches(':'));
        let parts: BTreeMap<&Path, (usize, usize)> =
            starts.iter().zip(ends).map(|(&start, end)| (path(start), (start, end))).collect();
        let Some(main) = starts.first().map(|&start| path(start)) else { return Ok(None) };
        let list = |pattern: &Path| matching(pattern, parts.keys().copied());
        let read = |path: &Path| Ok(text[parts[path].0..parts[path].1].to_owned());
        let mut files = NginxFiles::read(&[main], main.parent().unwrap_or(main), read, list)?;
        for (path, file) in &mut files.files {
            file.above = text[..parts[&**path].0].matches('\n').count();
        }
        Ok(Some(files))
    }

    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// The text of one of the files.
    pub fn text(&self, path: &Path) -> &str {
        &self.files[path].text
    }

    /// Copies of the files for another folder. The includes in the copies name other copies.
    pub fn copies(&self, place: impl Fn(&Path) -> PathBuf) -> Vec<(PathBuf, String)> {
        let copy = |(path, file): (&PathBuf, &NginxFile)| {
            let (mut text, mut from) = (String::new(), 0);
            includes(&mut file.directives.clone(), &mut |include, _| {
                text += &file.text[from..include.place.start];
                let lines = include.files.iter().map(|path| format!("include {}; ", quoted(&place(path))));
                text.extend(lines);
                from = include.place.end;
            });
            (place(path), text + &file.text[from..])
        };
        self.files.iter().map(copy).collect()
    }

    /// The directives of the main files, and of the files that they include.
    pub(crate) fn top(&self) -> Vec<Placed<'_>> {
        self.main.iter().flat_map(|path| self.of_file(path)).collect()
    }

    /// The directives of a block, and of the files that it includes.
    pub(crate) fn inside<'f>(&'f self, block: Placed<'f>) -> Vec<Placed<'f>> {
        self.expanded(block.path, block.file, &block.directive.inner)
    }

    fn of_file(&self, path: &Path) -> Vec<Placed<'_>> {
        let found = self.files.get_key_value(path);
        found.map_or(Vec::new(), |(path, file)| self.expanded(path, file, &file.directives))
    }

    fn expanded<'f>(&'f self, path: &'f Path, file: &'f NginxFile, own: &'f [Directive]) -> Vec<Placed<'f>> {
        let mut placed = Vec::new();
        for directive in own {
            placed.push(Placed { path, file, directive });
            placed.extend(directive.files.iter().flat_map(|path| self.of_file(path)));
        }
        placed
    }
}

/// The paths that the pattern of an include matches.
pub(crate) fn matching<'p>(pattern: &Path, paths: impl Iterator<Item = &'p Path>) -> Vec<PathBuf> {
    let pattern = pattern.to_string_lossy();
    let stars = pattern.matches('*').count();
    let pattern = Pattern::new(&pattern).unwrap_or_default();
    let fits = |path: &&Path| stars <= STARS_MAX && pattern.matches_path_with(path, PATTERNS);
    paths.filter(fits).map(Path::to_owned).collect()
}

/// A path as a word of nginx's configuration, in quotes if it needs them.
pub(crate) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(is_plain) { path } else { format!("{path:?}") }
}

/// Calls a function for each include and its pattern, at any depth.
fn includes(directives: &mut [Directive], call: &mut dyn FnMut(&mut Directive, &str)) {
    for directive in directives {
        if let Some(pattern) = directive.included().map(str::to_owned) {
            call(directive, &pattern);
        }
        includes(&mut directive.inner, call);
    }
}
