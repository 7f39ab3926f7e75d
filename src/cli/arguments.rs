//! Arguments of several commands: a configuration, and the fields of a request.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use crate::config::{Config, Flags};
use slowlane_core::base::query;

#[derive(Debug, Args)]
pub(super) struct FileArguments {
    /// The config file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The policy directory
    #[arg(long, value_name = "DIR")]
    pub(super) policy: Option<PathBuf>,
}

impl FileArguments {
    /// Uses the config file of the service if neither a config nor a policy is given and the file exists.
    pub(super) fn or_of_service(mut self) -> FileArguments {
        let is_silent = self.config.is_none() && self.policy.is_none();
        if is_silent && Path::new(OF_SERVICE).is_file() {
            self.config = Some(OF_SERVICE.into());
        }
        self
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The config file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) flags: Flags,
}

/// The config file of the service, as the package installs it.
pub(super) const OF_SERVICE: &str = "/etc/slowlane/slowlane.toml";

impl RunArguments {
    /// Uses the config file of the service if neither a config nor a policy is given and the file exists.
    pub(super) fn or_of_service(mut self) -> RunArguments {
        let files = FileArguments { config: self.config.take(), policy: self.flags.policy.clone() };
        self.config = files.or_of_service().config;
        self
    }

    /// The configuration in force with these arguments.
    pub(super) fn load(self) -> anyhow::Result<Config> {
        Ok(Config::load(self.config.as_deref(), self.flags)?)
    }
}

/// A field of a request, like `website=shop.example`.
#[derive(Clone, Debug)]
pub(super) struct FieldArgument {
    pub(super) name: String,
    pub(super) value: String,
}

impl FromStr for FieldArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FieldArgument, &'static str> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(FieldArgument { name: name.into(), value: value.into() })
            }
            _ => Err("expected a field and its value, like website=shop.example"),
        }
    }
}

/// The admin path for a query with fields.
pub(super) fn path(action: &str, fields: &[FieldArgument]) -> String {
    let query = query::written(fields.iter().map(|FieldArgument { name, value }| (name, value)));
    format!("/api/{action}?{query}")
}
