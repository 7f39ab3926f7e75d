//! `slowlane why`: from files and from a daemon, with and without a token.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::cli::{Ran, ran};
use crate::support::client::{self, Client};
use crate::support::pages::Page;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{own_address, project};

const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=10000 rate=5000/s\n2001 burst=1 rate=1/m max_delay=1h\n2002 burst=1 rate=1/m max_delay=1s\n",
    ),
    ("website.map", "slow.example 2001\ndenied.example 2002\n"),
];

/// The output of a successful command.
fn said(args: &[&str]) -> String {
    let Ran { code, out, problems } = ran(args);
    assert_eq!((code, problems.as_slice()), (0, &[][..]), "{args:?}");
    out
}

fn refused(args: &[&str]) -> String {
    let Ran { code, out, problems } = ran(args);
    assert_eq!((code, out.as_str(), problems.len()), (1, "", 1), "{args:?}: {problems:?}");
    problems.into_iter().next().unwrap()
}

/// The code blocks in a section of a page of the manual.
pub fn examples(page: &str, section: &str) -> Vec<String> {
    let section = Page::read(page).section(section);
    section.all_blocks().into_iter().map(|block| block.text).collect()
}

#[test]
fn the_manual_shows_what_it_really_says_of_files() {
    let shown = &examples("doc/book/throttled.md", "Ask why")[0];
    let (command, outcome) = shown.split_once('\n').unwrap();
    let command = command.strip_prefix("$ slowlane ").expect("a command comes first");
    let args: Vec<&str> = command.split(' ').collect();
    let Ran { code, out, .. } = crate::cli::ran_in(&project(""), &args);
    assert_eq!((code, out.as_str()), (0, outcome), "{command}");
}

/// The output that the page on faults shows for the shipped maps.
#[test]
fn the_page_on_faults_shows_what_is_really_said_of_files() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(project("haproxy"), folder.path().join("haproxy")).unwrap();
    let mut shown = 0;
    for block in Page::read("doc/book/faults.md").blocks("text") {
        let Some((command, outcome)) =
            block.text.strip_prefix("$ slowlane ").and_then(|text| text.split_once('\n'))
        else {
            continue;
        };
        if !command.contains("--policy") {
            continue;
        }
        let args: Vec<&str> = command.split(' ').collect();
        let Ran { code, out, problems } = crate::cli::ran_in(folder.path(), &args);
        let problems: String = problems.iter().map(|line| format!("slowlane: {line}\n")).collect();
        assert_eq!((code, problems + &out), (0, outcome.to_owned()), "{command}");
        shown += 1;
    }
    assert_eq!(shown, 1);
}

#[test]
fn files_are_asked_without_a_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("policy");
    fs::create_dir(&dir).unwrap();
    for (name, text) in POLICY {
        fs::write(dir.join(name), text).unwrap();
    }
    fs::write(
        folder.path().join("slowlane.toml"),
        "[policy]\ndir = \"policy\"\nipv6_prefix = 48\n[admin]\nlisten = [\"127.0.0.1:1\"]\n",
    )
    .unwrap();
    let (config, policy) = (folder.path().join("slowlane.toml"), dir.display().to_string());
    let of_policy = said(&["why", "--policy", &policy, "website=slow.example"]);
    let outcome = format!(
        "request   website=slow.example\n\
         SLO 2001  burst=1 rate=1/m max_delay=1h\n  in      {policy}/slo.map:2\n  \
         named   {policy}/website.map:1 (lookup website)\n  \
         key     random at each start, of website slow.example (type 2)\n  \
         entry   none: a new key\n  pace    used 0 + cost 1 <= burst 1\n  says    pass\n\
         verdict   pass, if asked now; nothing was counted\n"
    );
    assert_eq!(of_policy, outcome);
    fs::write(dir.join("source.map"), "2001:db8::/32 3001\n").unwrap();
    let mut slo_map = OpenOptions::new().append(true).open(dir.join("slo.map")).unwrap();
    slo_map.write_all(b"3001 burst=1 rate=1/m\n").unwrap();
    let [by_config, by_both] = [&["--config"][..], &["--policy", &policy, "--config"]]
        .map(|flags| [&["why"], flags, &[config.to_str().unwrap(), "source=2001:db8::1"]].concat());
    assert!(said(&by_both).contains(" of source 2001:db8::/48 "), "{}", said(&by_both));
    assert!(refused(&by_config).starts_with("cannot query slowlane at 127.0.0.1:"), "a daemon is asked");
    let json = said(&["why", "--policy", &policy, "--json", "website=slow.example", "cost=7"]);
    for part in
        ["\"cost\": 7", "\"slo\": 2001", "\"entry\": null", "\"verdict\": \"delay\"", "\"delay\": 360000"]
    {
        assert!(json.contains(part), "{part}: {json}");
    }
    // Errors in files are reported like by `check`.
    fs::write(dir.join("slo.map"), "0 burst=x rate=1/s\n").unwrap();
    let [asked, checked] =
        [&["why", "--policy", &policy, "a=b"][..], &["check", "--policy", &policy]].map(ran);
    assert_eq!((asked.code, asked.problems), (1, checked.problems));
}

