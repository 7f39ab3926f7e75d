//! Warnings about lines that are valid by themselves, but have an unexpected effect together.

use std::collections::BTreeSet;
use std::path::Path;

use crate::policy::layout::is_known;
use crate::policy::{Layout, Lookup, LookupMap, Policy, WarningKind};

/// Fields whose values many clients share.
const OF_MANY: [&str; 7] = ["owner", "website", "method", "path", "query", "url", "base"];

/// The maximum number of SLOs to list in the warning about SLOs that no map names.
const UNNAMED_MAX: usize = 8;

impl Policy {
    /// Adds warnings about lines that are valid by themselves, but have an unexpected effect together.
    pub(super) fn warn_of_traps(&mut self, layout: &Layout) {
        self.warn_of_one_bucket(layout);
        self.warn_of_unnamed(layout);
        self.warn_of_one_family();
        self.warn_of_never_asked();
        self.warn_of_unknown_fields(layout);
        self.warn_of_shared_blocks();
    }

    /// Warns if SLO 0 limits all clients with one bucket and no other SLO counts each client.
    fn warn_of_one_bucket(&mut self, layout: &Layout) {
        let (slo, refs) = (&self.slos[0], &self.refs[0]);
        let is_limit = !slo.objective.rate.is_unlimited() && slo.law.name() != "concurrency";
        let counts_clients = |place: usize| {
            self.key_places(self.slos[place].id).iter().any(|&place| self.fields.name(place) == "source")
        };
        let has_map = layout.lookups().iter().any(|lookup| lookup.file == Path::new("source.map"));
        if is_limit && has_map && !self.reachable().any(counts_clients) {
            self.warnings.add(&self.slo_map.path, Some(refs.line), WarningKind::OneBucket);
        }
    }

    fn warn_of_unnamed(&mut self, layout: &Layout) {
        let reachable: BTreeSet<usize> = self.reachable().collect();
        let unnamed: Vec<usize> = (0..self.slos.len()).filter(|place| !reachable.contains(place)).collect();
        let Some(&first) = unnamed.first() else { return };
        let fields = |place: usize| layout.type_fields(self.slos[place].id.kind());
        let names_all = |lookup: &&Lookup| unnamed.iter().all(|&place| lookup.fields == fields(place));
        let lookup = layout.lookups().iter().find(names_all);
        let file = lookup.map_or("a map".to_owned(), |lookup| lookup.file.display().to_string());
        let listed: Vec<String> =
            unnamed.iter().take(UNNAMED_MAX).map(|&place| self.slos[place].id.to_string()).collect();
        let more = if unnamed.len() > UNNAMED_MAX { ", ..." } else { "" };
        let slos = if unnamed.len() == 1 { "SLO" } else { "the SLOs" };
        let warning = WarningKind::Unnamed { ids: format!("{slos} {}{more}", listed.join(", ")), file };
        self.warnings.add(&self.slo_map.path, Some(self.refs[first].line), warning);
    }

    /// Warns if a map has a line for all IPv4 addresses but none for all IPv6 addresses. The reverse needs no
    /// warning, because a network of all IPv6 addresses also matches IPv4 addresses.
    fn warn_of_one_family(&mut self) {
        for map in &self.lookups {
            if let Some((line, meant)) = map.of_ipv4_alone() {
                self.warnings.add(&map.path, Some(line), WarningKind::Ipv4Alone(meant));
            }
        }
    }

