//! The configuration in force: the defaults, then the file, then the flags.

mod error;
mod file;
mod listen;
mod mistakes;
mod peers;
mod policy;
mod secrets;
mod values;
mod warnings;

use std::fs;
use std::path::{Path, PathBuf};

use error::Report;
pub(crate) use error::{ConfigError, ConfigErrors};
pub(crate) use file::Flags;
pub(crate) use file::Sections;
pub(crate) use listen::Listen;
use listen::{HANDSHAKE_MAX, Tls, pair};
use mistakes::ConfigMistake;
pub(crate) use peers::PeersConfig;
use policy::WrittenPolicy;
use secrets::Secret;
pub(crate) use secrets::read_token;

use crate::observe::Clock;
use crate::server::Hosts;
use crate::server::tls::{self, TlsError};
use crate::sync::{StateFile, SyncConfig};
use crate::watch::Source;
use slowlane_core::base::{Address, HoldLimits, KeySecret, Token};
use slowlane_core::policy::{Policy, PolicyErrors};
use slowlane_core::table::Sizing;

/// The settings and the errors in the text of a config file. Files that the text names are not read.
///
/// The settings are those that [`slowlane config show`](crate::cli) prints, except that relative paths stay relative.
/// Each error is one line of text, with the number of the faulty line.
///
/// ```
/// let (shown, mistakes) = slowlane::config::examine("[table]\nsize = 0\n[hold]\nmax = 7\n");
/// assert!(shown.contains("\nmax = 7\n"));
/// assert_eq!(mistakes, [(Some(2), "invalid value: integer `0`, expected a number from 1 to 100000000".into())]);
/// ```
pub fn examine(text: &str) -> (String, Vec<(Option<usize>, String)>) {
    let (mut sections, mistakes) = mistakes::read(text);
    let shown = sections.shown().expect("paths that are read from text are valid UTF-8");
    (sections.admin.token_file, sections.policy.written.key_secret_file, sections.cluster.token_file) =
        (None, None, None);
    let named = ConfigFile { path: PathBuf::new(), text: text.to_owned(), flags: Flags::default() };
    let mut errors = Vec::new();
    Config::new(sections, Some(named), &mut errors);
    let mistakes = mistakes.into_iter().map(|ConfigMistake { line, message }| (Some(line), message));
    let errors = errors.iter().map(ConfigError::place).map(|(_, line, message)| (line, message));
    (shown, mistakes.chain(errors).collect())
}

/// Settings that only a restart or upgrade changes, including the policy's directory, types and lookups, not its maps.
#[derive(Debug, PartialEq)]
pub(crate) struct Config {
    /// The sections of the file, with the flags applied. The other fields are derived from these sections.
    pub sections: Sections,
    pub spop: Listen,
    pub http: Listen,
    /// Without an address, no gRPC is served.
    pub grpc: Listen,
    pub admin: Listen,
    /// The access token, required if the listener can be reached from other machines.
    pub admin_token: Option<Token>,
    /// Additional hosts that requests to `admin` may name, if there is no token.
    pub admin_hosts: Hosts,
    pub hold: HoldLimits,
    pub table: Sizing,
    /// `None` means the built-in policy.
    pub policy: Option<Source>,
    /// The key secret. If it is `None`, each start generates a random secret.
    pub key_secret: Option<KeySecret>,
    /// `None` if this slowlane is not in a cluster.
    pub cluster: Option<SyncConfig>,
    /// `None` if a restart loses all state.
    pub state: Option<StateFile>,
    /// `None` if this slowlane is not a store for other nodes.
    pub token_server: Option<Listen>,
    /// The access token of nodes, required if the listener can be reached from other machines.
    pub node_token: Option<Token>,
    /// `None` if no proxy enforces limits locally.
    pub peers: Option<PeersConfig>,
    /// The listeners for log lines over UDP. Without an address, slowlane receives no log lines.
    pub ends: Listen,
    /// `None` if there are only defaults and flags.
    pub file: Option<ConfigFile>,
    secrets: Vec<Secret>,
}

/// The config file, with its text as read at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    text: String,
    /// Flags override the file, so they affect whether an edit is valid.
    flags: Flags,
}

