//! Files that try to write lines of their own, to fill the memory, or to take forever.

use std::fmt::Write as _;
use std::path::Path;

use clap::ValueEnum;
use proptest::prelude::*;
use slowlane::import::{ImportError, Program, Written, import};
use slowlane_core::policy::{Layout, Policy};

/// Every line of every file has the form that an import writes. A line of the original stays in its comment.
fn assert_forms(written: &Written) {
    for file in &written.files {
        for line in file.text.lines() {
            let is_slo = |line: &str| {
                let (id, options) = line.split_once(' ').unwrap_or((line, ""));
                id.parse::<u16>().is_ok() && options.contains("rate=")
            };
            let is_key = |line: &str| {
                let (_, id) = line.rsplit_once(' ').unwrap_or(("", line));
                id.parse::<u16>().is_ok()
            };
            let is_ours = match file.name.as_str() {
                "slo.map" => line.starts_with("# line ") || is_slo(line),
                "slowlane.toml" => {
                    let starts = [
                        "# Restart ",
                        "[policy.types]",
                        "[[policy.lookups]]",
                        "fields = [",
                        "map = \"",
                        "match = \"",
                    ];
                    line.is_empty()
                        || starts.iter().any(|start| line.starts_with(start))
                        || ["6", "7", "8", "9"].iter().any(|kind| line.starts_with(&format!("{kind} = [")))
                }
                _ => is_key(line),
            };
            assert!(is_ours, "{}: {line:?}", file.name);
            assert!(!line.chars().any(char::is_control), "{}: {line:?}", file.name);
        }
        assert!(!file.name.contains('/'), "{}", file.name);
    }
    let notes = written
        .omissions
        .iter()
        .flat_map(|omission| [&omission.text, &omission.reason])
        .chain(&written.differences);
    notes.for_each(|note| assert!(!note.chars().any(char::is_control), "{note:?}"));
}

/// The default lookups read the maps of these imports.
fn assert_served(written: &Written) {
    let read = |path: &Path| {
        let file = written.files.iter().find(|file| Path::new(&file.name) == path);
        file.map(|file| file.text.clone().into_bytes()).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    };
    let policy = Policy::examine(Path::new(""), &Layout::default(), read).unwrap();
    assert_eq!(policy.warnings().count(), 0, "{}", policy.warnings());
}

const ZONE: &str = "limit_req_zone $remote_addr zone=a:1m rate=1r/s;\n";

#[test]
fn no_name_or_key_writes_a_line_of_its_own() {
    let injected = "x\n0.0.0.0/0 0\n#";
    for (text, program) in [
        (format!("{ZONE}server {{ server_name \"{injected}\"; limit_req zone=a; }}"), Program::Nginx),
        (format!("{ZONE}server {{ location \"/{injected}\" {{ limit_req zone=a; }} limit_req zone=a burst=1; }}"), Program::Nginx),
        (format!("{ZONE}server {{ limit_req zone=a \"burst=3\" \"{injected}\"; }}"), Program::Nginx),
        (format!("limit_req_zone $remote_addr \"zone={injected}:1m\" rate=1r/s; server {{ limit_req \"zone={injected}\"; }}"), Program::Nginx),
        (format!("limit_req_zone \"$http_x_{injected}\" zone=a:1m rate=1r/s; server {{ limit_req zone=a; }}"), Program::Nginx),
        (
            "frontend f\n stick-table type ip size 1 store http_req_rate(10s)\n http-request track-sc0 hdr(x-a\"b\\rc)\n \
             http-request deny if { sc_http_req_rate(0) gt 1 } { path \"/a\\\n0 b\" } { path_beg \"/a 0\" }\n"
                .to_owned(),
            Program::Haproxy,
        ),
        (
            "kind: Ingress\nmetadata: {annotations: {a/limit-rps: \"1\", \"a/limit-\\n0 0\": \"\\n0 0\", a/limit-whitelist: \
             \"1.2.3.4\\n0 0\"}, name: \"\\n0 0\"}\nspec: {rules: [{host: \"a\\n0 0\"}, {host: b}]}\n"
                .to_owned(),
            Program::IngressNginx,
        ),
        (
            "domain: \"\\n3001 rate=1/s\"\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n---\ndomain: a\ndescriptors:\n- {key: \"a\\n0 0\", rate_limit: {unit: day, requests_per_unit: 1}}\n- {key: \
             a, value: \"#\\n0 0\", rate_limit: {unit: \"\\nday\", requests_per_unit: 1}}\n- {key: b, value: \"c\\u2028d\", rate_limit: \
             {unit: day, requests_per_unit: 1}}\n- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n"
                .to_owned(),
            Program::Envoy,
        ),
    ] {
        let written = import(&text, Some(program)).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_forms(&written);
        let lines = written.files.iter().flat_map(|file| file.text.lines());
        lines.for_each(|line| assert!(!line.starts_with("0.0.0.0/0 0"), "{written:#?}"));
    }
}

