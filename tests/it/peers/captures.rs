//! Sessions of real HAProxys, as `captures/README.md` tells.

use std::collections::BTreeMap;

use slowlane_core::base::Timestamp;
use spop::peers::{Column, Hello, KeyType, Link, News};

const NOW: Timestamp = Timestamp::from_millis(60_000);

const CAPTURES: [(&str, &str); 3] = [
    ("2.6", include_str!("captures/haproxy-2.6.hex")),
    ("3.0", include_str!("captures/haproxy-3.0.hex")),
    ("3.2", include_str!("captures/haproxy-3.2.hex")),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|char| char.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Each table with the type of its keys, and the last values of each key.
type Tables = BTreeMap<String, (KeyType, BTreeMap<Vec<u8>, Vec<u64>>)>;

fn read(bytes: &[u8], piece: usize) -> (Tables, bool) {
    let (hello, length) = Hello::cut(bytes).unwrap().unwrap();
    assert_eq!((hello.to, hello.from), ("slowlane", "lb1"));
    let (mut tables, mut out) = (Tables::new(), Vec::new());
    let (mut link, mut unread) = (Link::begin(NOW.since_epoch(), &mut out), Vec::new());
    for piece in bytes[length..].chunks(piece) {
        unread.extend_from_slice(piece);
        let read = link.receive(&unread, NOW.since_epoch(), &mut out, &mut |news| match news {
            News::Defined(table) => {
                tables.entry(table.name.clone()).or_insert((table.key_type, BTreeMap::new()));
            }
            News::Updated(table, update) => {
                tables.get_mut(&table.name).unwrap().1.insert(update.key.to_vec(), update.values);
            }
            News::Synced | News::Asked => {}
        });
        drop(unread.drain(..read.unwrap()));
    }
    assert!(unread.is_empty(), "whole messages");
    (tables, link.has_all())
}

#[test]
fn sessions_of_all_versions_are_read_whole() {
    for (version, hex) in CAPTURES {
        let bytes = bytes(hex);
        let (tables, has_all) = read(&bytes, usize::MAX);
        assert!(has_all, "{version}");
        for piece in [1, 7, 100] {
            assert_eq!(read(&bytes, piece).0, tables, "{version} in pieces of {piece}");
        }
        let types: Vec<(&str, KeyType)> =
            tables.iter().map(|(name, (key_type, _))| (name.as_str(), *key_type)).collect();
        assert_eq!(
            types,
            [
                ("app", KeyType::String),
                ("counts", KeyType::Ipv4),
                ("numbers", KeyType::Int),
                ("six", KeyType::Ipv6),
                ("slowlane_limits", KeyType::String),
                ("slowlane_pace", KeyType::String),
            ],
            "{version}"
        );
        // Each website was asked for twice, and each request was admitted.
        let pace = &tables["slowlane_pace"].1;
        for shop in ["shop0.example", "shop1.example", "shop2.example"] {
            assert_eq!(pace[shop.as_bytes()], [0, 2, 0], "{version}");
        }
        let counts = &tables["counts"].1[&[127, 0, 0, 1][..]];
        assert_eq!(counts[3], 6, "{version}: http_req_cnt");
        assert!(
            tables["app"].1.values().all(|values| values[1] == 0),
            "{version}: no text of a dictionary is kept"
        );
        assert!(tables["slowlane_limits"].1.is_empty(), "{version}: an empty table is defined, too");
        assert_eq!(Column::GPC, 23);
    }
}