    fn warn_of_never_asked(&mut self) {
        let mut before: Option<(&LookupMap, usize, &'static str)> = None;
        for (place, map) in self.lookups[..self.chosen].iter().enumerate() {
            let is_added = self.reachable().any(|slo| self.refs[slo].also == Some(place));
            if let Some((first, line, whom)) = before.filter(|_| !is_added) {
                let file = first.path.file_name().unwrap_or_default().display();
                let (by, also) = (format!("{file}:{line}"), map.name.clone());
                self.warnings.add(&map.path, None, WarningKind::NeverAsked { by, whom, also });
            }
            before = before.or_else(|| map.catch_all().map(|(line, whom)| (map, line, whom)));
        }
    }

    fn warn_of_unknown_fields(&mut self, layout: &Layout) {
        for (kind, field) in
            layout.kinds().flat_map(|kind| layout.type_fields(kind).iter().map(move |name| (kind, name)))
        {
            let is_looked_up = layout.lookups().iter().any(|lookup| lookup.fields.contains(field));
            if !is_looked_up && !is_known(field) && layout.derivation(field).is_none() {
                let field = field.clone();
                self.warnings.add(
                    Path::new("[policy.types]"),
                    None,
                    WarningKind::UnknownField { kind, field },
                );
            }
        }
    }

    /// Warns of a `block` on a key that many clients share: one client over the limit would block all the others.
    fn warn_of_shared_blocks(&mut self) {
        for (slo, refs) in self.slos.iter().zip(&self.refs).filter(|(slo, _)| slo.block.is_some()) {
            let places = self.key_places(slo.id);
            let names: Vec<&str> = places.iter().map(|&place| self.fields.name(place)).collect();
            if names.iter().all(|name| OF_MANY.contains(name)) {
                let named = match names.is_empty() {
                    true => "the bucket for all requests".to_owned(),
                    false => format!("a key of {}", names.join("+")),
                };
                self.warnings.add(&self.slo_map.path, Some(refs.line), WarningKind::SharedBlock(named));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::policy::Method;

    /// The warnings of a policy, without the folder.
    fn reported_with(layout: &Layout, files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new("maps").join(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let mut policy = Policy::parse(Path::new("maps"), layout, read).unwrap();
        policy.warn_of_traps(layout);
        policy.warnings().to_string().lines().map(|line| line.replacen("maps/", "", 1)).collect()
    }

    fn reported(files: &[(&str, &str)]) -> Vec<String> {
        reported_with(&Layout::default(), files)
    }

    #[test]
    fn a_limit_for_all_clients_together_is_told_with_the_lines_for_each() {
        let lines = reported(&[("slo.map", "# first\n0 burst=20 rate=10/s\n")]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("slo.map:2: SLO 0 is one bucket for all clients together"), "{lines:?}");
        for part in ["`0 rate=unlimited`", "`3001 burst=", "`0.0.0.0/0 3001`", "`::/0 3001`"] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
        let owner = reported(&[
            ("slo.map", "0 burst=20 rate=10/s\n1001 burst=9 rate=9/s"),
            ("owner.map", "acme 1001\n"),
        ]);
        assert_eq!(owner.len(), 1, "{owner:?}");
        // With a limit for each client, that for all is meant.
        for line in ["0 rate=unlimited\n", "0 burst=1 rate=9/s law=concurrency max=9\n"] {
            assert_eq!(reported(&[("slo.map", line)]), [""; 0], "{line}");
        }
        let both =
            [("slo.map", "0 burst=20 rate=10/s\n3001 burst=1 rate=1/s\n"), ("source.map", "::/0 3001\n")];
        assert_eq!(reported(&both), [""; 0]);
    }

    #[test]
    fn an_slo_that_no_map_names_is_told_with_its_map() {
        let slos = "0 rate=unlimited\n1 burst=1 rate=1/s\n2001 burst=1 rate=1/s\n3001 burst=1 rate=1/s\n";
        let lines = reported(&[("slo.map", slos), ("source.map", "192.0.2.1 3001\n")]);
        assert_eq!(
            lines,
            ["slo.map:2: no map names the SLOs 1, 2001: an SLO has no effect until a line in a map names it"]
        );
        let lines =
            reported(&[("slo.map", &slos.replace("\n1 ", "\n3002 ")), ("source.map", "192.0.2.1 3001\n")]);
        assert_eq!(
            lines,
            [
                "slo.map:3: no map names the SLOs 2001, 3002: an SLO has no effect until a line in a map names it"
            ]
        );
    }

    #[test]
    fn all_of_ipv4_without_ipv6_is_told() {
        let slos = ("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/s\n5001 burst=1 rate=1/s\n");
        let of = |source: &str, both: &str| {
            reported(&[slos, ("source.map", source), ("source+website.map", both)])
        };
        let named = "192.0.2.1 3001\n";
        let alone = of("10.0.0.0/8 -1\n0.0.0.0/0 3001\n", "10.0.0.0/8+shop.example 5001\n");
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert!(alone[0].starts_with("source.map:2: ") && alone[0].contains("\"::/0\""), "{alone:?}");
        let rest =
            of(named, "0.0.0.0/0+shop.example 5001\n::/0+blog.example 5001\n0.0.0.0/0+blog.example 5001\n");
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert!(
            rest[0].starts_with("source+website.map:1: ") && rest[0].contains("\"::/0+shop.example\""),
            "{rest:?}"
        );
        let some = "192.0.2.0/24+shop.example 5001\n";
        for source in ["0.0.0.0/0 3001\n::/0 3001\n", "::/0 3001\n", "192.0.2.0/24 3001\n"] {
            assert_eq!(of(source, some), [""; 0], "{source}");
        }
    }

    #[test]
    fn a_map_behind_a_line_for_everything_is_told() {
        let slos =
            |also: &str| format!("0 rate=unlimited\n1001 burst=1 rate=1/s\n3001 burst=1 rate=1/s{also}\n");
        let of = |source: &str, also: &str| {
            reported(&[("slo.map", &slos(also)), ("source.map", source), ("owner.map", "acme 1001\n")])
        };
        let never = of("192.0.2.1 0\n0.0.0.0/0 3001\n::/0 3001\n", "");
        assert_eq!(never.len(), 1, "{never:?}");
        assert!(never[0].starts_with("owner.map: source.map:3 matches every client"), "{never:?}");
        assert!(never[0].contains("also=owner"), "{never:?}");
        let ipv4 = of("0.0.0.0/0 3001\n", "");
        assert!(ipv4.iter().any(|line| line.contains("source.map:1 matches every IPv4 client")), "{ipv4:?}");
        assert_eq!(of("0.0.0.0/0 3001\n::/0 3001\n", " also=owner"), [""; 0], "it is asked");
        assert_eq!(of("192.0.2.0/24 -1\n0.0.0.0/0 3001\n::/0 3001\n", ""), [""; 0], "some go on");
        assert_eq!(of("192.0.2.0/24 3001\n", ""), [""; 0]);
    }

    #[test]
    fn an_expression_for_everything_ends_the_walk_too() {
        let lookup = |field: &str, method| Lookup {
            fields: vec![field.into()],
            file: format!("{field}.map").into(),
            method,
            is_added: false,
        };
        let layout = Layout::default()
            .with_lookups(vec![lookup("path", Method::Reg), lookup("owner", Method::Str)])
            .unwrap();
        let slos = ("slo.map", "0 rate=unlimited\n1001 burst=1 rate=1/s\n");
        let of =
            |paths: &str| reported_with(&layout, &[slos, ("path.map", paths), ("owner.map", "acme 1001\n")]);
        assert_eq!(of("^/api 1001\n"), [""; 0]);
        let lines = of("^/api 1001\n.* 1001\n");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("owner.map: path.map:2 matches every request"), "{lines:?}");
    }

    #[test]
    fn a_field_that_no_file_sends_is_told() {
        let layout =
            |field: &str| Layout::default().with_type(6, vec!["source".into(), field.into()]).unwrap();
        let slos = [("slo.map", "0 rate=unlimited\n")];
        for known in ["path", "method", "User-Agent", "x-api-key", "x_tenant", "owner"] {
            assert_eq!(reported_with(&layout(known), &slos), [""; 0], "{known}");
        }
        let lines = reported_with(&layout("ip"), &slos);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("type 6 has the ip field, which") && lines[0].contains("source, website"),
            "{lines:?}"
        );
        let lookup = Lookup {
            fields: vec!["tenant".into()],
            file: "tenant.map".into(),
            method: Method::Str,
            is_added: false,
        };
        let own = layout("tenant").with_lookups(vec![lookup]).unwrap();
        assert_eq!(reported_with(&own, &slos), [""; 0], "a lookup reads it, so it is meant");
    }

    /// One client that keeps asking would block the website for everybody.
    #[test]
    fn a_block_of_a_key_that_many_have_is_told() {
        let of = |id: u16, map: &str| {
            let slos = format!("0 rate=unlimited\n{id} burst=1 rate=1/s block=1m\n");
            reported(&[("slo.map", &slos), ("source.map", map)])
        };
        for (id, what) in
            [(1, "the bucket for all requests"), (1001, "a key of owner"), (2001, "a key of website")]
        {
            let lines = of(id, &format!("192.0.2.1 {id}\n"));
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(&format!("block= refuses all clients that share {what}")), "{lines:?}");
        }
        for id in [3001, 4001, 5001] {
            assert_eq!(of(id, &format!("192.0.2.1 {id}\n")), [""; 0]);
        }
    }
}