#[test]
fn bytes_that_are_not_utf_8_become_no_key() {
    let bytes = [ZONE.as_bytes(), b"server { server_name caf\xe9.example; limit_req zone=a; }"].concat();
    let written = import(&String::from_utf8_lossy(&bytes), None).unwrap();
    assert_eq!(written.files, []);
    assert!(written.omissions[0].reason.contains("cannot be part of a key"), "{written:#?}");
}

/// The policy reader has the last word, whatever the numbers are.
#[test]
fn numbers_without_end_are_listed_and_not_written() {
    for burst in ["4294967295", "4294967296", "99999999999999999999", "-1", "1e9"] {
        let written =
            import(&format!("{ZONE}server {{ limit_req zone=a burst={burst} nodelay; }}"), None).unwrap();
        assert_eq!((written.files.len(), written.omissions.len()), (0, 1), "{burst}: {written:#?}");
    }
    for (period, most) in [("10s", "99999999999"), ("1ms", "5"), ("400d", "5"), ("0", "5"), ("10s", "0")] {
        let text = format!(
            "frontend f\n stick-table type ip size 1 store http_req_rate({period})\n http-request deny if {{ src_http_req_rate gt \
             {most} }}\n"
        );
        let written = import(&text, None).unwrap();
        assert_eq!((written.files.len(), written.omissions.len()), (0, 1), "{period} {most}: {written:#?}");
    }
    let envoy =
        "descriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 18446744073709551615}}]";
    assert_eq!(import(envoy, None).unwrap().files, []);
}

#[test]
fn a_yaml_bomb_is_refused() {
    let mut bomb = "kind: Ingress\na: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (above, name) in ["a", "b", "c", "d", "e", "f", "g", "h"].windows(2).map(|pair| (pair[0], pair[1])) {
        writeln!(bomb, "{name}: &{name} [*{above}, *{above}, *{above}, *{above}, *{above}]").unwrap();
    }
    let error = import(&bomb, None).unwrap_err();
    assert!(matches!(&error, ImportError::Syntax { line: 3, .. }), "{error}");
    for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000), "? ".repeat(100_000)] {
        let error = import(&deep, Some(Program::Envoy)).unwrap_err();
        assert!(matches!(error, ImportError::Syntax { .. }), "{error}");
    }
    let wide = format!("descriptors: [{}]", "a,".repeat(300_000));
    assert!(matches!(import(&wide, None).unwrap_err(), ImportError::Syntax { .. }));
}

#[test]
fn nested_blocks_long_files_and_many_limits_are_refused() {
    let deep = format!("{ZONE}{}", "location / { ".repeat(100_000));
    assert!(matches!(import(&deep, None).unwrap_err(), ImportError::Syntax { .. }));
    let long = format!("{ZONE}#{}", "x".repeat(4 << 20));
    assert_eq!(import(&long, None), Err(ImportError::TooLong));
    let many: String =
        (0..2_000).map(|n| format!("location /{n}/ {{ limit_req zone=a burst={n}; }}\n")).collect();
    assert_eq!(import(&format!("{ZONE}server {{ {many} }}"), None), Err(ImportError::TooMany));
    // Each of the limits is refused by the reader, and each by itself.
    let odd: String = (0..900)
        .map(|n| format!("location \"/{n}\\\"\" {{ limit_req zone=a burst=4294967295 nodelay; }}\n"))
        .collect();
    let written = import(&format!("{ZONE}server {{ {odd} }}"), None).unwrap();
    assert_eq!((written.files.len(), written.omissions.len()), (0, 200), "only so many are listed");
}

/// A reason quotes names of the original, and is printed for each line.
#[test]
fn long_names_and_many_networks_are_cut() {
    let head = "frontend www\n stick-table type ip size 1m expire 10s store http_req_rate(10s)\n \
                http-request track-sc0 src\n";
    let name = "x".repeat(100_000);
    let rule = "http-request deny if { sc_http_req_rate(0) gt 9 } foo\n".repeat(200);
    let written = import(&format!("{head} acl foo url_param(a) {name}\n{rule}"), None).unwrap();
    assert!(!written.omissions.is_empty());
    assert!(written.omissions.iter().all(|omission| omission.text.len() + omission.reason.len() < 1_000));

    let networks: String = (0..40_000).map(|n| format!(" 10.{}.{}.1", n / 256, n % 256)).collect();
    let rule = format!("http-request deny if {{ sc_http_req_rate(0) gt 9 }} !{{ src{networks} }}\n");
    let written = import(&format!("{head}{rule}"), None).unwrap();
    assert_eq!(
        (written.files.len(), &*written.omissions[0].reason),
        (0, "the rule has more than 999 networks")
    );
}

