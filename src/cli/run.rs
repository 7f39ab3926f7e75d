//! `slowlane run`: serves until a signal ends it.

use crate::config::Config;
use crate::daemon;
use crate::observe::log;

pub(super) fn run(config: Config) -> anyhow::Result<()> {
    let _goodbye = log::start(config.log);
    daemon::run(config)
}
