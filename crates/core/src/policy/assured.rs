//! The SLOs above an SLO with an assured rate, which may go into debt and whose rates limit what can be assured.

use std::collections::BTreeSet;

use crate::base::Rate;
use crate::law::{Law, number};
use crate::policy::{LookupMap, Method, Policy, PolicyErrorKind, PolicyErrors, WarningKind, quoted};

impl Policy {
    /// Lets the SLOs above an assured rate go into debt. It is an error if the law of such an SLO does not allow debt.
    pub(super) fn let_parents_owe(&mut self, errors: &mut PolicyErrors) {
        let guarantees = (0..self.slos.len()).filter(|&place| self.is_guarantee(place));
        let mut open: Vec<(usize, usize)> =
            guarantees.filter_map(|place| Some((place, self.refs[place].also?))).collect();
        let (mut known, mut above) = (BTreeSet::new(), BTreeSet::new());
        while let Some((guarantee, also)) = open.pop() {
            if !known.insert(also) {
                continue;
            }
            for next in self.named_by(also) {
                match self.slos[next].law {
                    Law::Open(_) | Law::Closed(_) | Law::Protect(_) => {}
                    law if law.gcra().is_none() => {
                        let kind = self.error_above(guarantee, also, next);
                        errors.add(&self.slo_map.path, Some(self.refs[guarantee].line), kind);
                    }
                    _ => {
                        above.insert(next);
                    }
                }
                open.extend(self.refs[next].also.map(|also| (guarantee, also)));
            }
        }
        for place in above {
            self.slos[place].law.owe();
        }
    }

    fn is_guarantee(&self, place: usize) -> bool {
        self.slos[place].assured.is_some() && self.refs[place].also.is_some()
    }

    fn error_above(&self, guarantee: usize, also: usize, above: usize) -> PolicyErrorKind {
        let above = &self.slos[above];
        PolicyErrorKind::AssuredAbove {
            assured: self.assured_rate(guarantee),
            lookup: quoted(self.lookups[also].name.as_bytes()),
            above: above.id,
            law: above.law.name(),
        }
    }

    fn assured_rate(&self, place: usize) -> Rate {
        self.slos[place].assured.map_or(Rate::ZERO, |assured| assured.rate())
    }

    /// Adds a warning for each lookup whose SLOs certainly have a lower total rate than the total assured below them.
    ///
    /// Every key that is certain to have an assured rate counts once. The SLOs above count with every key that they can
    /// have. If their number is unbounded, as for networks, nothing can be proved, and there is no warning.
    pub(super) fn warn_of_assured(&mut self) {
        let warnings: Vec<_> =
            (0..self.lookups.len()).filter_map(|also| self.warning_of_assured(also)).collect();
        for (line, warning) in warnings {
            self.warnings.add(&self.slo_map.path, Some(line), warning);
        }
    }

    fn warning_of_assured(&self, also: usize) -> Option<(usize, WarningKind)> {
        let below = |&place: &usize| self.is_guarantee(place) && self.refs[place].also == Some(also);
        let below: Vec<usize> = (0..self.slos.len()).filter(below).collect();
        let first = *below.first()?;
        let assured = below.iter().map(|&place| self.assured_rate(place).per_second() * self.keys_min(place));
        let (assured, mut rate) = (assured.sum::<f64>(), 0.0);
        for place in self.named_by(also) {
            // A closed SLO is meant to refuse everything.
            if matches!(self.slos[place].law, Law::Closed(_)) {
                return None;
            }
            let map = Some(&self.lookups[also]).filter(|map| self.is_key_of(map, place))?;
            rate += self.slos[place].objective.rate.per_second() * f64::from(map.keys_of(place));
        }
        let lookup = quoted(self.lookups[also].name.as_bytes());
        (assured > rate * (1.0 + TOLERANCE)).then(|| {
            (
                self.refs[first].line,
                WarningKind::Assured { assured: number(assured), rate: number(rate), lookup },
            )
        })
    }

    /// The minimum number of keys that an SLO has: the number of lines that name it in a map with exactly the
    /// fields of its key, or 1 if the SLO is named only in other maps.
    fn keys_min(&self, place: usize) -> f64 {
        let of_map = |map: &LookupMap| match map.keys_of(place) {
            keys if self.is_key_of(map, place) => keys,
            keys => keys.min(1),
        };
        self.lookups.iter().map(of_map).max().map_or(0.0, f64::from)
    }

    /// Whether each line of a lookup's map stands for exactly one key of an SLO.
    fn is_key_of(&self, map: &LookupMap, place: usize) -> bool {
        map.method == Method::Str && *map.places == *self.key_places(self.slos[place].id)
    }
}

