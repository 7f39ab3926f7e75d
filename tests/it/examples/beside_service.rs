//! A day beside the old rate limit service, as the chapter on migrating tells: Envoy asks both, and obeys the old one.

use std::fs;

use super::stage::{Stage, is_there};
use crate::rls_check::{Fault, server};
use crate::support::pages::Page;
use crate::support::{eventually, skipped};

#[test]
fn envoy_asks_slowlane_beside_its_old_service_and_shows_the_differences() {
    if !is_there("envoy", "--version") {
        return skipped("Envoy cannot be had on this machine");
    }
    let blocks: Vec<String> =
        Page::read("doc/book/migrating.md").blocks("yaml").into_iter().map(|block| block.text).collect();
    let [filter, log] = blocks.as_slice() else { panic!("{blocks:?}") };
    let placed = |text: &str| text.lines().map(|line| format!("{:18}{line}\n", "")).collect::<String>();
    // The old service lets every request pass.
    let old = server(Fault::None);
    let (old_host, old_port) = old.rsplit_once(':').unwrap();
    let mut stage = Stage::set("envoy-ratelimit");
    let shipped = fs::read_to_string(stage.own_folder().join("envoy.yaml")).unwrap();
    let begin = shipped.find("                  - name: envoy.filters.http.ratelimit\n").unwrap();
    let end = shipped.find("                  # Holds a request").unwrap();
    let of_old = shipped[begin..end].replace("cluster_name: slowlane", "cluster_name: old");
    stage.edit("envoy.yaml", &shipped[begin..end], &(placed(filter) + &of_old));
    let begin = shipped.find("                  - name: envoy.access_loggers.http_grpc\n").unwrap();
    let end = shipped.find("                http_filters:").unwrap();
    stage.edit("envoy.yaml", &shipped[begin..end], &placed(log));
    let cluster = format!(
        "    - name: old\n      connect_timeout: 5s\n      typed_extension_protocol_options:\n        \
         envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n          \
         \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n          \
         explicit_http_config: {{ http2_protocol_options: {{}} }}\n      load_assignment:\n        cluster_name: old\n        \
         endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: {old_host}, port_value: {old_port} }} }} }} }}] }}]\n"
    );
    stage.edit("envoy.yaml", "    - name: app\n", &(cluster + "    - name: app\n"));
    stage.start_slowlane();
    stage.start_proxy("envoy");
    let mut client = stage.client();
    let host = ("Host", "shop.example");
    let statuses = [(); 8].map(|()| client.request("GET", "/", &[host], "").status);
    assert_eq!(statuses, [200; 8], "slowlane is asked and not obeyed");
    assert_eq!([stage.verdicts(3001, "pass"), stage.verdicts(3001, "deny")], [5.0, 3.0]);
    // Envoy writes its log every ten seconds.
    let lines = eventually("the log has them all", || {
        let text = fs::read_to_string(stage.own_folder().join("both.log")).ok()?;
        (text.lines().count() == 8).then_some(text)
    });
    let differ = lines.lines().filter(|line| line.starts_with("429 ") != line.contains(" deny "));
    assert_eq!(differ.collect::<Vec<_>>(), ["200 deny /"; 3]);
}
