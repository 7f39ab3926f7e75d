//! `slowlane config haproxy --delivery peers` prints rules for the keys of a policy, and the real HAProxys accept them.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::cli::ran;
use crate::support::printed::PEERS;
use crate::support::project;

/// A policy directory with these files.
fn policy(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// What is printed for a version of HAProxy, and the policy in a directory.
fn printed(version: &str, policy: &TempDir, more: &[&str]) -> String {
    let dir = policy.path().to_str().unwrap();
    let args = ["config", "haproxy", "--version", version, "--delivery", "peers", "--policy", dir];
    let ran = ran(&[&args[..], more].concat());
    assert_eq!((ran.code, ran.problems.as_slice()), (0, &[] as &[String]), "{more:?}");
    ran.out
}

/// The names of the tables in a configuration, in order.
fn tables(text: &str) -> Vec<&str> {
    let sections = text.lines().filter_map(|line| line.strip_prefix("backend slowlane_"));
    sections.filter_map(|section| section.split(' ').next()).collect()
}

const SLO_MAP: &str =
    "0 burst=1000 rate=1000/s\n1001 burst=9 rate=9/s\n2001 burst=9 rate=9/s\n5001 burst=9 rate=9/s\n";
const SHOP: (&str, &str) = ("source+website.map", "192.0.2.7+shop.example 5001\n");
const WEBSITE: (&str, &str) = ("website.map", "shop.example 2001\n");
const OWNER: (&str, &str) = ("owner.map", "acme 1001\n");

#[test]
fn every_lookup_with_a_map_has_its_tables() {
    let three = policy(&[("slo.map", SLO_MAP), SHOP, WEBSITE, ("source.map", "")]);
    let text = printed("2.6", &three, &[]);
    let names =
        ["source.website", "website", "all"].map(|name| [format!("pace_{name}"), format!("limits_{name}")]);
    assert_eq!(tables(&text), names.as_flattened());
    assert!(!text.contains("tune.stick-counters"), "three keys need no more counters than there are");

    let four = policy(&[("slo.map", SLO_MAP), SHOP, WEBSITE, OWNER]);
    assert!(printed("3.2", &four, &[]).contains("    tune.stick-counters 4\n"));
    let dir = four.path().to_str().unwrap();
    let refused = ran(&["config", "haproxy", "--version", "2.6", "--delivery", "peers", "--policy", dir]);
    let expected = "HAProxy 2.6 counts a request under at most 3 keys, and this policy has more: use \
                    another --delivery, or --version 2.8 or later";
    assert_eq!((refused.code, refused.problems.join("\n").as_str()), (1, expected));
}

#[test]
fn a_policy_without_a_limit_has_the_tables_of_the_shipped_file() {
    let none = policy(&[("slo.map", "0 rate=unlimited\n")]);
    let text = printed("3.2", &none, &[]);
    let shipped = fs::read_to_string(project("haproxy/haproxy-3.2-peers.cfg")).unwrap();
    assert_eq!(text.split_once('\n').unwrap().1, shipped);
    assert_eq!(tables(&text), ["pace", "limits"]);
}

#[test]
fn sources_of_one_customer_share_a_key() {
    let folder = policy(&[("slo.map", SLO_MAP), SHOP, ("source.map", "192.0.2.0/24 3001\n")]);
    fs::write(folder.path().join("slo.map"), format!("{SLO_MAP}3001 burst=1 rate=1/s\n")).unwrap();
    let toml = "[policy]\ndir = '.'\nipv6_prefix = 56\n[policy.ipv6_prefixes]\n3 = 48\n";
    fs::write(folder.path().join("slowlane.toml"), toml).unwrap();
    let toml = folder.path().join("slowlane.toml").display().to_string();
    let ran = ran(&["config", "haproxy", "--version", "3.2", "--delivery", "peers", "--config", &toml]);
    let rules = ran.out.lines().filter_map(|line| line.split("src,ipmask").nth(1));
    let mut masks: Vec<&str> = rules.map(|rest| &rest[.."(32,56)".len()]).collect();
    masks.dedup();
    assert_eq!(masks, ["(32,56)", "(32,48)"]);
}

#[test]
fn every_haproxy_takes_the_rules_of_several_keys_without_a_warning() {
    for (version, number, _, main) in PEERS {
        let Some(binary) = version.binary() else { continue };
        let mut files = vec![("slo.map", SLO_MAP), SHOP, WEBSITE];
        if number != "2.6" {
            files.extend([OWNER, ("source+owner.map", "192.0.2.7+acme 1001\n")]);
        }
        let (folder, dir) = (policy(&files), tempfile::tempdir().unwrap());
        for more in [&[][..], &["--ratelimit"]] {
            let path = dir.path().join(format!("{}", more.len())).display().to_string();
            printed(number, &folder, &[more, &["--dir", &path]].concat());
            let output = Command::new(&binary)
                .args(["-dW", "-c", "-f"])
                .arg(format!("{path}/{main}"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{number}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn over_tls_slowlane_is_a_server_among_the_peers() {
    let folder = policy(&[("slo.map", SLO_MAP), WEBSITE]);
    let text = printed("3.2", &folder, &["--tls"]);
    let line = "    server slowlane 127.0.0.1:9003 ssl verify required verifyhost slowlane.example \
                ca-file /etc/slowlane/tls/ca.pem crt /etc/slowlane/tls/haproxy.pem\n";
    assert!(text.contains(line) && !text.contains("    peer slowlane"), "{text}");
}
