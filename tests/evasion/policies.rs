//! The policies of the rig, and the fields that each of them counts by.

/// A policy, and what it takes from a request.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    /// The fields of its key beside the source.
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

impl Policy {
    /// The fields that must be what the application saw. The shipped arguments are always sent.
    pub fn compared(&self) -> Vec<&'static str> {
        let mut fields = self.fields.to_vec();
        if !fields.contains(&"website") {
            fields.push("website");
        }
        fields
    }

    /// The text of slowlane.toml.
    pub fn config(&self) -> String {
        let mut text =
            "[table]\nsize = 2000000\n[decision_log]\npath = \"decisions.json\"\nper_second = 1000000\n\
             verdicts = [\"pass\", \"delay\", \"deny\"]\n"
                .to_owned();
        if !self.fields.is_empty() {
            let quoted: Vec<String> = self.fields.iter().map(|field| format!("\"{field}\"")).collect();
            let quoted = quoted.join(", ");
            text += &format!(
                "[policy]\n[policy.types]\n6 = [\"source\", {quoted}]\n\
                 [[policy.lookups]]\nfields = [\"source\"]\nmap = \"source.map\"\nmatch = \"ip\"\n"
            );
        }
        text
    }

    /// Its files: every request has a limit that nobody reaches.
    pub fn files(&self) -> [(&'static str, &'static str); 2] {
        match self.fields {
            [] => [
                ("slo.map", "0 rate=unlimited\n3001 burst=1000 rate=1000/s\n"),
                ("source.map", "0.0.0.0/0 3001\n"),
            ],
            _ => [
                ("slo.map", "0 rate=unlimited\n6001 burst=1000 rate=1000/s\n"),
                ("source.map", "0.0.0.0/0 6001\n"),
            ],
        }
    }
}
