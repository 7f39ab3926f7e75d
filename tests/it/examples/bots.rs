//! The example `bots`: crawlers by their User-Agent, programs by their JA3, networks by their ASN.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use slowlane_core::base::{Request, Value};
use slowlane_core::policy::{Batch, Derivation, Layout, Method, Policy};

use super::stage::{Stage, in_each_haproxy};
use crate::support::tls::Authority;
use crate::support::{eventually, project};

/// The status that curl gets with these flags.
fn curl(stage: &Stage, flags: &[&str]) -> u16 {
    let url = format!("https://{}/", stage.at(8080));
    let mut command = Command::new("curl");
    command.args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}", &url]);
    let output = command.args(flags).output().unwrap();
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

/// How many of eight requests pass.
fn passed(stage: &Stage, flags: &[&str]) -> usize {
    (0..8).filter(|_| curl(stage, flags) == 200).count()
}

/// The JA3 of the last request in the log of HAProxy.
fn last_ja3(stage: &Stage) -> String {
    eventually("the request is in the log", || {
        let log = stage.proxy_log();
        let line = log.iter().rfind(|line| line.contains("ja3="))?;
        Some(line.split_once("ja3=")?.1.split(' ').next()?.to_owned())
    })
}

#[test]
fn bots_are_told_by_their_user_agent_their_ja3_and_their_network() {
    in_each_haproxy("bots", |mut stage| {
        let authority = Authority::new("servers");
        let pair = authority.pair("shop.example");
        let [cert, key] = [&pair.cert, &pair.key].map(|path| fs::read_to_string(path).unwrap());
        fs::write(stage.own_folder().join("site.pem"), cert + &key).unwrap();
        stage.edit("maps/asn.map", "198.51.100.0/24", "127.9.1.0/24");
        stage.start();

        assert_eq!(passed(&stage, &[]), 8, "a browser");
        assert_eq!(passed(&stage, &["--user-agent", "Mozilla/5.0 (compatible; GPTBot/1.1)"]), 5);
        let elsewhere = ["--interface", "127.9.3.1", "--user-agent", "gptbot"];
        assert_eq!(passed(&stage, &elsewhere), 0, "one bucket, whatever its addresses");
        let comma = ["--user-agent", "GPTBot/1.1 (KHTML, like Gecko)"];
        assert_eq!(passed(&stage, &comma), 0, "the whole User-Agent counts");
        assert_eq!(passed(&stage, &["--user-agent", "OAI-SearchBot/1.0"]), 0, "another name of its owner");
        assert_eq!(
            passed(&stage, &["--user-agent", "python-requests/2.31"]),
            5,
            "another name, another bucket"
        );
        assert_eq!(passed(&stage, &["--user-agent", "bingbot"]), 8, "it has a name, and no SLO");
        assert_eq!(passed(&stage, &["--interface", "127.9.1.1"]), 4, "a network");
        assert_eq!(passed(&stage, &["--interface", "127.9.1.2"]), 0, "the same network");
        let lies = ["--interface", "127.9.1.3", "--header", "asn: 1", "--header", "X-Slowlane-Asn: 1"];
        assert_eq!(passed(&stage, &lies), 0, "a client does not choose its ASN");

        let program =
            ["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256"];
        assert_eq!(curl(&stage, &[]), 200);
        let usual = last_ja3(&stage);
        assert_eq!(curl(&stage, &program), 200);
        let ja3 = eventually("its JA3 is in the log", || {
            let ja3 = last_ja3(&stage);
            (ja3 != usual).then_some(ja3)
        });
        assert!(
            [&usual, &ja3].iter().all(|ja3| ja3.len() == 32 && ja3.chars().all(|c| c.is_ascii_hexdigit()))
        );
        stage.edit("maps/ja3.map", "e7d705a3286e19ea42f587b344ee6865", &ja3);
        eventually("the program is refused", || (curl(&stage, &program) == 429).then_some(()));
        assert_eq!(curl(&stage, &[]), 200, "another program");
    });
}

/// Lines of the public tables, as they stand there.
const TABLE: &str = "1.0.0.0\t1.0.0.255\t13335\tUS\tCLOUDFLARENET\n1.0.1.0\t1.0.3.255\t0\tNone\tNot routed\n\
                     5.10.64.0\t5.10.66.127\t36351\tUS\tSOFTLAYER, Inc\n\
                     2001:200::\t2001:200:5ff:ffff:ffff:ffff:ffff:ffff\t2500\tJP\tWIDE-BB WIDE Project\n";
const CSV: &str = "1.0.0.0,1.0.0.255,13335,\"Cloudflare, Inc.\"\n";
const DUMP: &str =
    "; IP-ASN32-DAT file\n; Original file : <Path to a rib file>\n1.0.0.0/24\t13335\n2001:200::/32\t2500\n";

/// The map of a table, and the status of the script.
fn networks(table: &str, arguments: &[&str]) -> (String, bool) {
    let mut script = Command::new("python3");
    let script = script.arg(project("examples/bots/networks.py")).args(arguments);
    let mut script =
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    script.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    let output = script.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn a_map_of_networks_is_made_of_a_public_table() {
    let asns = "1.0.0.0/24 13335\n5.10.64.0/23 36351\n5.10.66.0/25 36351\n2001:200::/38 2500\n2001:200:400::/39 2500\n";
    assert_eq!(networks(TABLE, &[]), (asns.into(), true));
    let countries =
        "1.0.0.0/24 US\n5.10.64.0/23 US\n5.10.66.0/25 US\n2001:200::/38 JP\n2001:200:400::/39 JP\n";
    assert_eq!(networks(TABLE, &["4"]), (countries.into(), true));
    assert_eq!(networks(CSV, &[]), ("1.0.0.0/24 13335\n".into(), true));
    assert_eq!(networks(DUMP, &[]), ("1.0.0.0/24 13335\n2001:200::/32 2500\n".into(), true));
    for broken in ["", "# all\n", "1.0.0.0\t1.0.0.255\n", "1.0.0.0\t2001:200::\t1\n", "<html>\n"] {
        assert!(!networks(broken, &[]).1, "{broken}");
    }

    let map = |path: &Path| match path.to_str() {
        Some("asn.map") => Ok(asns.into()),
        Some("slo.map") => Ok("0 rate=unlimited\n6001 rate=unlimited\n".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let by_asn = Derivation::map("source", "asn.map".into(), Method::Ip);
    let layout =
        Layout::default().with_derived("asn", by_asn).unwrap().with_type(6, vec!["asn".into()]).unwrap();
    let policy = Policy::parse(Path::new(""), &layout, map).unwrap();
    for (source, asn) in
        [("5.10.66.127", Some("36351")), ("5.10.66.128", None), ("2001:200:5ff::1", Some("2500"))]
    {
        let (mut batch, mut request) = (Batch::of(&policy), Request::new());
        request.push(b"source", Value::Text(source.as_bytes()));
        batch.push(&request);
        let found = batch.fields(0).find(|(name, _)| *name == b"asn").map(|(_, value)| value);
        assert_eq!(found, asn.map(|asn| Value::Text(asn.as_bytes())), "{source}");
    }
}
