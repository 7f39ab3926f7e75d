//! The example `bots`: crawlers by their User-Agent, programs by their JA3, networks by their ASN.

use std::fs;
use std::process::Command;

use super::stage::{Stage, in_each_haproxy};
use crate::support::eventually;
use crate::support::tls::Authority;

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
        stage.edit("asn.map", "198.51.100.0/24", "127.9.1.0/24");
        stage.start();

        assert_eq!(passed(&stage, &[]), 8, "a browser");
        assert_eq!(passed(&stage, &["--user-agent", "Mozilla/5.0 (compatible; GPTBot/1.1)"]), 5);
        let elsewhere = ["--interface", "127.9.3.1", "--user-agent", "gptbot"];
        assert_eq!(passed(&stage, &elsewhere), 0, "one bucket, whatever its addresses");
        let comma = ["--user-agent", "GPTBot/1.1 (KHTML, like Gecko)"];
        assert_eq!(passed(&stage, &comma), 0, "the whole User-Agent counts");
        assert_eq!(
            passed(&stage, &["--user-agent", "python-requests/2.31"]),
            5,
            "another name, another bucket"
        );
        assert_eq!(passed(&stage, &["--user-agent", "bingbot"]), 8, "it has a name, and no SLO");
        assert_eq!(passed(&stage, &["--interface", "127.9.1.1"]), 4, "a network");
        assert_eq!(passed(&stage, &["--interface", "127.9.1.2"]), 0, "the same network");

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