/// Each of these makes more work than its bytes, unless something ends it.
#[test]
fn many_limits_of_one_place_end_soon() {
    let same = format!(
        "{ZONE}server {{ {} {} }}",
        "limit_req zone=a;\n".repeat(50_000),
        "location /a { }\n".repeat(50_000)
    );
    assert_eq!(import(&same, None), Err(ImportError::TooMany));
    let include = "include /a;".repeat(20_000);
    let bomb = format!("# configuration file /a:\n{ZONE}server {{ limit_req zone=a; }} {include}");
    assert_eq!(import(&bomb, Some(Program::Nginx)), Err(ImportError::TooMany));
    let track = format!("http-request track-sc0 src if {}", "{ path /a } ".repeat(50_000));
    let rule = " http-request deny if { sc_http_req_rate(0) gt 9 }\n".repeat(20_000);
    let haproxy =
        format!("frontend f\n stick-table type ip size 1 store http_req_rate(1s)\n {track}\n{rule}");
    assert_eq!(import(&haproxy, None), Err(ImportError::TooMany));
    let networks = "10.0.0.0/8,".repeat(50_000);
    let ingress = format!(
        "kind: Ingress\nmetadata: {{annotations: {{haproxy-ingress.github.io/limit-rps: \"1\", \
         haproxy-ingress.github.io/limit-whitelist: \"{networks}\"}}}}\nspec: {{rules: [{{host: a}}, {{host: b}}]}}\n"
    );
    assert_eq!(import(&ingress, None), Err(ImportError::TooMany));
}

#[test]
fn each_counter_of_one_key_gets_a_type() {
    let zones: String =
        (1..=900).map(|n| format!("limit_req_zone $remote_addr zone=z{n}:1m rate={n}r/s;\n")).collect();
    let locations: String =
        (1..=900).map(|n| format!("location /{n}/ {{ limit_req zone=z{n}; }}\n")).collect();
    let written = import(&format!("{zones}server {{\n{locations}}}\n"), None).unwrap();
    assert_eq!(written.omissions, []);
    let toml = written.files.iter().find(|file| file.name == "slowlane.toml").unwrap();
    assert!(toml.text.contains("\n904 = [\"source\"]\n"), "{}", toml.text);
    let chain: String = (1..=4).map(|n| format!("limit_req zone=z{n}; ")).collect();
    let written = import(&format!("{zones}server {{ {chain} }}"), None).unwrap();
    assert_eq!((written.files.len(), written.omissions.len()), (0, 4));
}

/// Pieces of the four syntaxes, and what breaks them.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "limit_req_zone $remote_addr zone=a:1m rate=1r/s;",
        "limit_req zone=a",
        "limit_req zone=a burst=9;",
        "limit_conn a 5;",
        "server {",
        "location /a {",
        "}",
        ";",
        "\n",
        "\"",
        "'",
        "\\",
        "#",
        " ",
        "\r",
        "\0",
        "+",
        "${",
        "http-request deny if",
        "frontend f",
        "stick-table store http_req_rate(9s)",
        "{",
        "sc0_http_req_rate gt 9",
        "src_conn_cur gt 1",
        "||",
        "!",
        "acl a",
        "http-request track-sc0 src",
        "kind: Ingress",
        "metadata:",
        " annotations:",
        "  x/limit-rps: \"5\"",
        "descriptors:",
        "- key: a",
        "  value: b*",
        "  rate_limit: {unit: day, requests_per_unit: 5}",
        "&a",
        "*a",
        "[",
        "]",
        "{",
        ": ",
        "- ",
        "---",
        "\u{85}",
        "é",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_an_error_or_a_policy(text in pieces(), program in prop::sample::select(Program::value_variants())) {
        if let Ok(written) = import(&text, Some(program)) {
            assert_forms(&written);
        }
    }

    #[test]
    fn any_name_is_a_key_or_is_listed(name in "[^\"\\\\]{1,12}") {
        let written = import(&format!("{ZONE}server {{ server_name \"{name}\"; limit_req zone=a; }}"), None).unwrap();
        assert_forms(&written);
        let is_written = written.files.iter().any(|file| file.name == "website.map" || file.name == "source.map");
        prop_assert!(is_written || !written.omissions.is_empty(), "{:?}", written);
        if is_written {
            assert_served(&written);
        }
    }
}
