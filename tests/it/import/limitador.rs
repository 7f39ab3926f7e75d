//! The limits of Kuadrant's limitador, imported and asked over gRPC: all that match count, or none.

use grpc::Method;
use grpc::ratelimit::{RateLimitRequest, RateLimitResponse};
use slowlane::import::{Program, Written, import};

use super::descriptors::{descriptor, passed, served};
use crate::support::grpc::Client;
use crate::support::own_address;

fn imported(text: &str) -> Written {
    let written = import(text, None).unwrap();
    assert_eq!((written.from, written.omissions.as_slice()), (Program::Limitador, &[][..]));
    written
}

fn file<'w>(written: &'w Written, name: &str) -> &'w str {
    &written.files.iter().find(|file| file.name == name).unwrap().text
}

/// As in the example that its server ships: one for all, and one for each user who posts.
#[test]
fn a_limit_for_all_and_one_for_each_user() {
    let written = imported(
        "---\n- namespace: shop\n  max_value: 8\n  seconds: 600\n  conditions:\n  variables:\n\
         - namespace: shop\n  max_value: 3\n  seconds: 600\n  conditions:\n    - \"descriptors[0]['req.method'] == 'POST'\"\n  \
         variables:\n    - descriptors[0]['user_id']\n",
    );
    assert_eq!(file(&written, "limits-1.map"), "shop 6001\n");
    assert_eq!(file(&written, "limits-2.map"), "shop+POST+ 7001\n");
    let lines = file(&written, "slo.map").lines().filter(|line| !line.starts_with('#'));
    let expected = [
        "0 rate=unlimited",
        "6001 burst=0 rate=8/10m law=fixed-window",
        "7001 burst=0 rate=3/10m law=fixed-window",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    // What the third limit refuses is not counted by the first: 8 = 3 + 3 + 2.
    let expected = [
        ("req.method=POST,user_id=ann", Some(3)),
        ("user_id=bob,req.method=POST", Some(3)),
        ("req.method=GET,user_id=ann", Some(2)),
        ("other=x", Some(0)),
    ];
    assert_eq!(passed(&written, "shop", &expected.map(|(text, _)| text)), expected);
    assert_eq!(passed(&written, "another", &["req.method=POST,user_id=ann"])[0].1, None);
}

/// As in its sandbox: methods, and a path that is left out.
#[test]
fn limits_by_method_with_a_path_left_out() {
    let limit = |max: u32, conditions: &str| {
        format!(
            "- namespace: shop\n  max_value: {max}\n  seconds: 600\n  conditions: [{conditions}]\n  variables: []\n"
        )
    };
    let get = "\"descriptors[0]['req.method'] == 'GET'\"";
    let written = imported(&format!(
        "{}{}{}",
        limit(4, &format!("{get}, \"descriptors[0]['req.path'] != '/json'\"")),
        limit(3, "\"descriptors[0]['req.method'] == 'POST'\", \"descriptors[0]['req.path'] != '/json'\""),
        limit(6, &format!("{get}, \"descriptors[0]['req.path'] == '/json'\"")),
    ));
    let unequal = "^shop\\+GET\\+/json$ -1\n^shop\\+GET\\+(?s:.*)$ 6001\n^shop\\+POST\\+/json$ -1\n^shop\\+POST\\+(?s:.*)$ 7001\n";
    assert_eq!(file(&written, "limits-1.map"), unequal);
    let expected = [
        ("req.method=GET,req.path=/a", Some(4)),
        ("req.method=GET,req.path=/json", Some(6)),
        ("req.method=POST,req.path=/b", Some(3)),
        ("req.method=POST,req.path=/json", None),
        ("req.method=GET,req.path=/json+/a", Some(0)),
        ("req.method=PUT,req.path=/a", None),
        // Without one of its keys, no condition holds.
        ("req.method=GET", None),
    ];
    assert_eq!(passed(&written, "shop", &expected.map(|(text, _)| text)), expected);
}

#[test]
fn the_common_forms_of_cel_match_as_there() {
    let limit = |max: u32, condition: &str, variables: &str| {
        format!(
            "- {{namespace: n, max_value: {max}, seconds: 600, conditions: [{condition:?}], variables: [{variables}]}}\n"
        )
    };
    let written = imported(&format!(
        "{}{}{}{}{}{}",
        limit(1, "descriptors[0].a.startsWith('/api/') && descriptors[0].b == 'x y'", ""),
        limit(2, "descriptors[0].c in ['one', 'two']", "\"descriptors[0].c\""),
        limit(3, "descriptors[0].d.matches('^v[0-9]+$')", ""),
        limit(4, "descriptors[0].e.endsWith('.js')", "\"descriptors[0]['f']\""),
        limit(5, "g == 'old'", "h"),
        limit(0, "descriptors[0].i == 'never'", ""),
    ));
    let expected = [
        ("a=/api/1,b=x y", Some(1)),
        ("a=/other,b=x y", None),
        ("a=/api/1,b=z", None),
        ("c=one", Some(2)),
        ("c=two", Some(2)),
        ("c=three", None),
        ("d=v12", Some(3)),
        ("d=v3", Some(0)),
        ("d=xv3", None),
        ("e=/a.js,f=ann", Some(4)),
        ("e=/b.js,f=ann", Some(0)),
        ("e=/b.js,f=bob", Some(4)),
        ("e=/b.js", None),
        ("g=old,h=ann", Some(5)),
        ("g=new,h=ann", None),
        ("i=never", Some(0)),
    ];
    assert_eq!(passed(&written, "n", &expected.map(|(text, _)| text)), expected);
}

/// A limit by user does not end for others, and the window begins with the first hit.
#[test]
fn the_window_begins_with_the_first_hit() {
    let text = "- {namespace: n, max_value: 2, seconds: 86400, conditions: [], variables: [\"descriptors[0].user\"], name: by user}\n";
    let written = imported(text);
    let at = own_address();
    let _slowlane = served(&written, at);
    let mut client = Client::connect(at);
    let mut ask = |text: &str| {
        let request =
            RateLimitRequest { domain: "n".into(), descriptors: vec![descriptor(text)], hits_addend: 0 };
        let mut response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
        let status = response.statuses.remove(0);
        (status.code(), status.limit_remaining, status.duration_until_reset.unwrap().seconds)
    };
    // A day from now, whatever the time of day is.
    let resets = [ask("user=ann"), ask("user=ann"), ask("user=ann"), ask("user=bob")];
    assert_eq!(resets.map(|(code, left, _)| (code as i32, left)), [(1, 1), (1, 0), (2, 0), (1, 1)]);
    assert!(resets.iter().all(|(.., seconds)| (86_390..=86_400).contains(seconds)), "{resets:?}");
}

#[test]
fn limits_are_found_in_a_configmap_and_in_a_custom_resource() {
    let limits = "- namespace: kuard\n      max_value: 1000\n      seconds: 1\n      conditions: []\n      variables: [per_host]\n";
    let map = format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  limits.yaml: |\n    ---\n    {limits}");
    let resource = format!("kind: Limitador\nspec:\n  limits:\n    {limits}");
    for text in [map, resource] {
        let written = imported(&text);
        assert!(file(&written, "slo.map").ends_with("\n6001 burst=0 rate=1000/s law=fixed-window\n"));
        assert_eq!(file(&written, "limits-1.map"), "kuard+ 6001\n");
        let config = file(&written, "slowlane.toml");
        assert!(config.contains("6 = [\"domain\", \"per_host\"]\n"), "{config}");
        assert!(config.ends_with(
            "fields = [\"domain\", \"per_host\"]\nmap = \"limits-1.map\"\nmatch = \"beg\"\nalso = true\n"
        ));
    }
}

#[test]
fn what_limitador_alone_can_say_is_named_with_its_line() {
    let limit = |conditions: &str, more: &str| {
        format!(
            "- {{namespace: n, max_value: 5, seconds: 60, conditions: [{conditions}], variables: []{more}}}\n"
        )
    };
    let text = [
        limit("\"descriptors[0].a == 'x' || descriptors[0].b == 'y'\"", ""),
        limit("\"descriptors[1].a == 'x'\"", ""),
        limit("\"descriptors[0].a == 'x'\", \"descriptors[0].a.startsWith('y')\"", ""),
        limit("\"descriptors[0].cost == 'x'\"", ""),
        limit("\"descriptors[0].a == 'x'\"", ", unit: day"),
        limit("\"descriptors[0].a == 'x'\"", ""),
        "- {namespace: n, max_value: -1, seconds: 60, conditions: [], variables: []}\n".to_owned(),
        "- {namespace: n, max_value: 4000000000, seconds: 60, conditions: [], variables: [x]}\n".to_owned(),
    ]
    .concat();
    let written = import(&text, None).unwrap();
    let told: Vec<(usize, &str)> = written
        .omissions
        .iter()
        .map(|one| (one.line, one.reason.split(['"', ':', ',']).next().unwrap()))
        .collect();
    let expected = [
        (1, "cannot read the condition "),
        (2, "cannot read the condition "),
        (3, "two conditions on "),
        (4, ""),
        (5, "unknown key"),
        (6, "this repeats an earlier limit"),
        (7, "expected a max_value below 2^32"),
        (8, "this limit allows more requests than slowlane can count"),
    ];
    assert_eq!(told, expected);
}

/// Each limit has a lookup of its own where no value tells them apart, and there are thirteen.
#[test]
fn more_limits_for_one_request_than_slowlane_has_are_named() {
    let limit = |seconds: u32| {
        format!("- {{namespace: n, max_value: 5, seconds: {seconds}, conditions: [], variables: []}}\n")
    };
    let text: String = (60..80).map(limit).collect();
    let written = import(&text, None).unwrap();
    assert_eq!(written.omissions.len(), 7);
    let few = written.omissions.iter().all(|one| one.reason.starts_with("at most 13 lookups"));
    assert!(few, "{:?}", written.omissions);
    assert_eq!(passed(&written, "n", &["a=b"]), [("a=b", Some(5))]);
    // Limits of other namespaces, or for other values, share lookups.
    let limit = |tenant: u32| {
        let condition = format!("descriptors[0].tenant == 't{tenant}'");
        format!(
            "- {{namespace: n, max_value: 5, seconds: 60, conditions: [{condition:?}], variables: [user]}}\n"
        )
    };
    let written = import(&(0..900).map(limit).collect::<String>(), None).unwrap();
    assert_eq!((written.omissions.len(), written.files.len()), (0, 3));
    assert_eq!(passed(&written, "n", &["tenant=t899,user=a"]), [("tenant=t899,user=a", Some(5))]);
}
