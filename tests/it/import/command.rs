//! The command: files, standard input, formats, exit codes, and what `slowlane check` says of the result.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::{Ran, ran, ran_in};
use crate::support::slowlane::BINARY;

const NGINX: &str = "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/s;\nlimit_req_zone $http_x_key zone=keys:10m \
                     rate=20r/s;\nserver {\n  server_name shop.example;\n  limit_req zone=one burst=5;\n  limit_req zone=keys \
                     nodelay;\n  location /api/ { limit_conn conns 4; }\n  location = /health { limit_req zone=one burst=90; }\n}\n\
                     limit_conn_zone $binary_remote_addr zone=conns:10m;\n";

const HAPROXY: &str = "frontend web\n  stick-table type ip size 1m expire 1m store http_req_rate(10s),conn_cur\n  http-request \
                       track-sc0 src\n  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 25 } { path_beg /api } !{ src \
                       10.0.0.0/8 }\n  http-request deny deny_status 429 if { sc_conn_cur(0) gt 9 } !{ src 10.0.0.0/8 }\n";

const INGRESS: &str = "kind: Ingress\nmetadata:\n  name: web\n  annotations:\n    nginx.ingress.kubernetes.io/limit-rps: \"5\"\n    \
                       nginx.ingress.kubernetes.io/limit-rpm: \"90\"\n    nginx.ingress.kubernetes.io/limit-connections: \"3\"\n    \
                       nginx.ingress.kubernetes.io/limit-whitelist: \"10.0.0.0/8\"\nspec:\n  rules:\n  - host: a.example\n  - host: \
                       b.example\n    http: {paths: [{path: /x, pathType: Prefix}]}\n";

const ENVOY: &str = "domain: a\ndescriptors:\n- key: remote_address\n  rate_limit: {unit: second, requests_per_unit: 10}\n- key: \
                     remote_address\n  value: 192.0.2.7\n  rate_limit: {unit: second, requests_per_unit: 0}\n- key: tenant\n  \
                     descriptors:\n  - key: plan\n    value: free*\n    rate_limit: {unit: day, requests_per_unit: 100}\n- key: tenant\n  \
                     rate_limit: {unit: month, requests_per_unit: 1000000}\n  shadow_mode: true\n";

/// Imports a text from standard input.
fn piped(text: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(BINARY);
    command
        .arg("import")
        .args(args)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let problems = String::from_utf8(output.stderr).unwrap();
    let problems = problems.lines().map(|line| line.strip_prefix("slowlane: ").unwrap().to_owned()).collect();
    Ran { code: output.status.code().unwrap(), out: String::from_utf8(output.stdout).unwrap(), problems }
}

/// Saves the files of a report as an operator does, and checks them.
fn check(folder: &Path, report: &str) -> Ran {
    fs::create_dir_all(folder.join("policy")).unwrap();
    fs::write(folder.join("slowlane.toml"), "").unwrap();
    for part in report.split("\n# ---- ").skip(1) {
        let (name, text) = part.split_once(" ----\n").unwrap();
        let path = if name == "slowlane.toml" { folder.join(name) } else { folder.join("policy").join(name) };
        fs::write(path, text).unwrap();
    }
    ran_in(folder, &["check", "--config", "slowlane.toml", "--policy", "policy", "--strict"])
}

#[test]
fn what_is_printed_passes_a_strict_check() {
    for (text, program) in
        [(NGINX, "nginx"), (HAPROXY, "haproxy"), (INGRESS, "ingress-nginx"), (ENVOY, "envoy")]
    {
        let folder = tempfile::tempdir().unwrap();
        let printed = piped(text, &[]);
        assert_eq!((printed.code, printed.problems), (0, vec![]), "{program}");
        assert!(
            printed.out.starts_with(&format!("# Imported from {program}. Review the files")),
            "{}",
            printed.out
        );
        for heading in [
            "\n# Where the meaning differs:\n# - ",
            "\n# ---- slo.map ----\n",
            "\n# ---- slowlane.toml ----\n",
        ] {
            assert!(printed.out.contains(heading), "{heading}: {}", printed.out);
        }
        let checked = check(folder.path(), &printed.out);
        assert_eq!((checked.code, checked.problems), (0, vec![]), "{program}:\n{}", printed.out);
        fs::write(folder.path().join("file"), text).unwrap();
        let of_file = ran_in(folder.path(), &["import", "--from", program, "file"]);
        assert_eq!((of_file.code, of_file.out), (0, printed.out), "{program}");
    }
}

