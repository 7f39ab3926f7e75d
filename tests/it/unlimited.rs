//! `rate=unlimited`: the built-in policy, the installed one, and any other SLO that counts and never throttles.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::{Ran, ran};
use crate::support::client;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, own_address, project};

/// SLO 0 and the SLO of a website are unlimited; the owner's SLO is not, and a second website asks for it.
const POLICY: [(&str, &str); 3] = [
    (
        "slo.map",
        "0 rate=unlimited\n2001 rate=unlimited\n2002 rate=unlimited also=owner\n1001 burst=1 rate=1/d max_delay=1s\n",
    ),
    ("website.map", "open.example 2001\nshared.example 2002\n"),
    ("owner.map", "acme 1001\n"),
];

/// The largest cost of a request: any rate would be used up by a few of them.
const DEAR: (&str, &str) = ("X-Slowlane-Cost", "1000000");

#[test]
fn without_a_policy_nothing_is_throttled_and_everything_counted() {
    let (http, admin) = (own_address(), own_address());
    let mut command = Command::new(BINARY);
    command.args(["run", "--spop", &own_address().to_string()]);
    command.args(["--http", &http.to_string(), "--admin", &admin.to_string()]);
    let mut process = Process::start(&mut command);
    process.logged("serving the built-in policy: 1 SLO; no maps");
    process.logged("admin on ");
    for _ in 0..5 {
        let answer = client::get(http, "/check?ratelimit=on", &[DEAR]);
        assert_eq!((answer.status, answer.header("x-slowlane-verdict")), (204, Some("pass")));
        assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
    }
    let rows = ran(&["table", "show", "--admin", &admin.to_string()]).out;
    assert!(rows.contains(" http_req_cnt=5000000 "), "{rows}");
    let slo = &status(admin)["slos"][0];
    assert_eq!(
        (&slo["law"], &slo["objective"], &slo["rate"], &slo["rate_per_s"]),
        (&json!("unlimited"), &json!("unlimited"), &json!("unlimited"), &Value::Null)
    );
    let outcome = ran(&["why", "--admin", &admin.to_string(), "source=192.0.2.1"]).out;
    for part in [" rate=unlimited\n", "\n  unlimited every request passes and is counted\n  says    pass\n"] {
        assert!(outcome.contains(part), "{part} in\n{outcome}");
    }
    let outcome = ran(&["top", "--once", "--admin", &admin.to_string()]).out;
    let line = outcome.lines().find(|line| line.contains(" all together")).expect("a line of SLO 0");
    assert!(line.contains(" unlimited "), "{outcome}");
}

fn status(admin: std::net::SocketAddr) -> Value {
    serde_json::from_str(&client::get(admin, "/api/status", &[]).body).unwrap()
}

#[test]
fn any_slo_may_be_unlimited_and_another_still_holds() {
    let slowlane = Slowlane::with_policy(&POLICY);
    let ask = |website: &str, owner: &str| {
        slowlane.check("", &[("X-Slowlane-Website", website), ("X-Slowlane-Owner", owner), DEAR]).status
    };
    assert_eq!([(); 3].map(|()| ask("open.example", "acme")), [204; 3]);
    assert_eq!([(); 3].map(|()| ask("free.example", "nobody")), [204; 3]);
    assert_eq!([(); 2].map(|()| ask("shared.example", "acme")), [403; 2], "the owner's SLO counts as well");
    let passed =
        |slo: u16| slowlane.metric("slowlane_verdicts_total", &format!("slo=\"{slo}\",verdict=\"pass\""));
    eventually("the verdicts are counted", || (passed(2001) == 3.0).then_some(()));
    // An edit to a limit is in force at once, and none of the free requests is held against the client.
    slowlane.replace(
        "slo.map",
        &POLICY[0].1.replace("2001 rate=unlimited", "2001 burst=1 rate=1/d max_delay=1s"),
    );
    let one = [("X-Slowlane-Website", "open.example")];
    eventually("the limit is in force", || {
        client::get(slowlane.admin, "/api/why?website=open.example", &[])
            .body
            .contains("burst=1")
            .then_some(())
    });
    assert_eq!([(); 2].map(|()| slowlane.check("", &one).status), [204, 403]);
}

#[test]
fn check_and_replay_say_that_nothing_is_throttled() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy");
    fs::create_dir(&policy).unwrap();
    fs::write(policy.join("slo.map"), "0 rate=unlimited\n").unwrap();
    let policy = policy.to_str().unwrap();
    let Ran { code, out, .. } = ran(&["check", "--policy", policy]);
    let expected =
        format!("ok: policy {policy}: 1 SLO; no maps; no SLO has a limit, so nothing is throttled\n");
    assert_eq!((code, out), (0, expected));
    let log = folder.path().join("access.log");
    let line = "192.0.2.1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\"\n";
    fs::write(&log, line.repeat(20_000)).unwrap();
    let outcome = ran(&["replay", "--policy", policy, log.to_str().unwrap()]).out;
    let row: Vec<&str> =
        outcome.lines().find(|line| line.starts_with("0 ")).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["0", "unlimited", "unlimited", "20000", "0", "0.0"], "{outcome}");
}

/// What an installation puts into force: the package, the image, and the steps in the unit's head.
#[test]
fn what_is_installed_throttles_nothing() {
    let says = |file: &str, line: &str| {
        let text = fs::read_to_string(project(file)).unwrap();
        assert!(text.contains(line), "{file} has no {line:?}");
    };
    says("Dockerfile", "echo '0 rate=unlimited' > policy/slo.map");
    says("systemd/slowlane.service", "echo '0 rate=unlimited' > /etc/slowlane/policy/slo.map");
    // As packaging/build-deb makes comments of the examples.
    let script = fs::read_to_string(project("packaging/build-deb")).unwrap();
    let edit = script
        .lines()
        .find_map(|line| line.trim().strip_prefix("sed -E \"/^(#"))
        .expect("a line that edits maps");
    let (edit, _) = edit.split_once(';').unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(project("haproxy/maps")).unwrap().map(|file| file.unwrap().path()) {
        let edited = Command::new("sed").arg("-E").arg(format!("/^(#{edit}")).arg(&file).output().unwrap();
        assert!(edited.status.success(), "{edited:?}");
        fs::write(folder.path().join(file.file_name().unwrap()), edited.stdout).unwrap();
    }
    let Ran { code, out, .. } = ran(&["check", "--policy", folder.path().to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(
        out.contains(": 1 SLO; source+website.map 0 lines") && out.ends_with("so nothing is throttled\n"),
        "{out}"
    );
}
