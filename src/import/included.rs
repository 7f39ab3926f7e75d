//! The files that `nginx -T` prints, put where they are included.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use glob::Pattern;

use crate::import::ImportError;
use crate::proxy::nginx_syntax::{Directive, PATTERNS, line_of, parse};

/// The beginning of the line above each file.
pub(super) const MARK: &str = "# configuration file ";

/// The maximum depth of includes and blocks. Real configurations have a few levels.
const DEPTH_MAX: usize = 64;

/// The maximum number of directives that includes may add to those of the text.
const ADDED_MAX: usize = 100_000;

/// The maximum number of comparisons of a path with a pattern, and of stars in a pattern: each multiplies the work.
const COMPARED_MAX: usize = 2_000_000;
const STARS_MAX: usize = 4;

/// The directives of a text, at their places in it.
pub(super) fn directives(text: &str) -> Result<Vec<Directive>, ImportError> {
    let syntax = |at: usize| ImportError::Syntax {
        line: line_of(text, at),
        reason: "not understood as nginx configuration".to_owned(),
    };
    let path = |at: usize| text[at + MARK.len()..].lines().next().unwrap_or_default().trim_end_matches(':');
    let marks: Vec<(usize, &Path)> =
        text.match_indices(MARK).map(|(at, _)| (at, Path::new(path(at)))).collect();
    let main = marks.first().map_or(Path::new(""), |(_, path)| path);
    if marks.len() * text.matches("include").count() > COMPARED_MAX {
        return Err(ImportError::TooMany);
    }
    let list = |pattern: &str| -> Vec<PathBuf> {
        let stars = pattern.matches('*').count();
        let pattern = main.parent().unwrap_or(main).join(pattern);
        let pattern = Pattern::new(&pattern.to_string_lossy()).unwrap_or_default();
        let fits = |path: &&Path| stars <= STARS_MAX && pattern.matches_path_with(path, PATTERNS);
        marks.iter().map(|(_, path)| *path).filter(fits).map(Path::to_owned).collect()
    };
    let mut files: BTreeMap<&Path, Vec<Directive>> = BTreeMap::new();
    for directive in parse(text, &list).map_err(syntax)? {
        let above = marks.partition_point(|(at, _)| *at < directive.place.start);
        let path = above.checked_sub(1).map_or(main, |mark| marks[mark].1);
        files.entry(path).or_default().push(directive);
    }
    let mut left = text.len() + ADDED_MAX;
    let main = files.get(main).map_or(&[][..], Vec::as_slice);
    with_included(main, &files, 0, &mut left).ok_or(ImportError::TooMany)
}

fn with_included(
    directives: &[Directive],
    files: &BTreeMap<&Path, Vec<Directive>>,
    depth: usize,
    left: &mut usize,
) -> Option<Vec<Directive>> {
    let mut all = Vec::new();
    for directive in directives.iter().filter(|_| depth < DEPTH_MAX) {
        *left = left.checked_sub(1)?;
        for file in directive.files.iter().filter_map(|path| files.get(&**path)) {
            all.extend(with_included(file, files, depth + 1, left)?);
        }
        let inner = with_included(&directive.inner, files, depth + 1, left)?;
        let Directive { words, place, block, .. } = directive;
        let (words, place, block) = (words.clone(), place.clone(), block.clone());
        all.push(Directive { words, place, block, inner, files: Vec::new() });
    }
    Some(all)
}