impl ConfigFile {
    /// A message for the operator if the file has been edited since startup.
    pub(crate) fn news(&self) -> Option<String> {
        let is_same = fs::read_to_string(&self.path).is_ok_and(|text| text == self.text);
        match Config::load(Some(&self.path), self.flags.clone()) {
            _ if is_same => None,
            Ok(_) => {
                Some(format!("{} has changed: `slowlane upgrade` puts it in force", self.path.display()))
            }
            Err(ConfigErrors(errors)) => {
                let more =
                    if errors.len() > 1 { format!(", and {} more", errors.len() - 1) } else { String::new() };
                let first = errors.first().map(ConfigError::to_string).unwrap_or_default();
                Some(format!("{first}{more} (the settings read at startup stay in force)"))
            }
        }
    }
}

/// The maximum number of connections of a token server. Each node needs one.
const NODE_CONNECTIONS_MAX: usize = 2_000;

/// The maximum number of admin connections: enough for operators and scrapers.
const ADMIN_CONNECTIONS_MAX: usize = 1_000;

impl Config {
    /// # Errors
    /// All errors in the file and in the flags.
    pub(crate) fn load(path: Option<&Path>, flags: Flags) -> Result<Config, ConfigErrors> {
        let (config, errors) = Config::examine(path, flags);
        if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
    }

    /// Reads a configuration as far as possible. Settings with an error have their defaults.
    pub(crate) fn examine(path: Option<&Path>, flags: Flags) -> (Config, Vec<ConfigError>) {
        let (sections, text, mut errors) = written(path, flags.clone());
        let file = path.zip(text).map(|(path, text)| ConfigFile { path: path.to_owned(), text, flags });
        let config = Config::new(sections, file, &mut errors);
        (config, errors)
    }

