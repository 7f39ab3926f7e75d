//! The measures of a request's work in a line: seconds of the application's time, bytes sent, or a cost.

use std::str::FromStr;

use slowlane_core::base::{Amount, Ending};

use crate::access_log::field::{LogPart, Mapping, Origin};
use crate::access_log::line::{Values, Wanted};
use crate::access_log::times::parts;
use crate::access_log::{FormatError, PlanError};

/// A `--measure` option, such as `cost=$tokens`: `seconds`, `bytes` or `cost`, and the item that holds the measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure(Mapping);

const NAMES: [&str; 3] = ["seconds", "bytes", "cost"];

impl FromStr for Measure {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Measure, FormatError> {
        let mapping: Option<Mapping> = text.parse().ok();
        let measure = mapping.filter(|mapping| NAMES.contains(&&*mapping.field)).map(Measure);
        measure.ok_or(FormatError::NoMeasure)
    }
}

/// The items of each measure, best first. For seconds, items with only the application's time come before items that
/// include more. The third element names the times spent before the application, which are subtracted if the line has
/// them. For bytes, only the last item excludes headers.
const KNOWN: [(&str, &str, &[&str]); 13] = [
    ("seconds", "$upstream_response_time", &[]),
    ("seconds", "$upstream_ms", &[]),
    ("seconds", "$upstream_ns", &[]),
    ("seconds", "%Ta", &["%TR", "%Tw", "%Tc"]),
    ("seconds", "%Tr", &[]),
    ("seconds", "%Tu", &["%Ti", "%TR", "%Tw", "%Tc"]),
    ("seconds", "%Tt", &["%Th", "%Ti", "%TR", "%Tw", "%Tc"]),
    ("seconds", "$request_time", &[]),
    ("seconds", "$request_ms", &[]),
    ("seconds", "$request_ns", &[]),
    ("bytes", "%B", &[]),
    ("bytes", "$bytes_sent", &[]),
    ("bytes", "$body_bytes_sent", &[]),
];

/// The places of the measures in a line, in the order of [`NAMES`].
#[derive(Clone, Debug, Default)]
pub(super) struct Measures([Option<MeasurePlace>; 3]);

#[derive(Clone, Debug)]
struct MeasurePlace {
    origin: Origin,
    /// Whether a hyphen counts as 0, as in known items: no server was contacted, or no bytes were sent. In an item that
    /// the operator names, a hyphen means no measure.
    is_known: bool,
    /// The items whose times are subtracted.
    before: Vec<usize>,
    /// The number of the item's time units in a second, such as 1000 for milliseconds. 1 for bytes and costs.
    parts: u64,
}

impl Measures {
    /// The given items or, for a measure without a given item, the best item in the format.
    pub(super) fn new(given: &[Measure], wanted: &mut Wanted<'_>) -> Result<Measures, PlanError> {
        let mut measures = Measures::default();
        for (place, name) in measures.0.iter_mut().zip(NAMES) {
            *place = match given.iter().rfind(|given| given.0.field == name) {
                Some(Measure(mapping)) => Some(MeasurePlace::given(mapping, wanted)?),
                None => KNOWN
                    .iter()
                    .filter(|(of, ..)| *of == name)
                    .find_map(|(_, noun, before)| MeasurePlace::known(noun, before, wanted)),
            };
        }
        Ok(measures)
    }

    pub(super) fn read(&self, values: &Values<'_>) -> Ending {
        let [seconds, bytes, cost] = self.0.each_ref().map(|place| place.as_ref()?.read(values));
        Ending { seconds, bytes, cost }
    }
}

impl MeasurePlace {
    fn given(mapping: &Mapping, wanted: &mut Wanted<'_>) -> Result<MeasurePlace, PlanError> {
        let missing = || PlanError::not_in_format("--measure", mapping, wanted.format);
        let origin = Origin::mapped(mapping, wanted).ok_or_else(missing)?;
        let parts = if mapping.field == "seconds" { parts(&mapping.from) } else { 1 };
        Ok(MeasurePlace { origin, is_known: false, before: Vec::new(), parts })
    }