#[test]
fn json_has_the_files_and_the_notes() {
    let printed = piped(NGINX, &["--json", "--format", "nginx"]);
    let json: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["differences", "files", "from", "not_imported"]);
    assert_eq!(json["from"], "nginx");
    assert_eq!(json["files"][0]["name"], "slo.map");
    assert!(json["files"][0]["text"].as_str().unwrap().starts_with("0 rate=unlimited\n# line 5: limit_req"));
    let json: serde_json::Value =
        serde_json::from_str(&piped(INGRESS, &["--json", "--from", "ingress"]).out).unwrap();
    assert_eq!(json["from"], "ingress-nginx");
}

#[test]
fn a_file_that_cannot_be_said_is_code_1() {
    let nothing = piped("limit_req_zone $cookie_a zone=a:1m rate=1r/s;\n", &[]);
    assert_eq!(nothing.code, 1);
    assert_eq!(nothing.problems, ["-: none of its limits can be expressed in slowlane"]);
    assert!(
        nothing.out.contains("\n# Not imported:\n# - line 1: limit_req_zone $cookie_a"),
        "{}",
        nothing.out
    );
    for (text, problem) in [
        ("server {\n  listen 80;\n}\n", "-: there are no rate limits to import"),
        ("a text\n", "-: cannot tell which program this configuration is for: name the program with --from"),
        ("http {\n  limit_req zone=a;\n", "-: line 3: cannot be read as nginx configuration"),
        ("descriptors: [\n", "-: line 2: while parsing a node, did not find expected node content"),
    ] {
        let refused = piped(text, &[]);
        assert_eq!((refused.code, refused.out.as_str(), refused.problems), (1, "", vec![problem.to_owned()]));
    }
    assert_eq!(
        ran(&["import", "/nowhere"]).problems,
        ["/nowhere: cannot be read: No such file or directory (os error 2)"]
    );
    assert_eq!(
        ran(&["import", "/dev/zero"]).problems,
        ["/dev/zero: the text is longer than 4 MiB: import only the part with the limits"]
    );
    assert_eq!(ran(&["import", "/"]).code, 1);
}

/// As nginx and HAProxy read them from the disk. A note names the file and its line.
#[test]
fn files_are_read_with_those_that_they_include_and_folders_too() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "nginx.conf",
        "http {\n include zones;\n include conf.d/*.conf;\n include gone;\n include /dev/zero;\n}\n",
    );
    write("zones", "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\n");
    write("conf.d/a.conf", "server {\n server_name a.example;\n limit_req zone=a;\n limit_rate 5k;\n}\n");
    write("conf.d/b.conf", "server {\n content_by_lua_block { say(\"}\") }\n}\n");
    let printed = ran_in(folder.path(), &["import", "nginx.conf"]);
    assert_eq!((printed.code, printed.problems), (0, vec![]), "{}", printed.out);
    let shown = fs::canonicalize(folder.path()).unwrap();
    let shown = shown.display();
    for part in [
        "\na.example 3001\n".to_owned(),
        format!("# {shown}/conf.d/a.conf:3: limit_req zone=a;"),
        format!("{shown}/conf.d/a.conf:4: limit_rate 5k;: bytes per second are limited, not requests"),
        format!("{shown}/conf.d/b.conf:2: content_by_lua_block: Lua code is not read"),
        "nginx.conf:4: include gone;: an included file cannot be read".to_owned(),
        "nginx.conf:5: include /dev/zero;: an included file cannot be read".to_owned(),
    ] {
        assert!(printed.out.contains(&part), "{part}\n{}", printed.out);
    }
    let of_folder = ran_in(folder.path(), &["import", "zones", "conf.d", "--json"]);
    assert_eq!(of_folder.code, 0, "{:?}", of_folder.problems);
    let json: serde_json::Value = serde_json::from_str(&of_folder.out).unwrap();
    assert!(json["not_imported"][0]["file"].as_str().unwrap().ends_with("conf.d/a.conf"), "{json}");
    assert_eq!(json["not_imported"][0]["line"], 4);

    write(
        "base.cfg",
        "defaults\n mode http\nbackend rates\n stick-table type ip size 1m store http_req_rate(10s)\n",
    );
    write(
        "site.cfg",
        "frontend www\n http-request track-sc0 src table rates\n http-request deny if { sc0_http_req_rate(rates) gt 20 }\n",
    );
    let printed = ran_in(folder.path(), &["import", "base.cfg", "site.cfg"]);
    assert_eq!(printed.code, 0, "{:?}", printed.problems);
    assert!(printed.out.contains("# site.cfg:3: http-request deny"), "{}", printed.out);

    write("envoy.yaml", "domain: d\ndescriptors: []\n");
    write("broken.yaml", "domain: d\ndescriptors: [\n");
    let refused = ran_in(folder.path(), &["import", "envoy.yaml", "broken.yaml"]);
    let reason = "line 3: while parsing a node, did not find expected node content, in broken.yaml";
    assert_eq!(refused.problems, [format!("envoy.yaml, broken.yaml: {reason}")]);
}
