//! The files of a configuration of nginx, and the tree that its includes make of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::proxy::attach::Refused;
use crate::proxy::nginx_syntax::{Directive, line_of, parse};

/// The most files, each counted as often as it is included.
const FILES_MAX: usize = 10_000;

/// The files of a configuration: the main one, and all that it includes.
#[derive(Clone, Debug, Default)]
pub struct Files {
    main: PathBuf,
    files: BTreeMap<PathBuf, File>,
}

#[derive(Clone, Debug)]
struct File {
    text: String,
    directives: Vec<Directive>,
}

/// A directive and the file that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'f> {
    pub(super) file: &'f Path,
    pub(super) text: &'f str,
    pub(crate) directive: &'f Directive,
}

impl Placed<'_> {
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.file.display(), line_of(self.text, self.directive.place.start))
    }

    pub(crate) fn words(&self) -> Vec<&str> {
        self.directive.words.iter().map(String::as_str).collect()
    }

    pub(super) fn refuse(&self, reason: &'static str) -> Refused {
        Refused::Odd { place: self.place(), reason }
    }
}

impl Files {
    /// Reads the main file and all that it includes. `read` reads a file, `list` gives the files of a pattern. nginx
    /// looks for relative paths from the folder.
    ///
    /// # Errors
    /// A file cannot be read or is not understood.
    pub fn read(
        main: &Path,
        folder: &Path,
        read: impl Fn(&Path) -> Result<String, Refused>,
        list: impl Fn(&Path) -> Vec<PathBuf>,
    ) -> Result<Files, Refused> {
        let mut files = Files { main: main.to_owned(), files: BTreeMap::new() };
        let (mut left, mut count) = (vec![main.to_owned()], 0);
        while let Some(path) = left.pop() {
            count += 1;
            if count > FILES_MAX {
                let reason = format!("more than {FILES_MAX} files are included, or one includes itself");
                return Err(Refused::Unread(reason));
            }
            if !files.files.contains_key(&path) {
                let text = read(&path)?;
                let directives = parse(&text, &|pattern| list(&folder.join(pattern))).map_err(|at| {
                    let place = format!("{}:{}", path.display(), line_of(&text, at));
                    Refused::Odd { place, reason: "this is not understood" }
                })?;
                files.files.insert(path.clone(), File { text, directives });
            }
            includes(&files.files[&path].directives, &mut |include| {
                left.extend(include.files.iter().cloned())
            });
        }
        Ok(files)
    }

    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.keys()
    }

    /// The text of one of the files.
    pub fn text(&self, path: &Path) -> &str {
        &self.files[path].text
    }

    /// Copies of the files for another folder. They include each other.
    pub fn copies(&self, place: impl Fn(&Path) -> PathBuf) -> Vec<(PathBuf, String)> {
        let copy = |(path, file): (&PathBuf, &File)| {
            let (mut text, mut from) = (String::new(), 0);
            includes(&file.directives, &mut |include| {
                text += &file.text[from..include.place.start];
                let lines = include.files.iter().map(|path| format!("include {}; ", quoted(&place(path))));
                text.extend(lines);
                from = include.place.end;
            });
            (place(path), text + &file.text[from..])
        };
        self.files.iter().map(copy).collect()
    }

    /// The directives of the main file, with those of the files that it includes.
    pub(crate) fn top(&self) -> Vec<Placed<'_>> {
        self.of_file(&self.main)
    }

    /// The directives of a block, with those of the files that it includes.
    pub(crate) fn inside<'f>(&'f self, block: Placed<'f>) -> Vec<Placed<'f>> {
        let Placed { file, text, directive } = block;
        self.expanded(file, text, &directive.inner)
    }

    fn of_file(&self, path: &Path) -> Vec<Placed<'_>> {
        let found = self.files.get_key_value(path);
        found.map_or(Vec::new(), |(path, file)| self.expanded(path, &file.text, &file.directives))
    }

    fn expanded<'f>(&'f self, file: &'f Path, text: &'f str, own: &'f [Directive]) -> Vec<Placed<'f>> {
        let mut placed = Vec::new();
        for directive in own {
            placed.push(Placed { file, text, directive });
            placed.extend(directive.files.iter().flat_map(|path| self.of_file(path)));
        }
        placed
    }
}

/// A path as a word of nginx.
pub(super) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(is_plain) { path } else { format!("{path:?}") }
}

/// Calls a function for each include, at any depth.
fn includes<'d>(directives: &'d [Directive], call: &mut dyn FnMut(&'d Directive)) {
    for directive in directives {
        if directive.included().is_some() {
            call(directive);
        }
        includes(&directive.inner, call);
    }
}
