//! Adds slowlane to some of the servers in an nginx configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::proxy::attach::{Attached, BEGIN, BEHIND, Block, Refused, Site, TAKEN, chosen, with_blocks};
use crate::proxy::nginx_files::{Placed, quoted};

pub use crate::proxy::nginx_files::NginxFiles;
use slowlane_core::base::{Address, Network};

/// An HTTP server, and the directives directly inside it.
pub(crate) struct Server<'f> {
    at: Placed<'f>,
    pub(crate) inner: Vec<Placed<'f>>,
}

/// Adds slowlane to the servers with these names or places, or to the only server. The result has the new text of each
/// file that changes. `ours` are the paths of slowlane's own files: one for the `http` block, and one for a server. The
/// client's address is taken from the X-Forwarded-For of the networks in `trusted`, if there are any. If `ends` is
/// given, log lines report the ends of requests to this address.
///
/// # Errors
/// No server or more than one server matches a name, slowlane is attached already, or a directive would defeat slowlane.
pub fn attach(
    files: &NginxFiles,
    names: &[String],
    ours: [&Path; 2],
    trusted: &[Network],
    ends: Option<&Address>,
) -> Result<Attached<BTreeMap<PathBuf, String>>, Refused> {
    let top = files.top();
    let http = top.iter().find(|placed| placed.name() == "http");
    let http = *http.ok_or(Refused::None("server"))?;
    let inner = files.inside(http);
    let servers = servers(files, &inner);
    let is_ours = |placed: &&Placed<'_>| {
        matches!(placed.words()[..], ["upstream", "slowlane"] | ["auth_request", "/slowlane-check"])
    };
    if let Some(there) = inner.iter().chain(servers.iter().flat_map(|server| &server.inner)).find(is_ours) {
        let is_marked = files.paths().any(|path| files.text(path).contains(BEGIN));
        let refused = if is_marked { Refused::Attached } else { Refused::ByHand };
        return Err(refused(there.place()));
    }
    let sites = servers.iter().map(|of| Site {
        of,
        shown: of.shown(&servers),
        place: of.at.place(),
        names: of.names().map(str::to_owned).collect(),
    });
    let (chosen, others) = chosen("server", sites.collect(), names)?;
    let mut notes = notes(files, &inner, &chosen)?;
    let taken: Vec<_> = chosen.iter().map(|site| client(&inner, &site.of.inner)).collect();
    if let (Some((placed, _)), false) = (taken.iter().flatten().next(), trusted.is_empty()) {
        return Err(placed.refuse(TAKEN));
    }
    let told = taken
        .iter()
        .filter(|_| trusted.is_empty())
        .map(|taken| taken.map_or(BEHIND.to_owned(), |(placed, note)| format!("{}: {note}", placed.place())));
    notes.extend(told.collect::<BTreeSet<String>>());
    notes.extend(others);
    let mut blocks: BTreeMap<&Path, Vec<Block>> = BTreeMap::new();
    let places = chosen.iter().map(|site| (site.of.at, begin(&site.of.at), ours[1], trusting(trusted)));
    for (placed, at, path, mut lines) in places.chain([(http, end(&http), ours[0], Vec::new())]) {
        lines.push(format!("    include {};", quoted(path)));
        blocks.entry(placed.path).or_default().push(Block::at(at, lines));
    }
    if let Some(ends) = ends {
        let servers: Vec<&Server<'_>> = chosen.iter().map(|site| site.of).collect();
        for (path, block) in logged(files, http, &inner, &servers, ends)? {
            let there = blocks.entry(path).or_default();
            // Several servers may include the same file, which needs the block once.
            if !there.contains(&block) {
                there.push(block);
            }
        }
        let is_default = |server: &&Server<'_>| !has(&server.inner, LOG) && !has(&inner, LOG);
        notes.extend(servers.into_iter().find(is_default).map(|server| {
            format!(
                "{}: add your own access_log here, because slowlane's access_log replaces nginx's default access_log",
                server.at.place()
            )
        }));
    }
    let changed =
        blocks.into_iter().map(|(path, blocks)| (path.to_owned(), with_blocks(files.text(path), blocks)));
    let after = changed.collect();
    Ok(Attached { after, names: chosen.into_iter().map(|site| site.shown).collect(), notes })
}

/// The lines that take the client's address from X-Forwarded-For: from the right, skipping addresses in these networks.
fn trusting(networks: &[Network]) -> Vec<String> {
    if networks.is_empty() {
        return Vec::new();
    }
    let from = networks.iter().map(|network| format!("set_real_ip_from {network}"));
    let header = ["real_ip_header X-Forwarded-For", "real_ip_recursive on"].map(str::to_owned);
    from.chain(header).map(|line| format!("    {line};")).collect()
}

/// The directive that adds a log. A block with this directive does not inherit the logs of the outer blocks.
const LOG: &str = "access_log";

