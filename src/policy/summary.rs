//! A policy in a few words, for a log: the number of lines in each file.

use crate::policy::generation::Policy;
use crate::policy::read::size::MapSize;

impl Policy {
    /// `2 SLOs; source.map 5 lines, website.map 0 lines`, with the maps that exist.
    pub fn summary(&self) -> String {
        let maps = self.sizes.iter().filter_map(|MapSize { file, lines }| {
            Some(format!("{} {}", file.display(), plural((*lines)?, "line")))
        });
        with_maps(plural(self.slos.len(), "SLO"), maps)
    }

    /// Whether any SLO has a limit. Without one, slowlane only counts.
    pub fn has_limits(&self) -> bool {
        self.slos.iter().any(|slo| !slo.objective.rate.is_unlimited())
    }

    /// The summary of a policy that replaces another: `source.map 0 lines (before: 5)`.
    pub fn summary_after(&self, before: &Policy) -> String {
        let mut slos = plural(self.slos.len(), "SLO");
        if self.slos.len() != before.slos.len() {
            slos += &format!(" (before: {})", before.slos.len());
        }
        let maps = self.sizes.iter().filter_map(|MapSize { file, lines }| {
            let was = before.sizes.iter().find(|was| was.file == *file).and_then(|was| was.lines);
            let now = lines.map(|lines| plural(lines, "line"));
            let text = match (now, was) {
                (None, None) => return None,
                (Some(now), Some(was)) if *lines == Some(was) => now,
                (Some(now), Some(was)) => format!("{now} (before: {was})"),
                (Some(now), None) => format!("{now} (new)"),
                (None, Some(was)) => format!("gone (before: {})", plural(was, "line")),
            };
            Some(format!("{} {text}", file.display()))
        });
        with_maps(slos, maps)
    }
}

fn with_maps(slos: String, maps: impl Iterator<Item = String>) -> String {
    let maps: Vec<String> = maps.collect();
    if maps.is_empty() { format!("{slos}; no maps") } else { format!("{slos}; {}", maps.join(", ")) }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::policy::Layout;

    fn policy(files: &[(&str, &str)]) -> Policy {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| path == Path::new(name));
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Policy::parse(Path::new(""), &Layout::default(), read).unwrap()
    }

    #[test]
    fn every_existing_map_is_listed_with_its_lines() {
        let slos = ("slo.map", "0 burst=1 rate=1/s\n3001 burst=1 rate=1/s\n");
        let full = policy(&[slos, ("source.map", "# ours\n::1 3001\n::2 3001\n"), ("website.map", "a 0\n")]);
        assert_eq!(full.summary(), "2 SLOs; source.map 2 lines, website.map 1 line");
        let emptied = policy(&[("slo.map", "0 burst=1 rate=1/s"), ("source.map", ""), ("owner.map", "a 0")]);
        assert_eq!(emptied.summary(), "1 SLO; source.map 0 lines, owner.map 1 line");
        assert_eq!(
            emptied.summary_after(&full),
            "1 SLO (before: 2); source.map 0 lines (before: 2), website.map gone (before: 1 line), \
             owner.map 1 line (new)"
        );
        assert_eq!(full.summary_after(&full), full.summary());
        assert_eq!(Policy::builtin().summary(), "1 SLO; no maps");
    }
}