#[test]
fn a_daemon_tells_what_the_next_request_then_gets() {
    let slowlane = Slowlane::with_policy(POLICY);
    let admin = slowlane.admin.to_string();
    let why = |website: &str| said(&["why", "--admin", &admin, &format!("website={website}")]);
    let ask = |website| slowlane.check("?hold=off", &[("X-Slowlane-Website", website)]);
    for website in ["slow.example", "denied.example"] {
        assert!(why(website).contains("\n  entry   none: a new key\n"));
        assert_eq!(ask(website).header("x-slowlane-verdict"), Some("pass"));
    }
    let outcome = why("slow.example");
    assert!(
        outcome.contains(" = 1 over; delay = 1 / 1/m = ") || outcome.contains(" over; delay = 0.9"),
        "{outcome}"
    );
    let reported_ms: u64 =
        outcome.split("says    delay ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let columns = |outcome: &str| outcome.split("gpt0=").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(columns(&why("slow.example")), columns(&outcome), "to ask counts nothing");
    let given_ms: u64 = ask("slow.example").header("x-slowlane-delay").unwrap().parse().unwrap();
    assert!(given_ms <= reported_ms && reported_ms <= 60_000, "{given_ms} ms of {reported_ms} ms");
    assert!(why("denied.example").contains("\nverdict   deny, retry after "), "{}", why("denied.example"));
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 3.0, "questions are no requests");

    // The same over HTTP: text for people, JSON for programs.
    let text = client::get(slowlane.admin, "/api/why?website=denied.example", &[]);
    assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(text.body.contains("\nSLO 2002  burst=1 rate=1/m max_delay=1s\n"), "{}", text.body);
    let json = client::get(
        slowlane.admin,
        "/api/why?website=denied.example",
        &[("Accept", "text/html, application/json;q=0.9")],
    );
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert!(
        json.body.contains("\"verdict\": \"deny\"") && json.body.contains("\"retry_after\": "),
        "{}",
        json.body
    );
    assert!(
        said(&["why", "--admin", &admin, "--json", "website=denied.example"]).contains("\"http_req_cnt\": 1")
    );
}

