//! The files for ingress controllers: their lines run in HAProxy and Envoy, where the controllers write them.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slowlane::proxy::envoy::FAULT_HEADERS;

use super::kubernetes::{list, objects, of_kind};
use super::stage::is_there;
use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::{Version, replace};
use crate::support::process::Process;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address, project, skipped, wheels};

const POLICY: [(&str, &str); 2] = [
    ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=1/s\n2002 burst=1 rate=1/m law=token-bucket\n"),
    ("website.map", "paced.example 2001\nrefused.example 2002\n"),
];

/// A file of haproxytech/kubernetes-ingress around its snippets.
const HAPROXYTECH: &str = "
global
    default-path config
defaults haproxytech
    timeout connect 5s
    timeout client 50s
    timeout server 50s
frontend http from haproxytech
    mode http
    bind {address}
    http-request set-var(txn.base) base
{frontend}
    use_backend app
backend app from haproxytech
    mode http
    server app1 {app}
";

/// A file of jcmoraisjr/haproxy-ingress around its snippets.
const HAPROXY_INGRESS: &str = "
defaults
    option redispatch
    option dontlognull
    option http-keep-alive
    timeout connect 5s
    timeout client 50s
    timeout server 50s
{sections}
backend app
    mode http
    server app1 {app}
frontend _front_http
    mode http
    bind {address}
    http-request set-var(req.path) path
{frontend}
    use_backend app
";

/// Its refusals and delays reach the client, and without slowlane, requests pass.
#[test]
fn the_controllers_of_haproxy_enforce_the_verdicts_of_slowlane() {
    let Some([tech, ingress]) = objects(["haproxytech-values.yaml", "haproxy-ingress-values.yaml"]) else {
        return;
    };
    for version in [Version::V3_2, Version::V3_4] {
        enforces(version, HAPROXYTECH, &tech[0]["controller"]);
    }
    for version in [Version::V2_6, Version::V3_0] {
        enforces(version, HAPROXY_INGRESS, &ingress[0]["controller"]);
    }
}

