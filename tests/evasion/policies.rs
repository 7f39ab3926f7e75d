//! The policies of the rig, and the fields that each of them counts by.

use std::net::SocketAddr;

/// The address of the bystander, who has an SLO of its own.
pub const BYSTANDER: &str = "127.127.127.127";

/// What the bystander may ask in all: so much burst, and no more for a day.
pub const BYSTANDER_BURST: u64 = 3_000;

/// A policy, and what it takes from a request.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    /// The fields of its key. None: the source.
    pub fields: &'static [&'static str],
    /// The headers of clients that these fields come from.
    pub headers: &'static [&'static str],
}

pub const DEFAULT: Policy = Policy { name: "default", fields: &[], headers: &[] };
pub const WEBSITE: Policy = Policy { name: "website", fields: &["website"], headers: &[] };
pub const METHOD: Policy = Policy { name: "method", fields: &["website", "method"], headers: &[] };
pub const PATHS: Policy = Policy { name: "path+base", fields: &["path", "base"], headers: &[] };
pub const URL: Policy = Policy { name: "url", fields: &["url", "path", "base"], headers: &[] };
pub const HEADERS: Policy =
    Policy { name: "headers", fields: &["x_api_key", "user_agent"], headers: &["X-Api-Key", "User-Agent"] };

pub const ALL: [Policy; 6] = [DEFAULT, WEBSITE, METHOD, PATHS, URL, HEADERS];

/// Those whose fields every proxy sends that asks over HTTP.
pub const OF_ANY_PROXY: [Policy; 3] = [DEFAULT, WEBSITE, METHOD];

/// How the proxy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// It asks slowlane about each request.
    Asks,
    /// HAProxy counts in its own tables, under the fields of a lookup.
    Counts,
}

impl Policy {
    /// The fields that must be what the application saw. The shipped arguments are always sent to an agent.
    pub fn compared(&self, counter: Counter) -> Vec<&'static str> {
        let mut fields = self.fields.to_vec();
        if counter == Counter::Asks && !fields.contains(&"website") {
            fields.push("website");
        }
        fields
    }

    /// The text of slowlane.toml, with this address for peers or for gRPC.
    pub fn config(&self, counter: Counter, own: SocketAddr) -> String {
        let mut text =
            "[table]\nsize = 2000000\n[decision_log]\npath = \"decisions.json\"\nper_second = 1000000\n\
             verdicts = [\"pass\", \"delay\", \"deny\"]\n"
                .to_owned();
        if counter == Counter::Asks {
            text += &format!("[grpc]\nlisten = [\"{own}\"]\n");
        }
        if counter == Counter::Counts {
            text += &format!("[peers]\nlisten = [\"{own}\"]\n");
        }
        text += "[policy]\n[policy.types]\n7 = [\"source\"]\n";
        let quoted: Vec<String> = self.fields.iter().map(|field| format!("\"{field}\"")).collect();
        let quoted = quoted.join(", ");
        if !self.fields.is_empty() {
            text += &format!("6 = [{quoted}]\n");
        }
        text += match counter {
            Counter::Counts if !self.fields.is_empty() => {
                return format!(
                    "{text}[[policy.lookups]]\nfields = [{quoted}]\nmap = \"all.map\"\nmatch = \"reg\"\n"
                );
            }
            Counter::Asks | Counter::Counts => {
                "[[policy.lookups]]\nfields = [\"source\"]\nmap = \"source.map\"\nmatch = \"ip\"\n"
            }
        };
        text
    }

    /// Its files: every request has a limit that nobody reaches.
    pub fn files(&self) -> [(&'static str, String); 3] {
        let kind = if self.fields.is_empty() { "3001" } else { "6001" };
        let bystander = format!("7001 burst={BYSTANDER_BURST} rate=1/d\n");
        [
            ("slo.map", format!("0 rate=unlimited\n{kind} burst=1000000 rate=100000/s\n{bystander}")),
            ("source.map", format!("0.0.0.0/0 {kind}\n{BYSTANDER} 7001\n")),
            ("all.map", format!(". {kind}\n")),
        ]
    }
}
