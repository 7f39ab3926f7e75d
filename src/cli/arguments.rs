//! Arguments that name a configuration: its file, its policy, its addresses.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config::{Config, Flags};
use crate::sync::StoreUrl;
use slowlane_core::base::Address;

#[derive(Debug, Args)]
pub(super) struct Files {
    /// The config file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The policy directory
    #[arg(long, value_name = "DIR")]
    pub(super) policy: Option<PathBuf>,
}

impl Files {
    /// With the config file of the service, if neither a config nor a policy is given and the file is there.
    pub(super) fn or_of_service(mut self) -> Files {
        let is_silent = self.config.is_none() && self.policy.is_none();
        if is_silent && Path::new(OF_SERVICE).is_file() {
            self.config = Some(OF_SERVICE.into());
        }
        self
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    #[command(flatten)]
    pub(super) files: Files,
    /// Address for HAProxy (SPOP); may be repeated [default: 127.0.0.1:9000]
    #[arg(long, value_name = "ADDR")]
    pub(super) spop: Vec<Address>,
    /// Address for nginx (/check); may be repeated [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Vec<Address>,
    /// Address of the status page, the API and the metrics; may be repeated [default: 127.0.0.1:9002]
    #[arg(long, value_name = "ADDR")]
    pub(super) admin: Vec<Address>,
    /// Address for HAProxys that enforce limits locally (peers protocol); may be repeated
    #[arg(long, value_name = "ADDR")]
    pub(super) peers: Vec<Address>,
    /// The store of a cluster, like redis://127.0.0.1:6379; its nodes share each SLO
    #[arg(long, value_name = "URL")]
    pub(super) cluster: Option<StoreUrl>,

    /// Keep the state in this file, so that a restart forgets nothing
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
}

/// The config file of the service, as the package installs it.
pub(super) const OF_SERVICE: &str = "/etc/slowlane/slowlane.toml";

impl RunArguments {
    /// With the config file of the service, if neither a config nor a policy is given and the file is there.
    pub(super) fn or_of_service(mut self) -> RunArguments {
        self.files = self.files.or_of_service();
        self
    }
}

/// The configuration in force with these arguments.
pub(super) fn config(typed: RunArguments) -> anyhow::Result<Config> {
    let (path, flags) = typed.into();
    Ok(Config::load(path.as_deref(), flags)?)
}

/// The config file, and the settings from the command line.
impl From<RunArguments> for (Option<PathBuf>, Flags) {
    fn from(typed: RunArguments) -> (Option<PathBuf>, Flags) {
        let RunArguments { files: Files { config, policy }, spop, http, admin, peers, cluster, state } =
            typed;
        (config, Flags { policy, spop, http, admin, peers, cluster, state })
    }
}