fn enforces(version: Version, file: &str, values: &Value) {
    let Some(binary) = version.binary() else {
        return skipped(&format!("HAProxy {version:?} cannot be had on this machine (kubernetes)"));
    };
    let (slowlane, app, address) = (Slowlane::with_policy(&POLICY), Backend::start(), own_address());
    let folder = tempfile::tempdir().unwrap();
    let at_home = |text: &str| {
        // Values of Helm are templates.
        assert!(!text.contains("{{"), "{text}");
        let text = text.replace("/etc/slowlane/", &format!("{}/", folder.path().display()));
        let text = text.replace("slowlane.slowlane.svc.cluster.local:9000", &slowlane.spop.to_string());
        text.replace("timeout check   250ms", "timeout check   5s")
    };
    let value = |pointer| at_home(values.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
    let frontend = value("/config/frontend-config-snippet") + &value("/config/config-frontend-late");
    let file = file.replace("{address}", &address.to_string()).replace("{app}", &app.address.to_string());
    let file = file.replace("{frontend}", &frontend).replace("{sections}", &value("/config/config-sections"));
    fs::write(folder.path().join("haproxy.cfg"), file).unwrap();
    fs::write(folder.path().join("haproxy-aux.cfg"), value("/auxiliaryConfig")).unwrap();
    let spoe = fs::read_to_string(project("haproxy/spoe-slowlane.conf")).unwrap();
    let spoe = replace(&spoe, "timeout processing 100ms", "timeout processing 5s");
    fs::write(folder.path().join("spoe-slowlane.conf"), spoe).unwrap();
    let mut command = Command::new(binary);
    command.current_dir(folder.path()).args(["-db", "-dW", "-f", "haproxy.cfg", "-f", "haproxy-aux.cfg"]);
    let mut haproxy = Process::start(&mut command);
    eventually("HAProxy listens", || {
        assert!(haproxy.is_running(), "{}", haproxy.log().join("\n"));
        TcpStream::connect(address).ok()
    });
    obeys(address, slowlane, &[]);
}

/// A proxy delays, refuses, and lets requests pass without slowlane. Each request has these headers.
fn obeys(proxy: SocketAddr, mut slowlane: Slowlane, headers: &[(&str, &str)]) {
    let ask = |website| {
        let headers = [&[("Host", website)][..], headers].concat();
        Client::connect(proxy).request("GET", "/", &headers, "")
    };
    let started = Instant::now();
    assert_eq!([(); 3].map(|()| ask("paced.example").status), [200; 3]);
    assert!(started.elapsed() >= Duration::from_millis(1_900), "the third has waited for its slot");
    assert_eq!(ask("refused.example").status, 200);
    let refused = ask("refused.example");
    assert!(refused.status == 429 && refused.header("retry-after").is_some(), "{refused:?}");
    slowlane.kill();
    assert_eq!(ask("refused.example").status, 200);
}

/// Envoy with the filters and the virtual host that Istio is told to add to.
const ENVOY: &str = r#"
static_resources:
  listeners:
    - address: {listen}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: www
                http_filters: {filters}
                route_config:
                  virtual_hosts: [{host}]
  clusters:
    - name: app
      load_assignment:
        cluster_name: app
        endpoints: [{ lb_endpoints: [{ endpoint: { address: {app} } }] }]
    - name: outbound|9005||slowlane.slowlane.svc.cluster.local
      load_assignment:
        cluster_name: slowlane
        endpoints: [{ lb_endpoints: [{ endpoint: { address: {agent} } }] }]
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
"#;

/// The filters for Istio, in Envoy itself. No client has a say in its delay.
#[test]
fn the_gateway_of_istio_enforces_the_verdicts_of_slowlane() {
    let Some([istio, gateway, contour]) = objects(["istio.yaml", "envoy-gateway.yaml", "contour.yaml"])
    else {
        return;
    };
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let router = json!({ "name": "router", "typed_config": { "@type": router } });
    let mut filters = vec![router];
    let route = json!({ "match": { "prefix": "/" }, "route": { "cluster": "app" } });
    let mut host = json!({ "name": "all", "domains": ["*"], "routes": [route] });
    for patch in list(&istio[0], "/spec/configPatches").iter().map(|patch| &patch["patch"]) {
        match patch["operation"].as_str().unwrap() {
            "INSERT_FIRST" => filters.insert(0, patch["value"].clone()),
            "INSERT_BEFORE" => filters.insert(filters.len() - 1, patch["value"].clone()),
            _ => host.as_object_mut().unwrap().extend(patch["value"].as_object().unwrap().clone()),
        }
    }
    let names: Vec<&str> = filters.iter().map(|filter| filter["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["slowlane.own_headers", "slowlane.ratelimit", "slowlane.delay", "router"]);
    assert_eq!(gateway[3]["spec"]["jsonPatches"][0]["operation"]["value"], filters[2]);
    let removed = list(&filters[0], "/typed_config/mutations/request_mutations");
    let removed: Vec<&Value> = removed.iter().map(|mutation| &mutation["remove"]).collect();
    assert_eq!(removed, FAULT_HEADERS);
    assert_eq!(gateway[0]["spec"]["headers"]["earlyRequestHeaders"]["remove"], json!(FAULT_HEADERS));
    let of_contour = contour[1]["data"]["contour.yaml"].as_str().unwrap();
    for header in FAULT_HEADERS {
        assert!(of_contour.contains(&format!("- {header}\n")), "{header}");
    }

    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let (app, folder, [listen, agent]) =
        (Backend::start(), tempfile::tempdir().unwrap(), [(); 2].map(|()| own_address()));
    let slowlane = Slowlane::with_config(&POLICY, &format!("[grpc]\nlisten = [\"{agent}\"]\n"));
    let mut config = ENVOY.replace("{filters}", &json!(filters).to_string());
    config = config.replace("{host}", &host.to_string());
    for (name, at) in [("{listen}", listen), ("{app}", app.address), ("{agent}", agent)] {
        let address = json!({ "address": at.ip().to_string(), "port_value": at.port() });
        config = config.replace(name, &json!({ "socket_address": address }).to_string());
    }
    fs::write(folder.path().join("envoy.yaml"), config).unwrap();
    let mut command =
        Command::new(if wheels().join("envoy").exists() { wheels().join("envoy") } else { "envoy".into() });
    command.current_dir(folder.path()).args(["--config-path", "envoy.yaml", "--disable-hot-restart"]);
    let mut envoy = Process::start(&mut command);
    eventually("Envoy listens", || {
        assert!(envoy.is_running(), "{}", envoy.log().join("\n"));
        TcpStream::connect(listen).ok()
    });
    // With 0 %, Envoy would cancel slowlane's delay.
    obeys(listen, slowlane, &FAULT_HEADERS.map(|header| (header, "0")));
    let seen: Vec<String> = app.seen().into_iter().flat_map(|seen| seen.headers).collect();
    assert!(!seen.iter().any(|header| header.starts_with("x-envoy-fault-")), "{seen:?}");
}

/// The proxies query the Service of the agents, at its port for gRPC.
#[test]
fn the_files_for_envoy_name_the_service_of_the_agents() {
    let files = ["deployment.yaml", "envoy-gateway.yaml", "contour.yaml", "istio.yaml"];
    let Some([agents, gateway, contour, istio]) = objects(files) else {
        return;
    };
    let service = of_kind(&agents, "Service").next().unwrap();
    let (name, namespace) = (&service["metadata"]["name"], &service["metadata"]["namespace"]);
    let port = &list(service, "/spec/ports").iter().find(|port| port["name"] == "grpc").unwrap()["port"];
    let target = &gateway[1]["spec"]["extAuth"]["grpc"]["backendRefs"][0];
    assert_eq!([&target["name"], &target["namespace"], &target["port"]], [name, namespace, port]);
    let target = &contour[0]["spec"]["services"][0];
    let own = [&target["name"], &contour[0]["metadata"]["namespace"], &target["port"]];
    assert_eq!(own, [name, namespace, port]);
    let host = format!("{}.{}.svc.cluster.local", name.as_str().unwrap(), namespace.as_str().unwrap());
    assert!(istio[0].to_string().contains(&format!("\"outbound|{port}||{host}\"")), "{port} {host}");
}