    /// Warnings about settings that are valid, but probably unintended.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let proxies = [&self.spop, &self.http];
        let holds = proxies.iter().filter_map(|listen| warnings::of_holds(listen, &self.hold));
        // A listener without a required token is already an error, and so is an unprotected listener for peers.
        let has_token = |listen: &&Listen| match listen.section {
            "admin" => self.admin_token.is_some(),
            "cluster" => self.node_token.is_some(),
            "peers" => false,
            _ => true,
        };
        let plain = self.listens().filter(has_token).filter_map(warnings::of_plain);
        let idle = self.listens().filter_map(warnings::of_idle_tls);
        let secrets = self.secrets.iter().filter_map(Secret::warning);
        holds.chain(plain).chain(idle).chain(secrets).collect()
    }

    /// The listeners of all protocols, except those for log lines over UDP.
    fn listens(&self) -> impl Iterator<Item = &Listen> {
        let peers = self.peers.as_ref().map(|peers| &peers.listen);
        [&self.spop, &self.http, &self.grpc, &self.admin].into_iter().chain(&self.token_server).chain(peers)
    }

    /// The paths of the TLS files.
    pub(crate) fn tls_files(&self) -> Vec<PathBuf> {
        let files = self.listens().filter_map(|listen| listen.tls.as_ref());
        files.flat_map(tls::TlsFiles::paths).map(Path::to_owned).collect()
    }

    /// The files that the daemon reads, and the directory of its policy.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let policy = self
            .policy
            .iter()
            .flat_map(|Source { dir, layout, .. }| layout.files(dir).into_iter().chain([dir.clone()]));
        let secrets = self.secrets.iter().map(|secret| secret.path.clone());
        let config = self.file.iter().map(|file| file.path.clone());
        config.chain(policy).chain(secrets).chain(self.tls_files()).collect()
    }

    /// Reads the TLS files. Returns errors for files that cannot be used, and warnings about the other files.
    pub(crate) fn check_tls(&self) -> (Vec<ConfigError>, Vec<String>) {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        for listen in self.listens() {
            let Some(files) = &listen.tls else { continue };
            match files.check() {
                Ok(expires) => warnings.extend(files.warning(expires, Clock::wall())),
                Err(error) => {
                    let key = match &error.path {
                        path if *path == files.cert => "cert",
                        path if *path == files.key => "key",
                        _ => "client_ca",
                    };
                    errors.push(self.tls_error(listen.tls_section(), key, error));
                }
            }
        }
        if let Some(cluster) = &self.cluster
            && let Err(error) = cluster.files.check()
        {
            let key = match &cluster.files.identity {
                Some((cert, _)) if error.path == *cert => "cert",
                Some((_, key)) if error.path == *key => "key",
                _ => "ca",
            };
            errors.push(self.tls_error("cluster".into(), key, error));
        }
        (errors, warnings)
    }

    fn tls_error(&self, section: String, key: &str, error: TlsError) -> ConfigError {
        placed(self.file.as_ref(), &section.clone(), key, ConfigError::Tls { section, error })
    }

    /// The policy for a command. Unlike in the daemon, its keys are the same in every run.
    ///
    /// # Errors
    /// The policy has an error.
    pub(crate) fn read_policy(&self) -> Result<Policy, PolicyErrors> {
        let policy = self.policy.as_ref().map_or_else(|| Ok(Policy::builtin()), Source::read)?;
        Ok(policy.with_key_secret(self.key_secret.unwrap_or(KeySecret::KNOWN)))
    }

    /// The key secret of this run: from the config, from an earlier run, or random.
    ///
    /// # Errors
    /// The system cannot provide random bytes.
    pub(crate) fn secret_of_this_run(&self, earlier: Option<KeySecret>) -> Result<KeySecret, ConfigError> {
        self.key_secret.or(earlier).map_or_else(secrets::draw, Ok)
    }

    /// The configuration in force as a config file, with every key that has a value.
    ///
    /// The text may be saved anywhere, so relative paths become absolute, and secrets are left out.
    pub(crate) fn show(path: Option<&Path>, flags: Flags) -> Result<String, ConfigErrors> {
        let (mut sections, _, errors) = written(path, flags);
        if !errors.is_empty() {
            return Err(ConfigErrors(errors));
        }
        for path in sections.paths() {
            *path = std::path::absolute(&*path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        }
        Ok(sections.shown()?)
    }

    fn new(sections: Sections, file: Option<ConfigFile>, errors: &mut Vec<ConfigError>) -> Config {
        let mut report = |section: &str, key: &str, error: ConfigError| {
            errors.push(placed(file.as_ref(), section, key, error));
        };
        let report: Report<'_> = &mut report;
        let secrets = secrets::all(&sections, file.as_ref());
        let Sections { spop, http, grpc, admin, hold, table, policy, cluster, ends, state, .. } = &sections;
        let (of_spop, of_http) = (spop.timeout, http.idle_timeout.min(HANDSHAKE_MAX));
        let spop = Listen::new("spop", &spop.listen, &spop.allow, &spop.tls, spop.connections_max, report);
        let spop = Listen { handshake_max: of_spop, ..spop };
        let http = Listen::new("http", &http.listen, &http.allow, &http.tls, http.connections_max, report);
        let http = Listen { handshake_max: of_http, ..http };
        let grpc = Listen::new("grpc", &grpc.listen, &grpc.allow, &grpc.tls, grpc.connections_max, report);
        let admin_hosts = Hosts::new(&admin.hosts).expect("the hosts were checked when the file was read");
        let (token, token_file) = (admin.token.clone(), admin.token_file.clone());
        let admin =
            Listen::new("admin", &admin.listen, &admin.allow, &admin.tls, ADMIN_CONNECTIONS_MAX, report);
        let admin_token = secrets::guard(&admin, token, token_file, report);
        let WrittenPolicy { dir, key_secret_file, .. } = &policy.written;
        let key_secret = key_secret_file.clone().map(secrets::key_secret).transpose();
        let key_secret = key_secret.unwrap_or_else(|error| {
            report("policy", "key_secret_file", error);
            None
        });
        let peers = PeersConfig::new(&sections.peers, report);
        let ends = Listen::new("ends", &ends.listen, &ends.allow, &Tls::default(), 0, report);
        if let Some(unix) = ends.addresses.iter().find(|address| matches!(address, Address::Unix(_))) {
            report("ends", "listen", ConfigError::EndsOverUnix(unix.to_string()));
        }
        let nodes = Listen::new(
            "cluster",
            &cluster.listen,
            &cluster.allow,
            &cluster.tls,
            NODE_CONNECTIONS_MAX,
            report,
        );
        let node_token = secrets::guard(&nodes, None, cluster.token_file.clone(), report);
        let token_server = Some(nodes).filter(|listen| !listen.addresses.is_empty());
        let listens = [&spop, &http, &grpc, &admin].into_iter().chain(&token_server);
        let listens = listens.chain(peers.as_ref().map(|peers| &peers.listen));
        listen::report_collisions(listens, report);
        let identity = pair("cluster", &cluster.cert, &cluster.key, report);
        let cluster = cluster.settings(identity, key_secret.is_some(), token_server.is_some());
        Config {
            spop,
            http,
            grpc,
            admin,
            admin_token,
            admin_hosts,
            hold: HoldLimits { holds_max: hold.max, hold_max: hold.longest, when_full: hold.when_full },
            table: Sizing { entries_max: table.size, expire: table.expire },
            policy: dir.clone().map(|dir| Source {
                dir,
                layout: policy.layout.clone(),
                hold_max: hold.longest,
                key_secret: KeySecret::KNOWN,
                period: cluster.as_ref().map(|cluster| cluster.settings.period),
                has_peers: peers.is_some(),
            }),
            cluster,
            token_server,
            node_token,
            peers,
            ends,
            state: state.file.clone().map(|path| StateFile { path, every: state.every }),
            key_secret,
            file,
            secrets,
            sections,
        }
    }
}

