//! `slowlane config`: prints slowlane's own configuration, or one for a proxy.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::{Args, Subcommand};

use crate::cli::arguments::RunArguments;
use crate::cli::{say, tell};
use crate::config::{Config, Listen};
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::{self, Delivery, Paced, Version};
use crate::proxy::shipped::{APP, File, NAME, Places, ProxyTls, envoy, nginx};
use crate::watch::Source;
use slowlane_core::base::{Address, SloId};
use slowlane_core::policy::{Layout, Policy};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Print the configuration that `slowlane run` would use with these options: every key that has a value.
    ///
    /// You can use the output as a config file. It omits only secrets: a token, and a store URL with a password.
    Show(RunArguments),
    /// Print a complete configuration for HAProxy, with slowlane's address in it.
    ///
    /// Without --dir, one file goes to standard output: the main file, or the file that --file names.
    Haproxy(Haproxy),
    /// Print a complete configuration for nginx, with slowlane's address in it.
    ///
    /// Without --dir, one file goes to standard output: the main file, or the file that --file names.
    Nginx(Nginx),
    /// Print a complete configuration for Envoy, with slowlane's address in it.
    Envoy(Envoy),
}

#[derive(Debug, Args)]
pub(super) struct Haproxy {
    #[command(flatten)]
    way: Way,
    /// Print only the lines to paste into your own configuration
    #[arg(long, conflicts_with = "file")]
    attach: bool,
    /// Address for HAProxy to listen on
    #[arg(long, value_name = "ADDR", default_value = haproxy::LISTEN)]
    bind: String,
    #[command(flatten)]
    common: Common,
}

/// The version of HAProxy, and the delivery.
#[derive(Debug, Args)]
pub(super) struct Way {
    /// HAProxy version, 2.6 or later [default: the version that `haproxy -v` prints]
    #[arg(long, value_name = "X.Y")]
    version: Option<Version>,
    /// How delays are delivered [default: pause from 3.2 on, hold before 3.2; lua if the installed HAProxy is 2.6 with
    /// Lua]
    #[arg(long, value_name = "WAY")]
    pub(super) delivery: Option<Delivery>,
}

#[derive(Debug, Args)]
pub(super) struct Nginx {
    /// Address for nginx to listen on
    #[arg(long, value_name = "ADDR", default_value = nginx::LISTEN)]
    listen: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Envoy {
    /// How delays are delivered
    #[arg(long, value_name = "WAY", default_value = "header")]
    delivery: envoy::EnvoyDelivery,
    /// Address for Envoy to listen on
    #[arg(long, value_name = "ADDR", default_value = envoy::LISTEN)]
    listen: String,
    /// Address of your application
    #[arg(long, value_name = "ADDR", default_value = APP)]
    app: String,
    #[command(flatten)]
    asked: AskedArguments,
}

#[derive(Debug, Args)]
struct Common {
    /// Address of your application
    #[arg(long, value_name = "ADDR", default_value = APP)]
    app: String,
    /// Name of the file to print
    #[arg(long, value_name = "NAME", conflicts_with = "dir")]
    file: Option<String>,
    /// Write all files to this directory, which must be their final location; existing files are never overwritten
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    asked: AskedArguments,
}

/// The arguments that describe the slowlane that the proxy queries.
#[derive(Debug, Args)]
struct AskedArguments {
    #[command(flatten)]
    answers: Answers,
    #[command(flatten)]
    run: RunArguments,
}

impl AskedArguments {
    fn load(self) -> anyhow::Result<AgentFacts> {
        Ok(AgentFacts::of(self.answers, self.run.or_of_service().load()?))
    }
}

/// The slowlane that the proxy queries, with the facts about its policy on which the proxy's files depend.
pub(super) struct AgentFacts {
    answers: Answers,
    config: Config,
    /// The names of the policy's fields, each once.
    fields: Vec<String>,
    /// The longest delay that the policy allows.
    delay_max: Duration,
    /// The keys whose limits HAProxy can enforce.
    paced: Vec<Paced>,
}

impl AgentFacts {
    /// Gathers the facts. If the policy has an error, only the fields in the config are known.
    pub(super) fn of(answers: Answers, config: Config) -> AgentFacts {
        let read = config.policy.as_ref().map(|source| source.read());
        let policy = read.and_then(|read| {
            read.map_err(|problems| tell(format_args!("warning: the policy is ignored: {problems}"))).ok()
        });
        let (fields, delay_max, paced) = (Vec::new(), Duration::ZERO, vec![Paced::source()]);
        AgentFacts { answers, config, fields, delay_max, paced }.with_policy(policy.as_ref())
    }