    fn known(noun: &str, before: &[&str], wanted: &mut Wanted<'_>) -> Option<MeasurePlace> {
        let origin = Origin::new(noun, LogPart::Whole, wanted)?;
        let before = before.iter().filter_map(|noun| Some(wanted.want(noun)?.0)).collect();
        Some(MeasurePlace { origin, is_known: true, before, parts: parts(noun) })
    }

    fn read(&self, values: &Values<'_>) -> Option<Amount> {
        let mut before = 0;
        for text in self.before.iter().filter_map(|&item| values.of(item)) {
            // The request did not reach the application.
            if text == b"-1" {
                return Some(Amount::ZERO);
            }
            before += Amount::sum(text).ok()?.micros();
        }
        let total = if self.is_known { self.origin.written(values)? } else { self.origin.text(values)? };
        let micros = Amount::sum(total).ok()?.micros().saturating_sub(before);
        Some(Amount::from_micros(micros / self.parts))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access_log::format::ITEMS_MAX;
    use crate::access_log::{Format, LogPlan, LogRecord};

    /// The seconds, bytes and cost of a line, in that order; `-` is none.
    fn measured(format: &str, given: &[&str], line: &str) -> String {
        let known = Format::known().into_iter().find(|known| known.name == format);
        let given: Vec<Measure> = given.iter().map(|text| text.parse().unwrap()).collect();
        let plan =
            LogPlan::new(known.unwrap_or_else(|| Format::parse(format).unwrap()), &[], &|_| false).unwrap();
        let mut record = LogRecord::default();
        let read = plan.with_measures(&given).unwrap().read(line.as_bytes(), false, &mut record);
        assert_eq!(read, Ok(()), "{line}");
        let Ending { seconds, bytes, cost } = record.ending;
        let text = |amount: Option<Amount>| amount.map_or("-".into(), |amount| amount.to_string());
        [seconds, bytes, cost].map(text).join(" ")
    }

    /// The times are TR/Tw/Tc/Tr/Ta: a request was held for 300 ms, waited 100 ms for a free server and 5 ms for its
    /// connection. The application took the rest.
    #[test]
    fn haproxys_total_is_without_the_times_before_the_application() {
        let measured = |times: &str, bytes: &str| {
            let line = format!(
                "::1:80 [06/Feb/2009:12:14:14.655] in b/s {times} 200 {bytes} - - ---- 1/1/0/0/0 0/0 \"GET / HTTP/1.1\""
            );
            measured("haproxy httplog", &[], &line)
        };
        assert_eq!(measured("300/100/5/200/807", "89"), "0.402 89 -");
        for (times, what) in [
            ("0/0/-1/-1/1505", "no server has answered"),
            ("0/301/-1/-1/301", "the queue was too long"),
            ("-1/-1/-1/-1/0", "no request has come"),
        ] {
            assert_eq!(measured(times, "0"), "0 0 -", "{what}");
        }
        assert_eq!(measured("0/0/0/7/+8", "+101"), "- - -", "logasap: before the end");
    }

    #[test]
    fn the_applications_time_comes_before_the_total() {
        for (format, line, want) in [
            ("%ci %Ts %Tt %Tr %B", "::1 7 900 250 10", "0.25 10 -"),
            ("%ci %Ts %Tt", "::1 7 900", "0.9 - -"),
            ("%ci %Ts %Th %Ti %Tt", "::1 7 10 500 900", "0.39 - -"),
            (
                "$remote_addr $msec $request_time $upstream_response_time $bytes_sent",
                "::1 7 1.5 0.25 9",
                "0.25 9 -",
            ),
            ("$remote_addr $msec $request_time $body_bytes_sent", "::1 7 1.5 9", "1.5 9 -"),
            ("$remote_addr $msec [$upstream_response_time]", "::1 7 [0.000, 0.101 : 0.25]", "0.351 - -"),
            (
                "$remote_addr $msec $upstream_response_time $bytes_sent",
                "::1 7 0.000, 0.101 : - : 0.25 9",
                "0.351 9 -",
            ),
            ("$remote_addr $msec [$upstream_response_time]", "::1 7 [-]", "0 - -"),
            ("$remote_addr $msec [$upstream_response_time]", "::1 7 []", "- - -"),
        ] {
            assert_eq!(measured(format, &[], line), want, "{format}: {line}");
        }
    }

    #[test]
    fn an_item_of_any_name_can_be_a_measure() {
        let json =
            r#"{"t":"$msec","ip":"$remote_addr","took":$request_time,"sent":"$sent","tokens":"$tokens"}"#;
        let line =
            |tokens: &str| format!(r#"{{"t":"7","ip":"::1","took":1.5,"sent":"12","tokens":"{tokens}"}}"#);
        let given = ["bytes=$sent", "cost=$tokens"];
        assert_eq!(measured(json, &given, &line("801.5")), "1.5 12 801.5");
        for none in ["-", "", "-1", "1e9", "nan", "many"] {
            assert_eq!(measured(json, &given, &line(none)), "1.5 12 -", "{none}");
        }
        assert_eq!(measured(json, &["seconds=$tokens", "cost=5"], &line("2")), "2 - 5");
        assert_eq!(measured(json, &["seconds=$tokens", "bytes=$tokens"], &line("-")), "- - -");
        assert_eq!(measured("%ci %Ts %Tr %Tc", &["seconds=%Tc"], "::1 7 250 100"), "0.1 - -");
        let captured = "::1 7 {a|17}";
        assert_eq!(measured("%ci %Ts %hs", &["cost=%[capture.res.hdr(1)]"], captured), "- - 17");
    }

    /// Apache's common log format ends with the bytes, and has a hyphen for none.
    #[test]
    fn lines_that_end_early_are_still_requests() {
        let line = |rest: &str| format!("::1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\"{rest}");
        for (rest, want) in [
            (" 200 89 \"-\" \"curl\"", "- 89 -"),
            (" 200 89", "- 89 -"),
            (" 304 -", "- 0 -"),
            (" 200", "- - -"),
            ("", "- - -"),
        ] {
            assert_eq!(measured("nginx or apache combined", &[], &line(rest)), want, "{rest}");
        }
    }

    #[test]
    fn an_unknown_measure_or_item_is_named() {
        for text in ["tokens=$x", "seconds", "seconds=", "=$x", "cost=$a$b"] {
            assert!(text.parse::<Measure>().is_err(), "{text}");
        }
        let plan = LogPlan::new(Format::parse("$remote_addr $msec").unwrap(), &[], &|_| true).unwrap();
        let error = plan.with_measures(&["cost=$tokens".parse().unwrap()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--measure cost: $tokens is not in the format, which has $remote_addr $msec"
        );
    }

    proptest! {
        /// In milliseconds, as nginx writes them.
        #[test]
        fn the_times_of_several_servers_add_up(
            times in prop::collection::vec((prop::option::of(0u64..1_000_000), prop::sample::select(vec![", ", " : "])), 1..9),
        ) {
            let text = |time: &Option<u64>| time.map_or("-".into(), |ms| format!("{}.{:03}", ms / 1_000, ms % 1_000));
            let list: String = times.iter().map(|(time, sign)| text(time) + sign).collect();
            let line = format!("::1 7 [{}]", list.trim_end_matches([' ', ',', ':']));
            let sum: u64 = times.iter().filter_map(|(time, _)| *time).sum();
            let want = Amount::from_micros(sum * 1_000);
            prop_assert_eq!(measured("$remote_addr $msec [$upstream_response_time]", &[], &line), format!("{want} - -"));
        }

        #[test]
        fn any_bytes_are_a_measure_or_none(text in prop::collection::vec(any::<u8>(), 0..60)) {
            for name in ["haproxy httplog", "nginx or apache combined"] {
                let format = Format::known().into_iter().find(|known| known.name == name).unwrap();
                let values = Values { list: [Some(&text[..]); ITEMS_MAX], count: ITEMS_MAX };
                let ending = Measures::new(&[], &mut Wanted::new(&format)).unwrap().read(&values);
                let all = [ending.seconds, ending.bytes, ending.cost];
                prop_assert!(all.into_iter().flatten().all(|amount| amount <= Amount::MAX));
            }
        }
    }
}
