//! The source files that the rules look at: those of src/, or those that a test makes up.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::code::{Code, code};

/// Source files by their path below `src/`.
pub struct House {
    pub texts: BTreeMap<String, String>,
    /// The same without comments, literals and test modules. Files that are test modules are left out.
    pub codes: BTreeMap<String, Code>,
}

impl House {
    /// The house as it stands.
    pub fn stands() -> House {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut texts, mut dirs) = (BTreeMap::new(), vec![src.clone()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
                    texts.insert(name, fs::read_to_string(&path).unwrap());
                }
            }
        }
        House::of(texts)
    }

    /// A house that a test makes up.
    pub fn made_up(files: &[(&str, &str)]) -> House {
        House::of(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    fn of(texts: BTreeMap<String, String>) -> House {
        let mut codes: BTreeMap<String, Code> =
            texts.iter().map(|(path, text)| (path.clone(), code(text))).collect();
        let tests = |(path, code): (&String, &Code)| {
            let file = |name: &String| [module(path), vec![name.clone()]].concat().join("/") + ".rs";
            code.test_files.iter().map(file).collect::<Vec<_>>()
        };
        for path in codes.iter().flat_map(tests).collect::<Vec<_>>() {
            codes.remove(&path);
        }
        House { texts, codes }
    }

    /// The file that a module path names, and how many of its segments name the file.
    ///
    /// `law::pace::Pace` is `law/pace.rs`, of which two segments; `law::Law` is `law/mod.rs`, of which one.
    pub fn file(&self, path: &[String]) -> Option<(String, usize)> {
        (1..=path.len()).rev().find_map(|length| {
            let stem = path[..length].join("/");
            let files = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
            files.into_iter().find(|file| self.codes.contains_key(file)).map(|file| (file, length))
        })
    }

    /// What a file names of its own crate, as paths from the crate's root.
    pub fn own_paths(&self, file: &str) -> Vec<Vec<String>> {
        self.codes[file].paths.iter().filter_map(|path| self.rooted(path, file)).collect()
    }

    /// A path in a file from the crate's root, or none if it names another crate. The crate itself is empty.
    pub fn rooted(&self, path: &[String], file: &str) -> Option<Vec<String>> {
        let module = module(file);
        let (mut rooted, rest) = match path[0].as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" | "super" => (module, path),
            // A child module of this one.
            name => self.is_child(&module, name).then_some((module, path))?,
        };
        for segment in rest {
            match segment.as_str() {
                "self" => {}
                "super" => drop(rooted.pop()),
                segment => rooted.push(segment.to_owned()),
            }
        }
        Some(rooted)
    }

    /// Whether a module has a child of this name, in a file of its own.
    pub fn is_child(&self, module: &[String], name: &str) -> bool {
        let child = [module, &[name.to_owned()]].concat();
        self.file(&child).is_some_and(|(_, length)| length == child.len())
    }
}

/// The path of the module that a file is: `law/pace.rs` and `law/pace/mod.rs` are `law::pace`.
pub fn module(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if stem == "lib" { Vec::new() } else { stem.split('/').map(str::to_owned).collect() }
}

/// The room that a file stands in: the first entry of its path.
pub fn room(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}