    /// Fills in the facts about a policy, which may not be written yet.
    pub(super) fn with_policy(mut self, policy: Option<&Policy>) -> AgentFacts {
        let Some(Source { layout, .. }) = &self.config.policy else { return self };
        let mut names: BTreeSet<String> = layout.sent_fields().into_iter().map(str::to_owned).collect();
        if let Some(policy) = policy {
            names.extend(policy.used_fields().map(str::to_owned));
            self.paced = paced(layout, policy);
            let delays = policy.slos().filter_map(|slo| slo.law.max_delay());
            self.delay_max = delays.max().unwrap_or_default().min(self.config.hold.hold_max);
        }
        self.fields = names.into_iter().collect();
        self
    }
}

/// How the proxy connects to slowlane.
#[derive(Debug, Args)]
pub(super) struct Answers {
    /// Send clients their limit in the RateLimit-Policy and RateLimit headers
    #[arg(long)]
    ratelimit: bool,
    /// Use TLS, and expect this name in slowlane's certificate [default: TLS as in --config; name slowlane.example]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = NAME)]
    tls: Option<String>,
}

pub(super) fn print(what: What) -> anyhow::Result<()> {
    match what {
        What::Show(typed) => say(&Config::show(typed.config.as_deref(), typed.flags)?),
        What::Haproxy(typed) => print_haproxy(typed),
        What::Nginx(typed) => print_nginx(typed),
        What::Envoy(typed) => print_envoy(typed),
    }
}

fn print_haproxy(typed: Haproxy) -> anyhow::Result<()> {
    let Haproxy { way, attach, bind, common: Common { app, file, dir, asked } } = typed;
    let folder = match &dir {
        Some(dir) => absolute(dir)?.display().to_string(),
        None => haproxy::FOLDER.to_owned(),
    };
    let mut files = haproxy_files(&way, asked.load()?, [&bind, &app, &folder])?;
    if attach {
        // The other files are written first, and their paths printed, so that the lines to paste come last.
        dir.map_or(Ok(()), |dir| write_all(&files[1..], &dir))?;
        return say(&haproxy::Pieces::of(&files[0]).to_paste());
    }
    // HAProxy does not read the maps, which are examples, so only --file prints them.
    if file.is_some() {
        files.extend(haproxy::maps());
    }
    put(&files, file.as_deref(), dir.as_deref())
}

/// The files for HAProxy, which listens on an address, forwards to an application and has its files in a directory.
pub(super) fn haproxy_files(
    way: &Way,
    asked: AgentFacts,
    [listen, app, folder]: [&str; 3],
) -> anyhow::Result<Vec<File>> {
    let AgentFacts { answers: Answers { ratelimit, tls }, config, fields, delay_max, paced } = asked;
    let peer = match &config.peers {
        Some(peers) if !peers.listen.addresses.is_empty() => first(&peers.listen.addresses, "peers")?.clone(),
        _ => haproxy::PEER.parse()?,
    };
    let agent = first(&config.spop.addresses, "spop")?;
    let ends = config.ends.addresses.first().map(|_| first(&config.ends.addresses, "ends")).transpose()?;
    let tls = spoken(&config.spop, agent, tls.as_deref())?;
    let places = Places { agent, listen, app, tls, ratelimit, delay_max, fields: &fields };
    let own = haproxy::Own { folder, peer: &peer, ends, paced: &paced };
    let none_here = || {
        anyhow!(
            "HAProxy 2.6 or later is not installed here: choose a version with --version, like 2.6, 3.0 or 3.2"
        )
    };
    let (version, best) = match way.version {
        Some(version) => (version, Delivery::of(version)),
        None => {
            let (binary, version) = installed::haproxy().ok_or_else(none_here)?;
            let is_for_lua = version.loses_holds() && installed::has_lua(&binary);
            (version, if is_for_lua { Delivery::Lua } else { Delivery::of(version) })
        }
    };
    Ok(haproxy::files(version, way.delivery.unwrap_or(best), &places, &own)?)
}

fn print_nginx(typed: Nginx) -> anyhow::Result<()> {
    let Nginx { listen, common: Common { app, file, dir, asked } } = typed;
    put(&nginx_files(asked.load()?, &listen, &app)?, file.as_deref(), dir.as_deref())
}

/// The files for nginx, which listens on an address and forwards to an application.
pub(super) fn nginx_files(asked: AgentFacts, listen: &str, app: &str) -> anyhow::Result<Vec<File>> {
    let AgentFacts { answers: Answers { ratelimit, tls }, config, fields, delay_max, .. } = asked;
    let agent = first(&config.http.addresses, "http")?;
    let tls = spoken(&config.http, agent, tls.as_deref())?;
    Ok(nginx::files(&Places { agent, listen, app, tls, ratelimit, delay_max, fields: &fields })?)
}

fn print_envoy(typed: Envoy) -> anyhow::Result<()> {
    let Envoy { delivery, listen, app, asked } = typed;
    let AgentFacts { answers: Answers { ratelimit, tls }, config, fields, delay_max, .. } = asked.load()?;
    let usual = envoy::GRPC.parse()?;
    let grpc = &config.grpc;
    let ends = if grpc.addresses.is_empty() { &usual } else { first(&grpc.addresses, "grpc")? };
    let (asked, agent) = match delivery {
        envoy::EnvoyDelivery::Hold => (&config.http, first(&config.http.addresses, "http")?),
        envoy::EnvoyDelivery::Header => {
            if grpc.addresses.is_empty() {
                tell(format_args!("warning: [grpc] listen is empty: start slowlane with --grpc {usual}"));
            }
            (grpc, ends)
        }
    };
    let ends_tls = spoken(grpc, ends, tls.as_deref().filter(|_| matches!(ends, Address::Tcp(_))))?;
    let tls = spoken(asked, agent, tls.as_deref())?;
    let (listen, app, fields) = (&*listen, &*app, &*fields);
    let places = Places { agent, listen, app, tls, ratelimit, delay_max, fields };
    say(&envoy::text(delivery, &places, (ends, ends_tls))?)
}

/// The keys whose limits HAProxy can enforce: one for each lookup that has a map, in order, and, if SLO 0 has a rate, a
/// key without fields. If there are no such keys, the key in the shipped files is used.
fn paced(layout: &Layout, policy: &Policy) -> Vec<Paced> {
    let mut keys: Vec<Paced> = Vec::new();
    for fields in policy.looked_up() {
        if !keys.iter().any(|key| key.fields == fields) {
            let prefixes = layout.prefixes(kind(layout, &fields));
            keys.push(Paced { fields, prefixes });
        }
    }
    if policy.slo(SloId::DEFAULT).is_some_and(|slo| !slo.objective.rate.is_unlimited()) {
        keys.push(Paced { fields: Vec::new(), prefixes: layout.prefixes(0) });
    }
    if keys.is_empty() { vec![Paced::source()] } else { keys }
}

/// The type whose keys have exactly these fields, or 0 if there is no such type.
fn kind(layout: &Layout, fields: &[String]) -> u16 {
    layout.kinds().skip(1).find(|&kind| layout.type_fields(kind) == fields).unwrap_or(0)
}

/// The TLS settings for the agent's address, with the given name, or the default name if only the config enables TLS.
fn spoken<'a>(
    listen: &Listen,
    agent: &Address,
    typed: Option<&'a str>,
) -> anyhow::Result<Option<ProxyTls<'a>>> {
    let is_tcp = matches!(agent, Address::Tcp(_));
    ensure!(
        is_tcp || typed.is_none(),
        "--tls: {agent} cannot use TLS: name a TCP address with --{}",
        listen.section
    );
    let is_spoken = typed.is_some() || listen.tls.is_some() && is_tcp;
    // Without a TLS config, it is unknown whether slowlane wants a certificate. An unneeded certificate does no harm.
    let has_certificate = listen.tls.as_ref().is_none_or(|files| files.client_ca.is_some());
    Ok(is_spoken.then(|| ProxyTls { name: typed.unwrap_or(NAME), has_certificate }))
}

