//! All cases of the suite, in the order of SPOE.txt.

mod connections;
mod disconnect;
mod greeting;
mod hostile;
mod invalid;
mod notify;
pub(crate) mod script;
mod types;

use crate::conformance::case::Exchange;

/// The exchanges. The first one is the plain handshake, whose result the others build on.
pub(crate) fn exchanges() -> impl Iterator<Item = &'static Exchange> {
    let parts: [&[Exchange]; 7] = [
        greeting::EXCHANGES,
        notify::EXCHANGES,
        types::EXCHANGES,
        connections::EXCHANGES,
        disconnect::EXCHANGES,
        invalid::EXCHANGES,
        hostile::EXCHANGES,
    ];
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conformance::case::{Case, Judge, Level};
    use crate::conformance::frames::{HELLO, hello};
    use crate::conformance::setting::Needs;
    use crate::conformance::setting::tests::setting;

    fn cases() -> Vec<&'static Case> {
        exchanges().flat_map(|exchange| exchange.cases).collect()
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_section() {
        let sections = ["3.1", "3.2", "3.2.1", "3.2.2", "3.2.3", "3.2.4", "3.2.5", "3.2.6", "3.2.7", "3.2.8"];
        let more = ["3.2.9", "3.3", "3.4", "3.5", "field"];
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(sections.iter().chain(&more).any(|section| *section == case.section), "{}", case.name);
            assert!(
                case.name.bytes().all(|byte| byte.is_ascii_lowercase() || b"-.0123456789".contains(&byte))
            );
        }
        assert!(cases.iter().filter(|case| case.level == Level::Required).count() >= 30);
    }

    /// Whatever no HAProxy sends decides first whether the agent survives it.
    #[test]
    fn survival_is_judged_after_hostile_exchanges() {
        for exchange in exchanges() {
            let at = exchange.cases.iter().position(|case| matches!(case.judge, Judge::ServesOn));
            let is_of =
                |part: &[Exchange]| part.iter().any(|one| one.cases[0].name == exchange.cases[0].name);
            let is_hostile = is_of(invalid::EXCHANGES) || is_of(hostile::EXCHANGES);
            assert_eq!(at, is_hostile.then_some(0), "{}", exchange.cases[0].name);
            assert_eq!(exchange.is_hostile(), is_hostile, "{}", exchange.cases[0].name);
        }
    }

    /// The first exchange finds out what the agent agrees to, so it can need nothing.
    #[test]
    fn the_first_exchange_is_the_plain_handshake() {
        let first = exchanges().next().unwrap();
        assert_eq!(first.needs, Needs::Nothing);
        assert_eq!((first.turns)(&setting())[0].bytes, hello(HELLO));
    }
}