/// One of 200 types names the SLO of a request, and eleven lookups add one each.
#[test]
fn each_of_twelve_limits_is_explained() {
    let added = 206..217;
    let lookup = |name: &str, more: &str| {
        format!("[[policy.lookups]]\nfields = [\"website\"]\nmap = \"{name}\"\nmatch = \"str\"\n{more}")
    };
    let types: String = (6..217).map(|kind| format!("{kind} = [\"website\", \"owner\"]\n")).collect();
    let lookups: String = added.clone().map(|kind| lookup(&format!("{kind}.map"), "also = true\n")).collect();
    let config = format!("[policy.types]\n{types}{}{lookups}", lookup("website.map", ""));
    // The SLO of type 211 is the strictest: two of each website and owner.
    let burst = |kind: u32| if kind == 211 { 2 } else { kind };
    let slos = (6..217)
        .map(|kind| format!("{kind}001 burst={} rate=1/h law=token-bucket\n", burst(kind)))
        .collect::<String>();
    let websites: String = (6..206).map(|kind| format!("{kind}.example {kind}001\n")).collect();
    let maps: Vec<(String, String)> = added
        .clone()
        .map(|kind| (format!("{kind}.map"), format!("205.example {kind}001\n6.example {kind}001\n")))
        .collect();
    let slo_map = format!("0 rate=unlimited\n{slos}");
    let mut files = vec![("slo.map", slo_map.as_str()), ("website.map", websites.as_str())];
    files.extend(maps.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let slowlane = Slowlane::with_config(&files, &config);
    let fields = &[("X-Slowlane-Website", "205.example"), ("X-Slowlane-Owner", "ann")];
    let verdicts =
        [(); 3].map(|()| slowlane.check("", fields).header("x-slowlane-verdict").map(str::to_owned).unwrap());
    assert_eq!(verdicts, ["pass", "pass", "deny"]);
    let admin = slowlane.admin.to_string();
    let outcome = said(&["why", "--admin", &admin, "website=205.example", "owner=ann"]);
    let blocks: Vec<&str> = outcome.split("\nSLO ").skip(1).collect();
    let ids: Vec<u32> = blocks.iter().map(|block| block[..6].parse().unwrap()).collect();
    assert_eq!(ids, [205].into_iter().chain(added).map(|kind| kind * 1_000 + 1).collect::<Vec<u32>>());
    for (id, block) in ids.iter().zip(&blocks) {
        let used = format!("\n  token-bucket tokens {}", burst(id / 1_000) - 2);
        let says = if *id == 211_001 { "\n  says    deny, retry after " } else { "\n  says    pass" };
        // What one of them refuses, none has counted: two of each are used.
        assert!(block.contains(says) && block.contains(&used), "{block}");
        assert!(block.contains("\n  named   "), "{block}");
    }
    assert!(outcome.contains("\nverdict   deny, retry after "), "{outcome}");
}

#[test]
fn what_a_client_calls_itself_does_nothing_to_a_terminal() {
    let slowlane = Slowlane::with_policy(POLICY);
    let query = "/api/why?website=%3Cscript%3E%1b%5B31m%0a%C2%9B%E2%80%AE%ff&x%1bname=1&=%00";
    for accept in ["text/plain", "application/json"] {
        let outcome = client::get(slowlane.admin, query, &[("Accept", accept)]).body;
        assert!(outcome.contains("<script>"), "{outcome}");
        assert!(
            !outcome.chars().any(|letter| (letter.is_control() && letter != '\n') || letter == '\u{202e}'),
            "{outcome:?}"
        );
    }
    let typed = said(&["why", "--admin", &slowlane.admin.to_string(), "website=a b&c=d+e;\u{1b}é"]);
    assert!(typed.starts_with("request   website=a b&c=d+e;\\u{1b}é\n"), "{typed}");
    // More fields than a request carries, and a long one.
    let many: String = (0..500).map(|number| format!("f{number}=1&")).collect();
    assert_eq!(client::get(slowlane.admin, &format!("/api/why?{many}"), &[]).status, 200);
    let long = format!("/api/why?website={}", "%ff".repeat(10_000));
    assert_eq!(client::get(slowlane.admin, &long, &[]).status, 200);
}

#[test]
fn who_cannot_be_asked_is_told_with_a_remedy() {
    let nobody = own_address().to_string();
    assert_eq!(
        refused(&["why", "--admin", &nobody, "a=b"]),
        format!(
            "cannot query slowlane at {nobody}: Connection refused (os error 111); is slowlane running \
             there? Use --admin to name another address"
        )
    );
    let outcome = refused(&["table", "--admin", "unix:/nowhere/admin.sock", "show"]);
    assert!(
        outcome.starts_with("cannot query slowlane at unix:/nowhere/admin.sock: No such file"),
        "{outcome}"
    );
    // Something else listens there.
    let slowlane = Slowlane::with_policy(POLICY);
    let outcome = refused(&["why", "--admin", &slowlane.http.to_string(), "a=b"]);
    assert!(outcome.ends_with("does not know this request: is that slowlane?"), "{outcome}");
}

const TOKEN: &str = "0123456789abcdef";

#[test]
fn with_a_token_nothing_is_told_without_it() {
    let slowlane = Slowlane::with_config(POLICY, &format!("[admin]\ntoken = \"{TOKEN}\"\n"));
    let bearer = format!("Bearer {TOKEN}");
    for path in ["/metrics", "/api/why?a=b", "/api/table/0000000000000001", "/nowhere", "/healthz/"] {
        for wrong in [&[][..], &[("Authorization", "Bearer 0123456789abcdeF")], &[("Authorization", TOKEN)]] {
            let answer = client::get(slowlane.admin, path, wrong);
            assert_eq!(
                (answer.status, answer.header("www-authenticate")),
                (401, Some("Bearer")),
                "{path} {wrong:?}"
            );
        }
        assert_ne!(client::get(slowlane.admin, path, &[("Authorization", &bearer)]).status, 401, "{path}");
    }
    let show = |headers: &[_]| {
        Client::connect(slowlane.admin).request("POST", "/api/runtime", headers, "show table").status
    };
    assert_eq!([show(&[]), show(&[("Authorization", &bearer)])], [401, 200]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(client::get(slowlane.admin, path, &[]).status, 200, "{path}");
    }
    // The commands take it from the daemon's config, or from a file.
    let (admin, config) = (slowlane.admin.to_string(), slowlane.folder().join("slowlane.toml"));
    let outcome = refused(&["why", "--admin", &admin, "a=b"]);
    assert_eq!(outcome, format!("slowlane at {admin} requires a token: use --token-file or --config"));
    said(&["why", "--admin", &admin, "--config", config.to_str().unwrap(), "a=b"]);
    let file = slowlane.folder().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    said(&["table", "--admin", &admin, "--token-file", file.to_str().unwrap(), "show"]);
    let log = slowlane.process.log().join("\n");
    assert!(!log.contains(TOKEN), "{log}");
}

#[test]
fn no_admin_listens_to_others_without_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    let config = path.to_str().unwrap();
    let start = |admin: &str| {
        fs::write(&path, admin).unwrap();
        let [spop, http] = [own_address().to_string(), own_address().to_string()];
        ran(&["run", "--config", config, "--spop", &spop, "--http", &http])
    };
    for open in [
        "0.0.0.0:0",
        "[::]:0",
        "192.0.2.1:9002",
        "[2001:db8::1]:9002",
        "admin.example:9002",
        "127.0.0.1.example:1",
    ] {
        let text = format!("[admin]\nlisten = [\"127.0.0.1:0\", \"{open}\"]\n");
        let outcome = [format!(
            "{config}:2: admin on {open} is open to others: set a token ([admin] token or token_file), \
             or listen on 127.0.0.1 or unix:/path"
        )];
        assert_eq!((start(&text).code, start(&text).problems), (1, outcome.to_vec()), "{open}");
        fs::write(&path, &text).unwrap();
        assert_eq!(ran(&["check", "--config", config]).problems, outcome, "what is not served is not ok");
    }
    fs::write(&path, "").unwrap();
    let typed = ran(&["run", "--config", config, "--admin", "0.0.0.0:0"]);
    assert!(typed.problems[0].starts_with("admin on 0.0.0.0:0 is open to others"), "{:?}", typed.problems);

    // With a token it works. Errors do not repeat an invalid token.
    for (text, outcome) in [
        ("token = \"short\"", ":2: expected a token of 16 or more ASCII letters"),
        ("token = \"0123456789 abcdef\"", ":2: expected a token of 16 or more ASCII letters"),
        (
            "token = \"0123456789abcdef\"\ntoken_file = \"t\"",
            ":3: [admin] sets both token and token_file: keep one of the two",
        ),
        ("token_file = \"nowhere\"", "nowhere: No such file"),
        ("socket_mode = \"0999\"", ":2: \"0999\": expected a mode like \"0660\""),
        ("socket_mode = \"4755\"", ":2: \"4755\": expected a mode like \"0660\""),
        ("socket_mode = 660", ":2: invalid type: integer `660`, expected a string"),
    ] {
        let Ran { code, problems, .. } = start(&format!("[admin]\n{text}\n"));
        assert_eq!((code, problems.len()), (1, 1), "{problems:?}");
        assert!(problems[0].contains(outcome) && !problems[0].contains("abcdef"), "{problems:?}");
    }
    fs::write(folder.path().join("token"), format!(" {TOKEN}\n")).unwrap();
    fs::write(&path, "[admin]\nlisten = [\"0.0.0.0:0\"]\ntoken_file = \"token\"\n").unwrap();
    let [spop, http] = [own_address().to_string(), own_address().to_string()];
    let mut process = Process::start(
        Command::new(BINARY).args(["run", "--config", config, "--spop", &spop, "--http", &http]),
    );
    let port = process.logged("admin on 0.0.0.0:");
    let admin = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(client::get(admin, "/metrics", &[]).status, 401);
    assert_eq!(client::get(admin, "/metrics", &[("Authorization", &format!("Bearer {TOKEN}"))]).status, 200);
}

