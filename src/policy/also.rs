//! `also=` that leads to an SLO that is never counted: one of a type that the request has already.

use std::collections::BTreeSet;

use crate::base::slo_id::SloId;
use crate::policy::generation::Policy;
use crate::policy::problem::quoted;
use crate::policy::read::map;
use crate::policy::warning::Doubt;

/// The most steps from one SLO to the next that are tried, for each SLO.
const STEPS_MAX: usize = 1_000;

impl Policy {
    /// Adds a warning for each SLO whose `also` leads to its own type, or back to it.
    pub(super) fn warn_of_also(&mut self) {
        if self.ties.iter().all(|ties| ties.also.is_none()) {
            return;
        }
        let named: Vec<BTreeSet<SloId>> =
            (0..self.lookups.len()).map(|lookup| self.named_by(lookup)).collect();
        // The SLOs that a request may begin with.
        let starts: BTreeSet<SloId> = named.iter().flatten().copied().chain([SloId::DEFAULT]).collect();
        let starts = starts.into_iter().filter_map(|slo| self.place(slo));
        let doubts: Vec<_> =
            starts.filter_map(|place| Some((self.ties[place].line, self.vain(place, &named)?))).collect();
        for (line, doubt) in doubts {
            self.warnings.add(&self.slo_map.path, || (Some(line), doubt));
        }
    }

    fn named_by(&self, lookup: usize) -> BTreeSet<SloId> {
        let number = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<u16>().ok();
        let slos = map::lines(self.lookups[lookup].text()).flatten();
        slos.filter_map(|line| SloId::new(if line.value.is_empty() { 0 } else { number(line.value)? }))
            .collect()
    }

    /// The way from an SLO to one that is not counted, if there is one. `named` has the SLOs of each lookup.
    fn vain(&self, place: usize, named: &[BTreeSet<SloId>]) -> Option<Doubt> {
        let start = self.slos[place].id;
        let mut open = vec![(place, types(0, start))];
        let mut known = BTreeSet::new();
        while let Some((place, seen)) = open.pop() {
            let Some(also) = self.ties[place].also else { continue };
            for &next in &named[also] {
                let via = self.slos[place].id;
                if types(seen, next) == seen {
                    let lookup = quoted(self.lookups[also].name.as_bytes());
                    return Some(Doubt::Also { via, lookup, next });
                }
                let next = self.place(next).map(|place| (place, types(seen, next)));
                open.extend(next.filter(|&next| known.len() < STEPS_MAX && known.insert(next)));
            }
        }
        None
    }
}

/// A set of types, as bits, with one more.
fn types(seen: u16, slo: SloId) -> u16 {
    seen | 1 << slo.kind()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use crate::policy::{Layout, Policy};

    fn warnings(files: &[(&str, &str)]) -> String {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new(""), &Layout::default(), read).unwrap().warnings().to_string()
    }

    #[test]
    fn an_slo_that_is_never_counted_is_a_warning() {
        let slos = "0 burst=1 rate=1/s\n1001 burst=1 rate=1/s\n1002 burst=1 rate=1/s also=website\n\
                    2001 burst=1 rate=1/s also=owner\n2002 burst=1 rate=1/s\n";
        let told = |slos: &str, owners: &str, websites: &str| {
            warnings(&[("slo.map", slos), ("owner.map", owners), ("website.map", websites)])
        };
        assert_eq!(told(slos, "ann 1001\n", "shop.example 2001\n"), told(slos, "", ""), "two types");
        assert_eq!(told(slos, "ann 1001\n", ""), "");
        let same = told(slos, "ann 2002\n", "shop.example 2001\n");
        let expected = "slo.map:4: also=owner leads from SLO 2001 to SLO 2002 of a type that is already counted: \
                        SLO 2002 has no effect there";
        assert_eq!(same, expected);
        let round = told(slos, "ann 1002\n", "shop.example 2001\n");
        assert!(round.contains("slo.map:3: also=owner leads from SLO 2001 to SLO 1002 of a type"), "{round}");
        assert!(
            round.contains("slo.map:4: also=website leads from SLO 1002 to SLO 2001 of a type"),
            "{round}"
        );
    }
}