/// The blocks that add a log of ends to servers: beside other logs, in place of `access_log off`, or as the only log.
fn logged<'f>(
    files: &'f NginxFiles,
    http: Placed<'f>,
    inner: &[Placed<'f>],
    servers: &[&Server<'f>],
    ends: &Address,
) -> Result<Vec<(&'f Path, Block)>, Refused> {
    let format = "    log_format slowlane_end 'ticket=$slowlane_ticket bytes=$bytes_sent seconds=\"$upstream_response_time\"';";
    let line = format!("    access_log syslog:server={ends},nohostname slowlane_end if=$slowlane_ticket;");
    let keeps = |inner: &[Placed<'_>]| has(inner, LOG) && !inner.iter().any(is_off);
    let own = |placed: Placed<'f>, at| (placed.path, Block::at(at, vec![line.clone()]));
    let mut blocks = vec![(http.path, Block::at(begin(&http), vec![format.to_owned()]))];
    let is_inherited = |server: &&&Server<'_>| !has(&server.inner, LOG);
    if keeps(inner) && servers.iter().any(|server| is_inherited(&server)) {
        blocks.push(own(http, end(&http)));
    } else {
        blocks.extend(servers.iter().filter(is_inherited).map(|server| own(server.at, begin(&server.at))));
    }
    for server in servers {
        let deep = deep(files, &server.inner, Nesting::Server).into_iter().map(|(placed, ..)| placed);
        let below = deep.map(|placed| (placed, files.inside(placed)));
        for (placed, inner) in [(server.at, server.inner.clone())].into_iter().chain(below) {
            if keeps(&inner) {
                blocks.push(own(placed, begin(&placed)));
            }
            for off in inner.iter().filter(|placed| is_off(placed)) {
                let Range { start: at, end: until } = off.directive.place;
                if off.text()[at..until].contains('\n') {
                    return Err(off.refuse("put this directive on one line, or log request ends by hand"));
                }
                blocks.push((off.path, Block { at, until, lines: vec![line.clone()] }));
            }
        }
    }
    Ok(blocks)
}

/// Whether this directive switches off the logs of its block.
fn is_off(placed: &Placed<'_>) -> bool {
    matches!(placed.words()[..], [LOG, "off", ..])
}

/// The directive that tells a server where to get the client's address, and the note on that directive.
fn client<'f>(http: &[Placed<'f>], server: &[Placed<'f>]) -> Option<(Placed<'f>, &'static str)> {
    let find = |name| server.iter().chain(http).find(|placed| placed.name() == name).copied();
    let from = find("set_real_ip_from")?;
    Some(match find("real_ip_header") {
        Some(header) => (header, "slowlane counts each client by the address in this header"),
        None => {
            (from, "nginx reads X-Real-IP: to read the CDN's header, add `real_ip_header X-Forwarded-For;`")
        }
    })
}

/// The lines for the operator to paste. `ours` are the paths of slowlane's own files.
pub fn to_paste(ours: [&Path; 2]) -> String {
    let [http, server] = ours.map(quoted);
    format!(
        "# For the block http:\n    include {http};\n\n# For your server, as its first line:\n    include {server};\n"
    )
}

/// The servers that serve an application, instead of answering each request with a `return` of their own.
pub(crate) fn servers<'f>(files: &'f NginxFiles, http: &[Placed<'f>]) -> Vec<Server<'f>> {
    let mut places = BTreeSet::new();
    let is_server = |placed: &&Placed<'_>| placed.name() == "server" && placed.directive.block.is_some();
    // A file may be included twice, but its servers count once.
    let once = http.iter().filter(is_server).filter(|placed| places.insert(placed.place()));
    let servers = once.map(|&at| Server { at, inner: files.inside(at) });
    servers.filter(|server| !has(&server.inner, "return")).collect()
}

impl Server<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.inner.iter().filter(|placed| placed.name() == "server_name");
        names.flat_map(|placed| &placed.directive.words[1..]).map(String::as_str)
    }

    /// The server's first plain name that no other server has, or else its file and line.
    pub(crate) fn shown(&self, servers: &[Server<'_>]) -> String {
        let is_plain =
            |name: &str| name.len() > 1 && name.chars().all(|c| c.is_alphanumeric() || "*.-".contains(c));
        let is_own =
            |name: &str| servers.iter().filter(|server| server.names().any(|own| own == name)).count() == 1;
        self.names()
            .find(|name| is_plain(name) && is_own(name))
            .map_or_else(|| self.at.place(), str::to_owned)
    }
}

/// The place for the first line in a block. slowlane must come first, because nginx runs a server's rewrites in order.
fn begin(server: &Placed<'_>) -> usize {
    let at = server.directive.block.as_ref().map_or(0, |block| block.start);
    let rest = server.text()[at..].split_inclusive('\n').next().unwrap_or_default();
    let is_free = rest.trim_start().is_empty() || rest.trim_start().starts_with('#');
    if is_free { at + rest.len() } else { at }
}

/// The place for the last line in a block.
fn end(block: &Placed<'_>) -> usize {
    let at = block.directive.block.as_ref().map_or(0, |block| block.end);
    let line = block.text()[..at].rfind('\n').map_or(0, |end| end + 1);
    if block.text()[line..at].trim().is_empty() { line } else { at }
}

/// The kind of block that contains a directive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Http,
    Server,
    Inside,
}

