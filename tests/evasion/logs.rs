//! What the logs tell: the requests that the application served, and those that were counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::Deserialize;

/// A request that the application served.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Served {
    /// The addresses of the client, as the proxies have told them.
    forwarded: String,
    pub host: String,
    pub uri: String,
    pub args: String,
    pub method: String,
    pub status: String,
    pub x_api_key: String,
    pub user_agent: String,
    /// What HAProxy has counted by itself.
    count: String,
    /// The names of all headers, in lower case, with `-` for `_`, as CGI reads them.
    titles: String,
}

impl Served {
    pub fn read(line: &str) -> Served {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The address of the client: the last one, which the proxy has added.
    pub fn source(&self) -> &str {
        self.forwarded.rsplit(',').next().unwrap().trim()
    }

    /// How many headers the application may take for this one.
    pub fn times(&self, title: &str) -> usize {
        self.titles.split(',').filter(|name| name.eq_ignore_ascii_case(title)).count()
    }
}

/// A request that was counted.
#[derive(Clone, Debug, Deserialize)]
pub struct Counted {
    pub fields: HashMap<String, serde_json::Value>,
    pub key: String,
    pub verdict: String,
    /// None without a limit.
    pub remaining: Option<u64>,
}

impl Counted {
    /// A line of slowlane's decision log.
    pub fn read(line: &str) -> Counted {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// What HAProxy has counted by itself, as it told the application: a mark, whether the key is tracked, and the key.
    pub fn by_haproxy(served: &Served, names: &[&str]) -> Option<Counted> {
        let [mark, tracks, key] = served.count.split(' ').collect::<Vec<_>>().try_into().ok()?;
        // It asks slowlane about a key with this mark.
        if mark == "2" || tracks != "1" {
            return None;
        }
        let key = decoded(key);
        let mut values = key.splitn(names.len().max(1), '|');
        let mut fields = HashMap::from([("source".to_owned(), served.source().into())]);
        for name in names {
            fields.insert((*name).to_owned(), values.next().unwrap_or_default().into());
        }
        let verdict = "pass".to_owned();
        Some(Counted { fields, key, verdict, remaining: None })
    }

    pub fn field(&self, name: &str) -> String {
        match self.fields.get(name) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }
}

/// Percent-decoded.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A growing file, read line by line.
pub struct Tail {
    path: PathBuf,
    at: u64,
    rest: Vec<u8>,
}

impl Tail {
    pub fn of(path: PathBuf) -> Tail {
        Tail { path, at: 0, rest: Vec::new() }
    }

    pub fn lines(&mut self) -> Vec<String> {
        let Ok(mut file) = File::open(&self.path) else { return Vec::new() };
        file.seek(SeekFrom::Start(self.at)).unwrap();
        self.at += file.read_to_end(&mut self.rest).unwrap() as u64;
        let end = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&lines).lines().map(str::to_owned).collect()
    }
}
