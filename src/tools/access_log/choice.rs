//! The choice of a log's format.

use crate::tools::access_log::date::Calendar;
use crate::tools::access_log::format::{Dialect, Format};
use crate::tools::access_log::line::Steps;
use crate::tools::access_log::plan::{Fault, Plan};
use crate::tools::access_log::record::Record;
use crate::tools::access_log::slots::SLOTS_MAX;

/// How many lines are read to recognise the format.
const LOOKED_AT: usize = 200;

/// The formats that a log may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any known format.
    Any,
    /// Any known format of one proxy.
    Of(Dialect),
    This(Format),
}

impl Choice {
    /// The format of a log that begins like this; None where no known format fits.
    pub(super) fn format(&self, head: &[u8]) -> Option<Format> {
        match self {
            Choice::This(format) => Some(format.clone()),
            Choice::Any => recognised(head, |_| true),
            Choice::Of(dialect) => recognised(head, |format| format.dialect() == *dialect),
        }
    }
}

/// The format that fits most of the first lines as a whole; if none does, the one that fits most of them as far as
/// its wanted items reach.
fn recognised(head: &[u8], is_allowed: impl Fn(&Format) -> bool) -> Option<Format> {
    let lines = || head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(LOOKED_AT);
    let known: Vec<Format> = Format::known().into_iter().filter(is_allowed).collect();
    let best = |count: &dyn Fn(&Format) -> usize| {
        let counts = known.iter().map(|format| (count(format), format));
        // The first of equals wins.
        let best = counts.rev().max_by_key(|(count, _)| *count)?;
        (best.0 > 0).then(|| best.1.clone())
    };
    let of_whole_lines = |format: &Format| {
        let steps = Steps::new(format, |_| None);
        let is_of_it =
            |line: &&[u8]| steps.take_apart_of_syslog(line, true, &mut false, &mut [None; SLOTS_MAX]).is_ok();
        lines().filter(is_of_it).filter(|line| is_read(format, line)).count()
    };
    best(&of_whole_lines).or_else(|| best(&|format| lines().filter(|line| is_read(format, line)).count()))
}

fn is_read(format: &Format, line: &[u8]) -> bool {
    let plan = Plan::new(format.clone(), &[], &|_| false).expect("a known format has a time");
    let read = plan.read(line, &mut Calendar::default(), &mut false, &mut Record::default());
    matches!(read, Ok(()) | Err(Fault::NoRequest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<String> {
        recognised(text.as_bytes(), |_| true).map(|format| format.name().to_owned())
    }

    const HTTPLOG: &str = "192.0.2.7:4711 [06/Feb/2009:12:14:14.655] in~ b/s1 0/0/1/7/8 200 89 - - ---- 1/1/0/0/0 0/0 {a|b} \"GET /a HTTP/1.1\"";

    #[test]
    fn each_known_format_is_recognised() {
        let prefixed = format!("Feb  6 12:14:14 localhost haproxy[14389]: {HTTPLOG}\n");
        for (text, want) in [
            (HTTPLOG, "haproxy httplog"),
            (prefixed.as_str(), "haproxy httplog"),
            (
                &format!("{HTTPLOG} 0/0000000000000000/0/0/0 shop.example/TLSv1.3/TLS_AES_256_GCM_SHA384"),
                "haproxy httpslog",
            ),
            (&format!("{HTTPLOG} and more of its own"), "haproxy httplog"),
            (
                "::1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"\" \"\" 4711 655 \"in~\" \"b\" \"s1\" 0 0 1 7 8 ---- 1 1 0 0 0 0 0 \"\" \"\"",
                "haproxy httplog clf",
            ),
            (
                "::1 - bob [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 \"-\" \"curl \\x22\"",
                "nginx combined",
            ),
            (
                "::1 [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 89 0.001s host=a slowlane=pass id=00",
                "nginx, slowlane's",
            ),
            (
                "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- website=a%20b \"GET / HTTP/1.1\" slowlane=pass/0/0/- owner=-",
                "haproxy, slowlane's",
            ),
            (
                "::1:80 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/0/0 200 89 ---- \"GET / HTTP/1.1\" slowlane=pass/0/0/-",
                "haproxy, slowlane's without the website",
            ),
        ] {
            assert_eq!(name(text).as_deref(), Some(want), "{text}");
        }
        for text in ["", "\n\n", "hello\nworld\n", "\0\x01\x02"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_few_lines_of_another_format_do_not_matter() {
        assert_eq!(name(&format!("garbage\n{HTTPLOG}\n\n{HTTPLOG}\n")).as_deref(), Some("haproxy httplog"));
    }
}
