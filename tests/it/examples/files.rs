//! Examples for programs that this machine may lack: each file is loaded by what is there, and its references are followed.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::ran;
use slowlane::proxy::envoy::FAULT_HEADERS;

use crate::support::haproxy::Version;
use crate::support::{project, skipped};

/// The documents of a YAML file. None, and a skip, without a parser on this machine.
pub(super) fn yaml(path: &Path) -> Option<Vec<Value>> {
    const PARSE: &str =
        "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    if !Command::new("python3")
        .args(["-c", "import yaml"])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        skipped("python3 with yaml cannot be had on this machine: the YAML of examples is not parsed");
        return None;
    }
    let output = Command::new("python3").args(["-c", PARSE]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The only document of a file of an example.
fn document(name: &str, file: &str) -> Option<Value> {
    let mut documents = yaml(&project("examples").join(name).join(file))?;
    assert_eq!(documents.len(), 1, "{file}");
    documents.pop()
}

/// HAProxy 3.2 and 3.4 take a file in a folder of the test.
pub(super) fn haproxy_takes(folder: &Path) {
    for version in [Version::V3_2, Version::V3_4] {
        let Some(binary) = version.binary() else {
            skipped(&format!("HAProxy {version:?} cannot be had on this machine (examples)"));
            continue;
        };
        let mut command = Command::new(binary);
        command.current_dir(folder).env("SLOWLANE", "127.0.0.1").args(["-dW", "-c", "-f", "haproxy.cfg"]);
        let output = command.output().unwrap();
        let outcome = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        assert!(output.status.success(), "{outcome}");
    }
}

/// It is without a mistake, and throttles every source. With the website maps alone, another host would be free.
pub(super) fn policy_is_sound(path: &Path) {
    let outcome = ran(&["check", "--policy", path.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{}", path.display());
    let cases = path.join("policy.test");
    let any = ["source=192.0.2.1", "source=2001:db8::1"];
    fs::write(&cases, any.map(|request| format!("{request} -> 3001\n")).concat()).unwrap();
    let outcome = ran(&["test", "--policy", path.to_str().unwrap(), cases.to_str().unwrap()]);
    assert_eq!((outcome.code, outcome.problems), (0, vec![]), "{}", path.display());
}

/// Forwarded headers are listed, and every header of slowlane's is removed.
#[test]
fn the_files_for_traefik_are_sound() {
    let (Some(fixed), Some(dynamic)) =
        (document("traefik", "traefik.yml"), document("traefik", "dynamic.yml"))
    else {
        return;
    };
    assert_eq!(fixed["providers"]["file"]["filename"], "dynamic.yml");
    let http = &dynamic["http"];
    assert_eq!(http["routers"]["app"]["middlewares"], serde_json::json!(["own-headers", "slowlane"]));
    let asks = &http["middlewares"]["slowlane"]["forwardAuth"];
    assert!(asks["address"].as_str().unwrap().starts_with("http://127.0.0.1:9001/check?deny=429"));
    assert_eq!(asks["trustForwardHeader"], false);
    assert_eq!(asks["authRequestHeaders"].as_array().unwrap().len(), 4);
    assert_eq!(http["services"]["app"]["loadBalancer"]["servers"][0]["url"], "http://127.0.0.1:8000");
}

/// The fields are set before slowlane is asked, and removed behind it.
#[test]
fn the_file_for_envoy_is_sound() {
    let Some(envoy) = document("envoy", "envoy.yaml") else { return };
    let listener = &envoy["static_resources"]["listeners"][0];
    let filters = &listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
    let names: Vec<&str> =
        filters.as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap()).collect();
    let kinds: Vec<&str> = names.iter().map(|name| name.rsplit('.').next().unwrap()).collect();
    assert_eq!(kinds, ["header_mutation", "ext_authz", "header_mutation", "router"]);
    let asks = &filters[1]["typed_config"];
    assert_eq!(
        (&asks["http_service"]["path_prefix"], &asks["failure_mode_allow"]),
        (&"/check/200".into(), &true.into())
    );
    let clusters = envoy["static_resources"]["clusters"].as_array().unwrap();
    let ports = clusters.iter().map(|cluster| {
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
        endpoint["address"]["socket_address"]["port_value"].as_u64().unwrap()
    });
    assert_eq!(ports.collect::<Vec<_>>(), [9001, 8000, 9005]);
}

/// Whatever a client says to the fault filter is removed before slowlane speaks to it.
#[test]
fn the_file_for_the_rate_limit_service_is_sound() {
    let Some(envoy) = document("envoy-ratelimit", "envoy.yaml") else { return };
    let listener = &envoy["static_resources"]["listeners"][0];
    let filters = &listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"];
    let names: Vec<&str> =
        filters.as_array().unwrap().iter().map(|filter| filter["name"].as_str().unwrap()).collect();
    let kinds: Vec<&str> = names.iter().map(|name| name.rsplit('.').next().unwrap()).collect();
    assert_eq!(kinds, ["header_mutation", "ratelimit", "fault", "header_mutation", "router"]);
    let removed = filters[0]["typed_config"]["mutations"]["request_mutations"].as_array().unwrap();
    let removed: Vec<&str> = removed.iter().map(|mutation| mutation["remove"].as_str().unwrap()).collect();
    assert_eq!(removed, FAULT_HEADERS);
}

/// A folder with the files of the compose example, as its containers see them.
fn composed(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in files {
        let text = fs::read_to_string(project("examples/compose").join(from)).unwrap();
        fs::write(folder.path().join(to), text).unwrap();
    }
    folder
}

/// What a file says, without its comments.
fn said(path: &str) -> Vec<String> {
    let text = fs::read_to_string(project(path)).unwrap();
    let lines = text.lines().map(|line| line.split(" #").next().unwrap().trim_end());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// A mend of the shipped file is a mend of its copy.
#[test]
fn the_upstream_of_compose_is_the_shipped_one_with_another_address() {
    let shipped = said("nginx/slowlane-upstream.conf").join("\n");
    assert!(shipped.contains("server 127.0.0.1:9001 "), "{shipped}");
    let composed = said("examples/compose/slowlane-upstream.conf").join("\n");
    assert_eq!(composed, shipped.replace("127.0.0.1:9001", "slowlane1:9001"));
}

#[test]
fn the_policy_of_compose_is_sound() {
    let maps = ["slo.map", "source.map"].map(|name| (format!("maps/{name}"), name));
    let folder = composed(&maps.each_ref().map(|(from, to)| (from.as_str(), *to)));
    policy_is_sound(folder.path());
}

#[test]
fn every_file_that_compose_mounts_is_there() {
    let Some(compose) = document("compose", "compose.yaml") else { return };
    let services = compose["services"].as_object().unwrap();
    assert_eq!(services.len(), 9, "{:?}", services.keys());
    let mut mounts = 0;
    for (name, service) in services {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(project("examples/compose").join(from).exists(), "{name}: {from}");
            mounts += 1;
        }
        for other in service["depends_on"].as_array().into_iter().flatten() {
            assert!(services.contains_key(other.as_str().unwrap()), "{name}: {other}");
        }
    }
    assert!(mounts > 10, "{mounts}");
    for file in ["prometheus.yml", "grafana/datasource.yml", "grafana/dashboards.yml"] {
        document("compose", file);
    }
}

#[test]
fn the_programs_of_compose_take_their_files() {
    let spoe = "../../haproxy/spoe-slowlane.conf";
    let folder = composed(&[("haproxy.cfg", "haproxy.cfg"), (spoe, "spoe-slowlane.conf")]);
    let config = folder.path().join("haproxy.cfg");
    let text = fs::read_to_string(&config).unwrap();
    assert!(text.contains("/usr/local/etc/haproxy/spoe-slowlane.conf") && text.contains("app:80"));
    fs::write(&config, text.replace("/usr/local/etc/haproxy/", "")).unwrap();
    haproxy_takes(folder.path());

    let files = [
        ("nginx.conf", "nginx.conf"),
        ("slowlane-upstream.conf", "slowlane-upstream.conf"),
        ("../../nginx/slowlane.conf", "slowlane.conf"),
    ];
    let folder = composed(&files);
    // No container, no name of one.
    for (file, name) in [("nginx.conf", "http://app:80"), ("slowlane-upstream.conf", "slowlane1:9001")] {
        let path = folder.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(name), "{file}: no {name}");
        let own = folder.path().join("nginx.pid");
        let text = text.replace("app:80", "127.0.0.1:80").replace("slowlane1:", "127.0.0.1:");
        fs::write(&path, text.replace("/run/nginx.pid", own.to_str().unwrap())).unwrap();
    }
    let mut nginx = Command::new("nginx");
    nginx
        .arg("-t")
        .arg("-p")
        .arg(folder.path())
        .args(["-e", "stderr", "-c"])
        .arg(folder.path().join("nginx.conf"));
    let output = nginx.output().unwrap();
    let outcome = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !outcome.contains("[warn]"), "{outcome}");
}
