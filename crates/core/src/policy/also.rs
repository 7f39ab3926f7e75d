//! Checks on the SLOs of one request: the chains that `also=` forms, and the SLOs that lookups add. In a
//! chain, each SLO is above the previous one.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::CHAIN_MAX;
use crate::policy::{Policy, PolicyErrorKind, PolicyErrors, WarningKind, quoted};

/// The maximum number of steps between SLOs that a check follows from one starting SLO.
const STEPS_MAX: usize = 1_000;

/// A fault in a chain: an error or a warning.
type Wrong = Result<WarningKind, PolicyErrorKind>;

impl Policy {
    /// Checks the chains of each SLO that a request may begin with. A chain that is too long is an error, and so is a
    /// loop through an SLO with an assured rate. A chain that leads to a type that it already contains gets a warning.
    pub(super) fn check_also(&mut self, errors: &mut PolicyErrors) {
        self.check_added(errors);
        if self.refs.iter().all(|refs| refs.also.is_none()) {
            return;
        }
        // The SLOs that a request may begin with, each with the first lookup that names the SLO: if this
        // lookup is the one that answered, no earlier lookup did.
        let mut starts = BTreeMap::new();
        for lookup in 0..self.chosen {
            for slo in self.named_by(lookup) {
                starts.entry(slo).or_insert(lookup);
            }
        }
        let wrong: Vec<(usize, Wrong)> = starts
            .into_iter()
            .filter_map(|(start, first)| Some((self.refs[start].line, self.wrong_chain(start, first)?)))
            .collect();
        for (line, wrong) in wrong {
            match wrong {
                Err(kind) => errors.add(&self.slo_map.path, Some(line), kind),
                Ok(warning) => self.warnings.add(&self.slo_map.path, Some(line), warning),
            }
        }
    }

    /// Adds an error for each lookup that adds an SLO with `also`. Adds a warning for each lookup that adds
    /// an SLO of a type that an earlier lookup names, because only one SLO of each type counts a request.
    fn check_added(&mut self, errors: &mut PolicyErrors) {
        for added in self.chosen..self.lookups.len() {
            let lookup = quoted(self.lookups[added].name.as_bytes());
            let chained = self.named_by(added).find(|&place| self.refs[place].also.is_some());
            if let Some(place) = chained {
                let kind = PolicyErrorKind::AlsoAdded { slo: self.slos[place].id, lookup: lookup.clone() };
                errors.add(&self.slo_map.path, Some(self.refs[place].line), kind);
            }
            let kinds: BTreeSet<u16> = self.named_by(added).map(|place| self.slos[place].id.kind()).collect();
            let names_one = |&before: &usize| {
                self.named_by(before).any(|place| kinds.contains(&self.slos[place].id.kind()))
            };
            if let Some(before) = (0..added).find(names_one) {
                let before = quoted(self.lookups[before].name.as_bytes());
                self.warnings.add(
                    &self.lookups[added].path,
                    None,
                    WarningKind::AddedTwice { lookup, before },
                );
            }
        }
    }

    /// The indexes of the SLOs that the map of a lookup names.
    pub(super) fn named_by(&self, lookup: usize) -> impl Iterator<Item = usize> {
        (0..self.slos.len()).filter(move |&place| self.lookups[lookup].keys_of(place) > 0)
    }

    /// The fault in the chains that begin with an SLO, if only the lookups from `first` on can answer: an
    /// error if there is one, otherwise the first warning.
    fn wrong_chain(&self, start: usize, first: usize) -> Option<Wrong> {
        let (mut open, mut known) = (vec![vec![start]], BTreeSet::new());
        let mut warning = None;
        while let Some(chain) = open.pop() {
            let last = chain[chain.len() - 1];
            let Some(also) = self.refs[last].also.filter(|&also| also >= first) else { continue };
            for next in self.named_by(also) {
                match self.wrong_step(&chain, also, next) {
                    Some(Err(kind)) => return Some(Err(kind)),
                    Some(Ok(new)) => warning = warning.or(Some(new)),
                    None if known.len() < STEPS_MAX && known.insert((chain.len(), next)) => {
                        open.push(chain.iter().copied().chain([next]).collect());
                    }
                    None => {}
                }
            }
        }
        warning.map(Ok)
    }

