//! Any text as an `slo.map` and a lookup map of any method, and any value looked up in it.

use std::path::Path;

use slowlane::base::request::{Request, Value};
use slowlane::policy::{DEFAULT_LINE, Layout, Lookup, Method, Policy};

use super::input::texts;

/// The bytes: method, number of fields, then `slo.map`, the map and the value.
pub fn run(bytes: &[u8]) {
    let Some((&[method, fields], rest)) = bytes.split_first_chunk() else { return };
    let [slo_map, map, value] = texts(rest);
    let method = Method::ALL[usize::from(method) % Method::ALL.len()];
    let fields = if fields % 2 == 1 { vec!["a".into(), "b".into()] } else { vec!["a".into()] };
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
}
