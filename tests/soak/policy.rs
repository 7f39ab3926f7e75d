//! The policy of a site, and its edits.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::records::Records;
use crate::support::slowlane::Slowlane;

/// An SLO under which customers and crawlers come. Customers ask [a third](crate::clients::CUSTOMER_PAUSE) of it.
#[derive(Debug)]
pub struct Objective {
    pub id: u16,
    pub options: &'static str,
    /// The website that all its sources share; else each source has a bucket.
    pub website: Option<&'static str>,
    /// Why a customer within this SLO may be delayed.
    pub may_delay: Option<&'static str>,
}

/// The thousands digit 3 gives each source a bucket, 2 each website.
pub const OBJECTIVES: [Objective; 7] = [
    Objective { id: 3001, options: "burst=10 rate=10/s", website: None, may_delay: None },
    Objective { id: 3002, options: "burst=10 rate=10/s law=fixed-window", website: None, may_delay: None },
    Objective { id: 3003, options: "burst=10 rate=10/s law=sliding-log", website: None, may_delay: None },
    Objective {
        id: 3004,
        options: "burst=1 rate=1/s law=concurrency max=2 lease=30s",
        website: None,
        may_delay: None,
    },
    Objective {
        id: 3005,
        options: "burst=10 rate=10/s law=adaptive max_delay=5s",
        website: None,
        may_delay: Some("beyond its burst, the article's law delays below the rate, too"),
    },
    Objective { id: 3006, options: "burst=10 rate=10/s law=token-bucket", website: None, may_delay: None },
    Objective {
        id: 2001,
        options: "burst=40 rate=80/s law=fair",
        website: Some("shared.example"),
        may_delay: Some("all sources share one bucket: each waits for a slot"),
    },
];

/// The SLOs of the floods: `sliding-log` and `fair` keep memory beside the table.
const FLOODED: &str = "3007 burst=5 rate=5/s law=sliding-log\n3008 burst=5 rate=5/s\n\
                       2002 burst=100 rate=1000/s law=fair\n";

/// The website of the flood under `fair`.
pub const FLOODED_WEBSITE: &str = "flooded.example";

/// The bounds are small, so that the floods reach them within seconds.
pub const CONFIG: &str = "\
[policy]
key_secret_file = 'secret'
[table]
size = 4096
annex_bytes_max = 2097152
[spop]
timeout = '5s'
[http]
idle_timeout = '10s'
[decision_log]
path = 'decisions.json'
per_second = 1000
";

impl Objective {
    /// The address of a client: customers have an SLO of their own each, unless they share a website.
    pub fn source(&self, proxy: usize, client: usize) -> String {
        format!("10.{}.{proxy}.{client}", self.id % 1000 + self.id / 1000 * 10)
    }

    fn network(&self) -> String {
        format!("10.{}.0.0/16", self.id % 1000 + self.id / 1000 * 10)
    }
}

/// `slo.map`. Each edit changes the options of the SLO that everybody has who has none.
fn slo_map(edit: u64) -> String {
    let ours = OBJECTIVES.iter().map(|slo| format!("{} {}\n", slo.id, slo.options));
    format!("0 burst={} rate=100000/s\n{}{FLOODED}", 100_000 + edit % 2, ours.collect::<String>())
}

fn source_map(edit: u64) -> String {
    let ours = OBJECTIVES.iter().filter(|slo| slo.website.is_none());
    let ours: String = ours.map(|slo| format!("{} {}\n", slo.network(), slo.id)).collect();
    format!("{ours}100.64.0.0/10 3007\n100.128.0.0/9 3008\n198.51.100.{} 3008\n", edit % 250)
}

fn website_map() -> String {
    let ours = OBJECTIVES.iter().filter_map(|slo| Some(format!("{} {}\n", slo.website?, slo.id)));
    format!("{}{FLOODED_WEBSITE} 2002\n", ours.collect::<String>())
}

/// The policy files at first.
pub fn files() -> [(&'static str, String); 3] {
    [("slo.map", slo_map(0)), ("source.map", source_map(0)), ("website.map", website_map())]
}

/// Makes all files valid, and different from before.
pub fn mend(slowlane: &Slowlane, edit: u64) {
    slowlane.replace("slo.map", &slo_map(edit));
    slowlane.replace("source.map", &source_map(edit));
    slowlane.replace("website.map", &website_map());
}

/// One edit a second. Two of ten have a mistake, one deletes a map, and one is half a file for a moment.
pub fn edit(slowlane: &Slowlane, edit: u64, records: &Records) {
    records.count("policy edits");
    match edit % 10 {
        2 => slowlane.replace("slo.map", &slo_map(edit).replace("rate=10/s", "rate=5x/s")),
        4 => {
            slowlane.replace("source.map", &format!("{}300.0.0.1 3001\n", source_map(edit)));
            slowlane.process.signal("HUP");
        }
        6 => std::fs::remove_file(slowlane.policy().join("website.map")).unwrap(),
        8 => {
            write_slowly(slowlane, &source_map(edit));
            slowlane.process.signal("HUP");
        }
        _ => mend(slowlane, edit),
    }
}

/// Truncates and writes a map in two steps, as an editor without a rename does.
fn write_slowly(slowlane: &Slowlane, text: &str) {
    let path = slowlane.policy().join("source.map");
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    let (first, second) = text.split_at(text.len() / 2);
    file.write_all(first.as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(20));
    file.write_all(second.as_bytes()).unwrap();
}