/// The notes on all directives in force for the chosen servers, or an error if one of them would defeat slowlane.
fn notes(
    files: &NginxFiles,
    http: &[Placed<'_>],
    chosen: &[Site<&Server<'_>>],
) -> Result<Vec<String>, Refused> {
    let mut notes = Vec::new();
    let mut add = |placed: Placed<'_>, effect: Result<Option<&str>, &'static str>| {
        let note = effect.map_err(|reason| placed.refuse(reason))?;
        notes.extend(note.map(|note| format!("{}: {note}", placed.place())));
        Ok(())
    };
    let has_pages = chosen.iter().all(|site| has(&site.of.inner, "error_page"));
    for &placed in http {
        add(placed, effect(&placed.words(), Nesting::Http, has_pages, &BTreeSet::new()))?;
    }
    for site in chosen {
        let all = deep(files, &site.of.inner, Nesting::Server);
        let returned = all.iter().filter(|(placed, ..)| placed.name() == "return");
        let returned = returned.filter_map(|(placed, ..)| placed.directive.words.get(1).cloned()).collect();
        for (placed, level, is_exempt) in all {
            add(placed, effect(&placed.words(), level, is_exempt, &returned))?;
        }
    }
    Ok(notes)
}

fn has(inner: &[Placed<'_>], name: &str) -> bool {
    inner.iter().any(|placed| placed.name() == name)
}

/// The directives at any depth, each with the kind of its block, and whether that block has an `auth_request`.
fn deep<'f>(files: &'f NginxFiles, inner: &[Placed<'f>], level: Nesting) -> Vec<(Placed<'f>, Nesting, bool)> {
    let is_exempt = has(inner, "auth_request");
    let below = |placed: Placed<'f>| deep(files, &files.inside(placed), Nesting::Inside);
    inner.iter().flat_map(|&placed| [vec![(placed, level, is_exempt)], below(placed)].concat()).collect()
}

/// The effect of a directive on slowlane: an error if it defeats slowlane, or a note on requests that are not counted
/// or get an answer other than 429. `is_exempt` says whether the block has an `auth_request` or, for the `http` block,
/// whether each chosen server has an `error_page`. `returned` are the statuses in the server's `return` directives.
fn effect(
    words: &[&str],
    level: Nesting,
    is_exempt: bool,
    returned: &BTreeSet<String>,
) -> Result<Option<&'static str>, &'static str> {
    let is_returned = |codes: &[&str]| codes.iter().any(|code| returned.contains(*code));
    Ok(Some(match (level, words) {
        (Nesting::Http, ["auth_request", to]) if *to != "off" => {
            return Err("in a server, slowlane's auth_request would replace this directive");
        }
        (Nesting::Server, ["auth_request", ..]) => {
            return Err("this server has an auth_request of its own, and nginx allows only one in a block");
        }
        (_, ["satisfy", "any"]) if level == Nesting::Http || !is_exempt => {
            return Err(
                "with `satisfy any`, a pass from slowlane would let clients in without their password: add \
                 `auth_request off;` to each location with `satisfy any`, or use `satisfy all`",
            );
        }
        (Nesting::Http | Nesting::Server, [name, ..]) if name.starts_with("rewrite_by_lua") => {
            return Err(
                "nginx would run this directive for slowlane's queries, too: move it into the locations that need it",
            );
        }
        (_, [name, "on"]) if name.ends_with("_intercept_errors") => {
            "nginx's own page replaces the application's page for 403"
        }
        (Nesting::Http, ["error_page", ..]) if !is_exempt => {
            "a server that queries slowlane no longer inherits this directive: repeat it in the server"
        }
        (Nesting::Http, _) => return Ok(None),
        (_, ["return", ..]) => {
            "nginx answers `return` before it queries slowlane: such requests are not counted"
        }
        (_, ["rewrite", .., "redirect" | "permanent"]) => {
            "nginx redirects before it queries slowlane: such requests are not counted"
        }
        (_, ["auth_request", "off"]) => "with `auth_request off`, this location does not query slowlane",
        (_, ["auth_request", ..]) => "this location queries another service instead of slowlane",
        (Nesting::Inside, ["error_page", ..]) => {
            "add `error_page 403 = @slowlane_denied;` here: without it, this location refuses with 403, not 429"
        }
        (_, ["error_page", codes @ .., _]) if codes.contains(&"403") => {
            "slowlane's error_page 403 comes first: this page is no longer shown"
        }
        (_, ["error_page", codes @ .., to]) if to.starts_with(['@', '/']) && is_returned(codes) => {
            "a request that `return` sends here is refused with 403, not 429"
        }
        _ => return Ok(None),
    }))
}
