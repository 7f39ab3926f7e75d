//! Any text as an `slo.map` and a lookup map of any method, and any value looked up in it.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use slowlane::policy::{DEFAULT_LINE, Layout, Lookup, Method, Policy};
use slowlane::base::request::{Request, Value};

fuzz_target!(|input: (u8, bool, &[u8], &[u8], &[u8])| {
    let (method, joined, slo_map, map, value) = input;
    let method = Method::ALL[usize::from(method) % Method::ALL.len()];
    let fields = if joined { vec!["a".into(), "b".into()] } else { vec!["a".into()] };
    let lookup = Lookup { fields, file: "m".into(), method };
    let layout = Layout::default().with_lookups(vec![lookup]).unwrap();
    let read = |path: &Path| match path.ends_with("slo.map") {
        true => Ok([DEFAULT_LINE.as_bytes(), b"\n", slo_map].concat()),
        false => Ok(map.to_vec()),
    };
    match Policy::parse(Path::new("p"), &layout, read) {
        Ok(policy) => {
            let mut request = Request::new();
            request.push(b"a", Value::Text(value));
            request.push(b"b", Value::Text(value));
            assert_eq!(policy.cases(&request).list[0].key, policy.explain(&request).of[0].case.key);
        }
        Err(problems) => assert!(problems.count() > 0),
    }
});