/// The relative tolerance of the comparison, needed because sums of rates like 0.1/s are not exact.
const TOLERANCE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use crate::policy::{Layout, Policy, PolicyErrors};

    fn read(slos: &str, sites: usize, owners: &str) -> Result<Policy, PolicyErrors> {
        let sites: String = (0..sites).map(|site| format!("site{site} 2001\n")).collect();
        let read = |path: &Path| match path.to_str() {
            Some("slo.map") => Ok(format!("0 rate=unlimited\n{slos}").into()),
            Some("website.map") => Ok(sites.clone().into()),
            Some("owner.map") => Ok(owners.into()),
            Some("source.map") => Ok("::/0 3001\n".into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new(""), &Layout::default(), read)
    }

    const SITES: &str = "2001 burst=20 rate=100/s also=owner assured=10/s\n3001 burst=1 rate=1/s\n";

    #[test]
    fn more_assured_than_there_is_is_a_warning() {
        let slos = format!("{SITES}1001 burst=1 rate=100/s\n1002 burst=1 rate=50/s\n");
        let reported = |sites, owners: &str| read(&slos, sites, owners).unwrap().warnings().to_string();
        let too_much = |assured: &str, rate: &str| {
            format!(
                "slo.map:2: the keys with also=owner are assured {assured}/s in all, but the SLOs of that \
                 lookup have only {rate}/s: lower the assured rates, or raise the rates of those SLOs"
            )
        };
        assert_eq!(reported(10, "acme 1001\n"), "", "ten sites of 10/s have 100/s");
        assert_eq!(reported(11, "acme 1001\n"), too_much("110", "100"));
        assert_eq!(reported(15, "acme 1001\nglobex 1002\n"), "");
        assert_eq!(reported(16, "acme 1001\nglobex 1002\n"), too_much("160", "150"));
        assert_eq!(reported(20, "acme 1001\nglobex 1001\n"), "", "100/s each");
        assert_eq!(reported(20, "acme 1001\nacme 1001\n").lines().count(), 2, "one of them counts");
        // What is above has no limit, or is closed.
        assert_eq!(reported(99, "acme 1001\nglobex 0\n"), "");
        let closed = slos.replace("rate=50/s", "rate=0/s");
        assert_eq!(read(&closed, 99, "acme 1002\n").unwrap().warnings().to_string(), "");
    }

    #[test]
    fn sources_are_not_counted() {
        let slos =
            "3001 burst=1 rate=9/s also=owner assured=9/s\n2001 burst=1 rate=1/s\n1001 burst=1 rate=10/s\n";
        assert_eq!(read(slos, 0, "acme 1001\n").unwrap().warnings().to_string(), "");
        let slos = slos.replace("rate=10/s", "rate=8/s");
        let reported = read(&slos, 0, "acme 1001\n").unwrap().warnings().to_string();
        assert!(
            reported.starts_with("slo.map:2: the keys with also=owner are assured 9/s"),
            "one of them is enough: {reported}"
        );
    }

    #[test]
    fn an_assured_rate_that_cannot_be_held_is_a_problem() {
        let reported = |slos: &str| read(slos, 1, "acme 1001\n").unwrap_err().to_string();
        let above = |law: &str| format!("{SITES}1001 burst=9 rate=9/s law={law}\n");
        for law in ["fair", "adaptive", "fixed-window", "sliding-log", "concurrency"] {
            assert_eq!(
                reported(&above(law)),
                format!(
                    "slo.map:2: assured=10/s: also=owner leads to SLO 1001, whose {law} law cannot go into debt: give \
                     SLO 1001 law=pace, token-bucket or leaky-bucket"
                )
            );
        }
        let site = |options: &str| format!("2001 {options}\n3001 burst=1 rate=1/s\n1001 burst=9 rate=9/s\n");
        for (options, expected) in [
            ("burst=1 rate=9/s assured=1/s", "assured=1/s needs also=: name the lookup of the SLO above"),
            (
                "burst=1 rate=9/s also=owner assured=10/s",
                "assured=10/s is higher than the rate 9/s: lower the assured rate",
            ),
            (
                "burst=1 rate=9/s also=owner assured=0/s",
                "assured \"0/s\": expected a rate above 0, like 10/s",
            ),
            ("burst=1 rate=9/s also=owner assured=unlimited", "assured \"unlimited\": expected a"),
            ("burst=1 rate=9/s also=owner assured=1", "assured \"1\": expected a whole number per period"),
            ("rate=unlimited also=owner assured=1/s", "assured=1/s has no effect with rate=unlimited"),
        ] {
            let reported = reported(&site(options));
            assert!(reported.starts_with(&format!("slo.map:2: {expected}")), "{options}: {reported}");
        }
        for options in [
            "burst=1 rate=0/s also=owner assured=1/s",
            "burst=1 rate=1/s law=concurrency also=owner assured=5/s",
        ] {
            assert!(read(&site(options), 1, "acme 1001\n").is_ok(), "{options}");
        }
    }
}