#[test]
fn a_unix_socket_is_for_the_group_unless_told_otherwise() {
    for (key, mode) in [("", 0o660), ("socket_mode = \"0600\"\n", 0o600), ("socket_mode = \"777\"\n", 0o777)]
    {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name: &str| folder.path().join(name);
        let config = format!(
            "[admin]\nlisten = [\"unix:{}\"]\nsocket = \"runtime.sock\"\n{key}",
            socket("admin.sock").display()
        );
        fs::write(socket("slowlane.toml"), config).unwrap();
        let [spop, http] = [own_address().to_string(), own_address().to_string()];
        let mut process = Process::start(
            Command::new(BINARY)
                .arg("run")
                .arg("--config")
                .arg(socket("slowlane.toml"))
                .args(["--spop", &spop, "--http", &http]),
        );
        process.logged("admin on unix:");
        for name in ["admin.sock", "runtime.sock"] {
            assert_eq!(fs::metadata(socket(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
        }
        // And it serves as any other.
        let admin = format!("unix:{}", socket("admin.sock").display());
        assert!(said(&["table", "show", "--admin", &admin]).starts_with("# table: slowlane, "));
        assert!(said(&["top", "--once", "--admin", &admin]).contains("requests/s: pass"));
        let other = format!("unix:{}", socket("runtime.sock").display());
        let outcome = refused(&["top", "--admin", &other]);
        assert_eq!(
            outcome,
            format!("the server at {other} does not speak HTTP: is this the address of [admin] listen?")
        );
        process.signal("TERM");
        assert!(process.wait().success());
        assert!(!socket("admin.sock").exists() && !socket("runtime.sock").exists());
    }
}

#[test]
fn a_web_page_can_set_nothing() {
    let slowlane = Slowlane::with_policy(POLICY);
    let clear = |headers: &[_]| {
        Client::connect(slowlane.admin)
            .request("POST", "/api/runtime", headers, "clear table slowlane")
            .status
    };
    assert_eq!(clear(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(clear(&[("Origin", "null")]), 403);
    assert_eq!(clear(&[]), 200);
    assert_eq!(client::get(slowlane.admin, "/api/runtime", &[]).status, 405);
}
