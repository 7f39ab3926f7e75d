//! The rate limits of other programs, expressed as a slowlane policy.
//!
//! ```text
//! text ─▶ nginx, haproxy, ingress ─▶ rules ─▶ PolicyDraft ─▶ files, with ImportFindings: what differs or is omitted
//!      └▶ envoy, limitador ─────────────────────┘
//! ```

mod cel;
mod envoy;
mod files;
mod haproxy;
mod ingress;
mod limitador;
mod nginx;
mod rule;
mod yaml;

use std::mem::take;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use thiserror::Error;

pub use files::ForeignFile;
pub use rule::Omission;
use rule::{FileLine, ImportFindings};
use yaml::YamlNode;

/// The maximum total size of the files of an import, in bytes.
pub const BYTES_MAX: usize = 4 << 20;

/// The maximum number of limits, exceptions and scopes in one import, because a type has no more ids than this.
const RULES_MAX: usize = 999;

/// The programs whose limits can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    Nginx,
    Haproxy,
    #[value(alias = "ingress")]
    IngressNginx,
    /// The ingress controllers that read annotations of haproxy.org or haproxy-ingress.github.io.
    #[value(alias = "haproxy-kubernetes-ingress")]
    HaproxyIngress,
    Envoy,
    /// Kuadrant's rate limit service.
    Limitador,
}

impl Program {
    /// Recognises the program to which a configuration belongs. `None` if the text does not reveal the program.
    fn of(text: &str) -> Option<Program> {
        let starts = |words: &[&str]| {
            let first = |line: &str| words.iter().any(|word| line.trim_start().starts_with(word));
            text.lines().any(first)
        };
        match () {
            _ if ["haproxy.org/", "haproxy-ingress.github.io/"].iter().any(|of| text.contains(of))
                && !text.contains("nginx.ingress.kubernetes.io/") =>
            {
                Some(Program::HaproxyIngress)
            }
            _ if text.contains("ingress.kubernetes.io/") || starts(&["kind: Ingress"]) => {
                Some(Program::IngressNginx)
            }
            _ if text.contains("max_value:") => Some(Program::Limitador),
            _ if starts(&["descriptors:"]) => Some(Program::Envoy),
            _ if starts(&["stick-table ", "http-request ", "frontend ", "backend ", "tcp-request "]) => {
                Some(Program::Haproxy)
            }
            _ if starts(&["limit_req", "limit_conn", "server {", "http {"]) => Some(Program::Nginx),
            _ => None,
        }
    }
}

/// The reason why nothing is imported from a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    #[error("the text is longer than {} MiB: import only the part with the limits", BYTES_MAX >> 20)]
    TooLong,
    #[error("cannot tell which program this configuration is for: name the program with --from")]
    Unknown,
    #[error("line {line}: {reason}")]
    Syntax { line: usize, reason: String },
    #[error("there are more than {RULES_MAX} limits and scopes: import the configuration in parts")]
    TooMany,
    #[error("there are no rate limits to import")]
    NoLimits,
}

impl ImportError {
    /// The error with the path of its file, for an import of several files.
    fn inside(self, path: &Path) -> ImportError {
        match self {
            ImportError::Syntax { line, reason } => {
                ImportError::Syntax { line, reason: format!("{reason}, in {}", path.display()) }
            }
            other => other,
        }
    }
}

/// The result of an import: the files, their differences in meaning from the original, and the lines left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    pub from: Program,
    /// Empty if no part of the original can be expressed.
    pub files: Vec<ForeignFile>,
    pub differences: Vec<String>,
    #[serde(rename = "not_imported")]
    pub omissions: Vec<Omission>,
}

/// The files of one configuration, and the functions that find and read included files.
pub struct Input<'i> {
    /// Each file with its path, in order.
    pub texts: Vec<(PathBuf, String)>,
    pub included: Option<Included<'i>>,
}

/// Lists the files that match a pattern, and reads the text of a file.
#[derive(Clone, Copy)]
pub struct Included<'i> {
    pub list: &'i dyn Fn(&Path) -> Vec<PathBuf>,
    pub read: &'i dyn Fn(&Path) -> Option<String>,
}

/// Converts the limits in a configuration to a policy. Without `program`, the program is detected from the text.
///
/// ```
/// use slowlane::import::import;
/// let nginx = "limit_req_zone $remote_addr zone=a:1m rate=10r/s; server { limit_req zone=a burst=20; }";
/// let written = import(nginx, None).unwrap();
/// assert!(written.files[0].text.contains("3001 burst=1 rate=10/s max_delay=2s\n"));
/// assert_eq!(written.files[1].text, "0.0.0.0/0 3001\n::/0 3001\n");
/// ```
///
/// # Errors
/// The text is too long, is not understood, or has no limits or too many.
pub fn import(text: &str, program: Option<Program>) -> Result<Written, ImportError> {
    import_files(&Input { texts: vec![(PathBuf::new(), text.to_owned())], included: None }, program)
}

/// Converts the limits in a configuration of one or more files to a policy.
///
/// # Errors
/// As for [`import`].
pub fn import_files(input: &Input<'_>, program: Option<Program>) -> Result<Written, ImportError> {
    let texts = || input.texts.iter().map(|(_, text)| text.as_str());
    if texts().map(str::len).sum::<usize>() > BYTES_MAX {
        return Err(ImportError::TooLong);
    }
    let program = program.or_else(|| texts().find_map(Program::of)).ok_or(ImportError::Unknown)?;
    let mut found = ImportFindings::default();
    found.name_files(input.texts.iter().map(|(path, _)| path.as_path()));
    let files = match program {
        Program::Nginx => nginx::read(input, &mut found)?,
        Program::Haproxy => haproxy::read(input, &mut found)?,
        Program::IngressNginx | Program::HaproxyIngress => {
            ingress::read(&documents(input)?, program, &mut found)?
        }
        Program::Envoy => envoy::read(&documents(input)?, &mut found)?,
        Program::Limitador => limitador::read(&documents(input)?, &mut found)?,
    };
    let differences = if files.is_empty() { Vec::new() } else { take(&mut found.differences) };
    let written = Written { from: program, files, differences, omissions: found.sorted() };
    if written.files.is_empty() && written.omissions.is_empty() {
        return Err(ImportError::NoLimits);
    }
    Ok(written)
}

/// The YAML documents of all files, in order.
fn documents(input: &Input<'_>) -> Result<Vec<YamlNode>, ImportError> {
    let mut all = Vec::new();
    for (file, (path, text)) in input.texts.iter().enumerate() {
        let read = yaml::documents(text, FileLine { file, number: 0 });
        all.extend(read.map_err(|error| if input.texts.len() > 1 { error.inside(path) } else { error })?);
    }
    Ok(all)
}
