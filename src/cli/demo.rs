//! `slowlane demo`: shows slowlane at work.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::config::{Config, Flags};
use crate::daemon;
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::{self as shipped, Delivery, Places, Version};
use slowlane_core::base::address::Address;
use slowlane_core::base::hold::HOLD_SHIPPED;
use slowlane_core::base::units::Rate;
use slowlane_lab::demo::{self, Agent, Look, Proxy, SECONDS_DEFAULT, SECONDS_MIN};

pub(super) const EXAMPLES: &str = include_str!("help/demo.txt");

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Connections of the crawler; each sends its next request after each answer
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,
    /// Rate of the SLO, for each source
    #[arg(long, value_name = "RATE", default_value = "50/s")]
    rate: Rate,
    /// Print this many seconds, then exit [default: print 15, then run until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=3600))]
    seconds: Option<u32>,
    /// The HAProxy to start; with `none`, slowlane takes its place [default: the one on the PATH]
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,
}

pub(super) fn demo(typed: Arguments) -> anyhow::Result<()> {
    let Arguments { clients, rate, seconds, haproxy } = typed;
    let proxy = proxy(haproxy)?;
    let stays = seconds.is_none();
    let demo = demo::Demo { clients, rate, seconds: seconds.unwrap_or(SECONDS_DEFAULT), stays, proxy };
    let look = if stdout().is_terminal() { Look::Terminal } else { Look::Plain };
    demo.run(start, &mut stdout(), look)
}

/// Starts a daemon on free ports of the loopback; nginx has no part in this.
async fn start(policy: PathBuf) -> anyhow::Result<Agent> {
    let any_port = || vec![Address::Tcp("127.0.0.1:0".into())];
    let flags = Flags {
        policy: Some(policy),
        spop: any_port(),
        http: any_port(),
        admin: any_port(),
        peers: Vec::new(),
        cluster: None,
        state: None,
    };
    let mut serving = daemon::start(&Config::load(None, flags)?)?;
    let [spop, http, admin] = &serving.addresses;
    let (spop, http, admin) = (spop[0].parse()?, http[0].parse()?, admin[0].clone());
    let reload = serving.reload.take();
    let reload = Box::new(move || reload.iter().for_each(|reload| reload.ask()));
    Ok(Agent { spop, http, admin, reload, running: Box::new(serving) })
}

/// The HAProxy that was typed, else the one on the PATH.
fn proxy(typed: Option<PathBuf>) -> anyhow::Result<Proxy> {
    let (binary, version) = match typed {
        Some(file) if file.as_os_str() == "none" => return Ok(Proxy::None("without HAProxy".into())),
        Some(file) => {
            // HAProxy runs in another folder, so the path must be absolute.
            let file = std::path::absolute(file)?;
            let problem = || format!("{}: is no HAProxy from {} on", file.display(), Version::OLDEST);
            let version = installed::version(&file).with_context(problem)?;
            (file, version)
        }
        None => match installed::haproxy() {
            Some(found) => found,
            None => return Ok(Proxy::None(format!("there is no HAProxy from {} on", Version::OLDEST))),
        },
    };
    let delivery = Delivery::of(version);
    let delays_by =
        if delivery == Delivery::Hold { "slowlane: its answers come late" } else { "HAProxy: it pauses" };
    let files = move |places: &demo::Places| {
        let agent = Address::Tcp(places.agent.to_string());
        let places = Places {
            agent: &agent,
            bind: &places.bind.to_string(),
            app: &places.app.to_string(),
            folder: &places.folder.display().to_string(),
            tls: None,
            ratelimit: false,
            hold_max: HOLD_SHIPPED,
            fields: &[],
            peer: &agent,
            paced: &[],
        };
        let files = shipped::files(version, delivery, &places)?;
        Ok(files.into_iter().map(|file| (file.name, file.text)).collect())
    };
    Ok(Proxy::Haproxy { binary, version: version.to_string(), delays_by, files: Box::new(files) })
}