/// The first address of a list. The proxy needs only one address.
fn first<'a>(addresses: &'a [Address], section: &str) -> anyhow::Result<&'a Address> {
    let expected = || anyhow!("[{section}] listen is empty: name an address with --{section}");
    let first = addresses.first().ok_or_else(expected)?;
    let is_any_port = matches!(first, Address::Tcp(address) if address.ends_with(":0"));
    ensure!(
        !is_any_port,
        "{first}: port 0 means a different port at each start: name a fixed port with --{section}"
    );
    Ok(first)
}

/// Prints one file to standard output, or writes all files to a directory.
fn put(files: &[File], file: Option<&str>, dir: Option<&Path>) -> anyhow::Result<()> {
    match (dir, file) {
        (Some(dir), _) => write_all(files, dir),
        (None, None) => say(&files[0].text),
        (None, Some(name)) => match files.iter().find(|file| file.name == name) {
            Some(file) => say(&file.text),
            None => {
                let names: Vec<_> = files.iter().map(|file| file.name).collect();
                bail!("--file {name:?}: expected one of {}", names.join(", "))
            }
        },
    }
}

/// Writes all files, or none if any of them already exists.
fn write_all(files: &[File], dir: &Path) -> anyhow::Result<()> {
    for File { name, .. } in files {
        let path = dir.join(name);
        ensure!(
            !path.try_exists()?,
            "{}: this file already exists: remove it, or choose another --dir",
            path.display()
        );
    }
    for File { name, text } in files {
        let path = dir.join(name);
        write_new(&path, text).map_err(|error| anyhow!("{}: cannot be written: {error}", path.display()))?;
        say(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