    fn wrong_step(&self, chain: &[usize], also: usize, next: usize) -> Option<Wrong> {
        let id = |place: usize| self.slos[place].id;
        let via = id(chain[chain.len() - 1]);
        let lookup = quoted(self.lookups[also].name.as_bytes());
        let is_assured = |&place: &usize| self.slos[place].assured.is_some();
        if let Some(at) = chain.iter().position(|&place| place == next)
            && chain[at..].iter().any(is_assured)
        {
            return Some(Err(PolicyErrorKind::AlsoRound { via, lookup, next: id(next) }));
        }
        if chain.iter().any(|&place| id(place).kind() == id(next).kind()) {
            return Some(Ok(WarningKind::Also { via, lookup, next: id(next) }));
        }
        let ids = || chain.iter().map(|&place| id(place).to_string()).collect::<Vec<_>>().join(", ");
        (chain.len() == CHAIN_MAX)
            .then(|| Err(PolicyErrorKind::AlsoLong { chain: ids(), lookup, next: id(next) }))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use crate::policy::{Layout, Policy, PolicyErrors};

    fn read(files: &[(&str, &str)]) -> Result<Policy, PolicyErrors> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new(""), &Layout::default(), read)
    }

    fn warnings(files: &[(&str, &str)]) -> String {
        read(files).unwrap().warnings().to_string()
    }

    fn errors(files: &[(&str, &str)]) -> String {
        read(files).unwrap_err().to_string()
    }

    #[test]
    fn an_slo_that_is_never_counted_is_a_warning() {
        let slos = "0 burst=1 rate=1/s\n1001 burst=1 rate=1/s\n1002 burst=1 rate=1/s also=website\n\
                    2001 burst=1 rate=1/s also=owner\n2002 burst=1 rate=1/s\n";
        let reported = |slos: &str, owners: &str, websites: &str| {
            warnings(&[("slo.map", slos), ("owner.map", owners), ("website.map", websites)])
        };
        assert_eq!(reported(slos, "ann 1001\n", "shop.example 2001\n"), reported(slos, "", ""), "two types");
        assert_eq!(reported(slos, "ann 1001\n", ""), "");
        let same = reported(slos, "ann 2002\n", "shop.example 2001\n");
        let expected = "slo.map:4: also=owner leads from SLO 2001 to SLO 2002, which has no effect there, \
                        because an SLO of the same type has already counted the request: give SLO 2002 a \
                        different type, or remove also=";
        assert_eq!(same, expected);
    }

    #[test]
    fn an_slo_with_an_assured_rate_above_itself_is_a_problem() {
        let slos = |assured: &str| {
            let website = format!("2001 burst=1 rate=1/s also=owner{assured}\n");
            format!("0 burst=1 rate=1/s\n1002 burst=1 rate=1/s also=website\n{website}")
        };
        let maps = [("owner.map", "ann 1002\n"), ("website.map", "shop.example 2001\n")];
        let reported = errors(&[("slo.map", &slos(" assured=1/s")), maps[0], maps[1]]);
        let remedy = "an SLO with an assured rate cannot be above itself: remove one also=";
        assert_eq!(
            reported,
            format!("slo.map:3: also=website leads from SLO 1002 back to SLO 2001, but {remedy}")
        );
        // Without a line that leads back, it is a chain; without an assured rate, nothing is lost.
        assert_eq!(warnings(&[("slo.map", &slos(" assured=1/s")), maps[0]]), "");
        let round = warnings(&[("slo.map", &slos("")), maps[0], maps[1]]);
        assert!(
            round.contains("slo.map:3: also=website leads from SLO 1002 to SLO 2001, which has no effect"),
            "{round}"
        );
        let alone = "0 burst=1 rate=1/s\n2001 burst=1 rate=1/s also=website assured=1/s\n";
        let reported = errors(&[("slo.map", alone), maps[1]]);
        assert_eq!(
            reported,
            format!("slo.map:2: also=website leads from SLO 2001 back to SLO 2001, but {remedy}")
        );
    }

    #[test]
    fn a_fourth_slo_above_another_is_a_problem() {
        let slos = "0 burst=1 rate=1/s\n4001 burst=1 rate=1/s also=source\n3001 burst=1 rate=1/s also=website\n\
                    2001 burst=1 rate=1/s also=owner\n1001 burst=1 rate=1/s\n";
        let maps = [
            ("source.map", "::/0 3001\n"),
            ("source+owner.map", "::/0+ann 4001\n"),
            ("website.map", "shop 2001\n"),
        ];
        let three = [("slo.map", slos), maps[0], maps[1], maps[2]];
        assert_eq!(warnings(&three), "", "the owner is in no map");
        let four = [three[0], three[1], three[2], three[3], ("owner.map", "ann 1001\n")];
        assert_eq!(
            errors(&four),
            "slo.map:2: also=owner leads from the SLOs 4001, 3001, 2001 to SLO 1001, but a request has at \
             most three SLOs: remove one also="
        );
    }
}