/// The error with the line of the key, if the config file sets the key.
fn placed(file: Option<&ConfigFile>, section: &str, key: &str, error: ConfigError) -> ConfigError {
    let line = file.and_then(|file| mistakes::line_of(&file.text, section, key));
    match (file, line) {
        (Some(ConfigFile { path, .. }), Some(line)) => {
            ConfigError::Invalid { path: path.clone(), line, message: error.to_string() }
        }
        _ => error,
    }
}

/// The settings of the file, or the defaults, with the flags applied; the file's text; and the errors in that text.
fn written(path: Option<&Path>, flags: Flags) -> (Sections, Option<String>, Vec<ConfigError>) {
    let (sections, text, errors) = path.map_or_else(Default::default, read);
    (sections.with(flags, path.and_then(Path::parent).unwrap_or(Path::new(""))), text, errors)
}

fn read(path: &Path) -> (Sections, Option<String>, Vec<ConfigError>) {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) => {
            let unreadable = ConfigError::Unreadable { path: path.to_owned(), source };
            return (Sections::default(), None, vec![unreadable]);
        }
    };
    let (sections, mistakes) = mistakes::read(&text);
    let invalid =
        |ConfigMistake { line, message }| ConfigError::Invalid { path: path.to_owned(), line, message };
    (sections, Some(text), mistakes.into_iter().map(invalid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::listener::UNIX_MODE;
    use crate::sync::StoreUrl;
    use slowlane_core::base::Address;
    use slowlane_core::cluster::Settings;
    use slowlane_core::policy::Layout;

    fn parse(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let result = Config::load(Some(file.path()), Flags::default());
        result.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "file"))
    }

    #[test]
    fn the_shipped_file_says_the_defaults() {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("slowlane.toml");
        let with = |path| {
            let flags = Flags { policy: Some("maps".into()), ..Flags::default() };
            Config { file: None, ..Config::load(path, flags).unwrap() }
        };
        assert_eq!(with(Some(shipped.as_path())), with(None));
        let Sections { admin, cluster, policy, .. } = Sections::default();
        let cluster = file::ClusterSection { store: Some(StoreUrl::own()), ..cluster };
        assert_eq!(cluster.settings(None, false, true).unwrap().settings, Settings::default());
        assert_eq!(policy.layout, Layout::default());
        assert_eq!(admin.socket_mode, UNIX_MODE);
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[spop]\nlisten = ['127.0.0.1:1', 'unix:/a']\n[admin]\nlisten = []\n")
            .unwrap();
        let address = |text: &str| text.parse::<Address>().unwrap();
        let flags = Flags { spop: vec![address("[::1]:2")], ..Flags::default() };
        let config = Config::load(Some(file.path()), flags).unwrap();
        assert_eq!(config.spop.addresses, [address("[::1]:2")]);
        assert_eq!(config.http.addresses, [address("127.0.0.1:9001")]);
        assert_eq!(config.admin.addresses, []);
    }

    #[test]
    fn two_listeners_on_one_port_are_a_mistake() {
        let reported =
            parse("[spop]\nlisten = ['127.0.0.1:9000']\n[http]\nlisten = ['127.0.0.1:9000']\n").unwrap_err();
        let expected =
            "file:4: [http] listens on 127.0.0.1:9000, and so does [spop]: give each a port of its own";
        assert_eq!(reported, expected);
        let all = "[spop]\nlisten = ['0.0.0.0:9001']\n";
        assert!(parse(all).unwrap_err().contains("[http] listens on 127.0.0.1:9001, and so does [spop]"));
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_may_stand_there() {
        let error = |text| parse(text).unwrap_err();
        assert_eq!(
            error("[spop]\ntimout = '5s'"),
            "file:2: unknown field `timout`, expected one of `listen`, `allow`, `connections_max`, `frame_bytes_max`, `timeout`, `tls`"
        );
        let unit = "expected a whole number and a unit (us, ms, s, m, h or d), like 5s";
        assert_eq!(error("\n[spop]\ntimeout = '5'"), format!("file:3: \"5\": {unit}"));
        assert_eq!(
            error("[table]\nsize = 0"),
            "file:2: invalid value: integer `0`, expected a number from 1 to 100000000"
        );
        assert_eq!(
            error("[http]\nlisten = ['9001']"),
            "file:2: \"9001\": expected host:port, like 127.0.0.1:9000, or unix:/path"
        );
        assert_eq!(
            error("[[policy.lookups]]\nfields = ['a']\nmap = 'a.map'\nmatch = 'len'"),
            "file:4: unknown variant `len`, expected one of `str`, `ip`, `beg`, `end`, `dom`, `sub`, `reg`"
        );
        assert_eq!(
            error("[admin]\nhosts = ['a.example:80']"),
            "file:2: \"a.example:80\": expected a name or an address without a port, like slowlane.example"
        );
        assert!(
            error("[policy.types]\n0 = ['a']").starts_with("file:2: \"0\": expected a type from 1 to 999")
        );
        for sample in ["0.0", "-1.0", "1.1", "nan"] {
            assert!(
                parse(&format!("[decision_log]\nsample = {sample}"))
                    .unwrap_err()
                    .contains("expected a fraction")
            );
        }
        assert!(error("[hold]\nwhen_full = 'drop'").starts_with("file:2: unknown variant `drop`"));
        assert!(error("[spop").starts_with("file:1: "));
    }

    #[test]
    fn an_edit_since_the_start_is_told_and_so_is_its_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slowlane.toml");
        let edit = |text: &str| fs::write(&path, text).unwrap();
        edit("[table]\nsize = 10\n");
        let file = Config::load(Some(&path), Flags::default()).unwrap().file.unwrap();
        let news = || file.news().map(|news| news.replace(&path.display().to_string(), "file"));
        assert_eq!(news(), None);
        edit("[table]\nsize = 11\n");
        assert_eq!(news().unwrap(), "file has changed: `slowlane upgrade` puts it in force");
        edit("[table]\nsize = 0\n");
        let mistake = "file:2: invalid value: integer `0`, expected a number from 1 to 100000000 (the \
                       settings read at startup stay in force)";
        assert_eq!(news().unwrap(), mistake);
        fs::remove_file(&path).unwrap();
        assert!(news().unwrap().starts_with("file: No such file"), "{:?}", news());
        edit("[table]\nsize = 10\n");
        assert_eq!(news(), None);
        assert_eq!(Config::load(None, Flags::default()).unwrap().file, None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::load(Some(Path::new("/nowhere/slowlane.toml")), Flags::default()).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/slowlane.toml: No such file"), "{error}");
    }
}
