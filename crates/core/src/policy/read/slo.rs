//! `slo.map`: the SLOs, one per line.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::base::{Ends, Quota, Rate, Sharing, SloId, UNCOUNTED, Unit, units};
use crate::law::{Assured, Judgement, Law, Objective, OptionError, Options, Scale};
use crate::policy::read::work::Work;
use crate::policy::{
    Answer, BURST_YEARS_MAX, Layout, Line, MapFile, PolicyErrorKind, PolicyErrors, SKETCHES_BYTES_MAX,
    SLO_LINES_MAX, map, quoted,
};

/// A Service Level Objective: a rate, a burst and the law that enforces them.
///
/// ```
/// use slowlane_core::{policy::Slo, base::SloId};
/// let slo = Slo::parse(SloId::DEFAULT, "burst=100 rate=50/s law=pace max_delay=2s").unwrap();
/// assert_eq!((slo.objective.burst, slo.law.name()), (100, "pace"));
/// assert!(Slo::parse(SloId::DEFAULT, "burst=100").is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    pub id: SloId,
    pub objective: Objective,
    pub law: Law,
    /// Whether the SLO decides, counts and reports as usual, but lets all requests pass.
    pub dry_run: bool,
    /// Whether the SLO is a quota of Envoy's rate limit service: if the SLO refuses a request, the request is
    /// refused only if all its other quotas refuse it too.
    pub is_quota: bool,
    /// The SLO's name in Envoy's rate limit service, and the names of the SLOs that do not count a request if
    /// this SLO does.
    pub name: Option<String>,
    pub replaces: Vec<String>,
    /// How long a key stays blocked after a refusal.
    pub block: Option<Duration>,
    /// The lookup that finds a second SLO for the same request.
    pub also: Option<String>,
    /// The rate that each key is guaranteed, whatever the SLOs above this one decide.
    pub assured: Option<Assured>,
    /// How the nodes of a cluster share the SLO, and whether the SLO's line says so.
    pub sharing: Sharing,
    pub is_sharing_given: bool,
    /// The fields that distinguish clients, outermost first, for a law that shares the limit among clients.
    pub share: Vec<String>,
    /// The fields that name a page for `protect`. Page response times show whether requests queue in the application.
    pub page: Vec<String>,
    /// How the SLO counts work. None if it counts requests. Otherwise the objective is in grains of work.
    pub work: Option<Box<Work>>,
    /// When the end of a request must be reported: never, unless the law or the unit needs it.
    pub ends: Ends,
}

/// The default field of a page: the first segment of the path.
const PAGE: &str = "page";

/// The fields of a page that hold a path, of which only the first segment counts.
pub(in crate::policy) const PATHS: [&str; 2] = [PAGE, "path"];

/// The default field by which `fair` shares, and the default fields for `protect`.
const SHARE_DEFAULT: &str = "source";
const SHARE_OF_PROTECT: &str = "network+source";
const PAGE_DEFAULT: [&str; 2] = ["method", PAGE];

/// The maximum number of fields that `share=` takes.
pub(in crate::policy) const SHARE_MAX: usize = 4;

impl Slo {
    /// Whether the SLO has no limit and only counts requests. The `protect` law has no rate, but is a limit.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.law, Law::Open(_))
    }

    /// The quota to show to clients. None for a dry run, or if there is no limit.
    pub fn quota(&self) -> Option<Quota> {
        let quota = self.law.quota(self.objective).filter(|_| !self.dry_run)?;
        Some(match (quota, &self.work) {
            (Quota::Window { requests, window_s }, Some(work)) => Quota::Work {
                amount: self.units(requests as f64) as u64,
                window_s,
                unit: work.unit.quota_unit(),
            },
            (quota, _) => quota,
        })
    }

    /// The allowance of a client, in words.
    pub fn describe(&self) -> String {
        match &self.work {
            Some(work) => work.describe(&self.law),
            None => self.law.describe(self.objective),
        }
    }

    /// The rate as the SLO's line gives it.
    pub fn rate(&self) -> String {
        self.scale().rate
    }

    /// The scale in which explanations write the SLO's numbers.
    pub(crate) fn scale(&self) -> Scale {
        self.work.as_ref().map_or_else(|| Scale::of(self.objective.rate), |work| work.scale())
    }

    /// The unit in which the SLO counts work. None if it counts requests.
    pub fn unit(&self) -> Option<&Unit> {
        self.work.as_ref().map(|work| &work.unit)
    }

    /// Converts a number of the SLO's grains to its unit.
    pub fn units(&self, grains: f64) -> f64 {
        self.work.as_ref().map_or(grains, |work| grains * work.grain())
    }

    /// The amount that would still pass at once after a judgement: requests, or whole units of work.
    #[inline]
    pub fn remaining(&self, judgement: &Judgement) -> u32 {
        match judgement.remaining {
            grains if self.ends.is_work() && grains != UNCOUNTED => self.units(f64::from(grains)) as u32,
            remaining => remaining,
        }
    }

    /// A tag that distinguishes the states of keys under different laws and units: see [`Law::state_tag`].
    pub(in crate::policy) fn state_tag(&self) -> u32 {
        self.law.state_tag() ^ self.work.as_ref().map_or(0, |work| work.state_tag())
    }

    /// How long a ticket stays open.
    pub(crate) fn lease(&self) -> Duration {
        self.work.as_ref().map_or_else(|| self.law.memory(), |work| work.lease)
    }

    /// Reads `burst=<n> rate=<n>/<s|m|h|d|month> [unit=<name> [reserve=<amount>] [lease=<duration>]] [law=<name>]
    /// [dry_run=yes] [quota=yes] [also=<lookup> [assured=<rate>]] [cluster=<mode>] [block=<duration>]
    /// [option=value …]`, in any order. Also reads `rate=unlimited [dry_run=yes] [also=<lookup>]`.
    ///
    /// # Errors
    /// All faults in the line, but only the first fault in the law's own options.
    pub fn parse(id: SloId, text: &str) -> Result<Slo, Vec<PolicyErrorKind>> {
        let mut kinds = Vec::new();
        let mut options = options(text, &mut kinds);
        let is_protect = options.get("law") == Some(Law::PROTECT);
        let is_unlimited = !is_protect && options.get("rate") == Some(units::UNLIMITED);
        let dry_run = keep(options.choice("dry_run", ["yes", "no"]), &mut kinds).flatten() == Some("yes");
        let is_quota = keep(options.choice("quota", ["yes", "no"]), &mut kinds).flatten() == Some("yes");
        let name = options.take("name");
        let replaces = options.take("replaces").unwrap_or_default();
        let replaces: Vec<String> =
            replaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let also = options.take("also");
        let work = if is_unlimited { Ok(None) } else { Work::take(&mut options) };
        // If the unit is unknown, the other options cannot be read.
        let Some(work) = keep(work, &mut kinds) else { return Err(kinds) };
        let (burst, rate) = if let Some(work) = &work {
            if is_protect {
                kinds.push(OptionError::unfit("unit", work.unit.name(), "a law other than protect").into());
            }
            (None, None)
        } else if is_protect {
            (None, Some(Rate::UNLIMITED))
        } else if is_unlimited {
            options.take("rate");
            kinds.extend(options.take_rest().map(of_no_limit));
            (None, Some(Rate::UNLIMITED))
        } else {
            let burst = options.count("burst", 0..=u32::MAX);
            let burst = keep(needed(burst, PolicyErrorKind::NoBurst), &mut kinds);
            let rate = options.rate("rate");
            (burst, keep(needed(rate, PolicyErrorKind::NoRate), &mut kinds))
        };
        let law = options.take("law");
        let modes = Sharing::ALL.map(Sharing::name);
        let sharing = keep(options.choice("cluster", modes), &mut kinds).flatten().and_then(Sharing::named);
        let block = keep(options.duration_of("block", BLOCK_MIN), &mut kinds).flatten();
        if work.is_some()
            && let Some(given) = options.take("assured")
        {
            kinds.push(OptionError::unfit("assured", &given, "an SLO without unit=").into());
        }
        let assured = keep(options.rate("assured"), &mut kinds).flatten();
        let share = options.get("share").unwrap_or(if is_protect { SHARE_OF_PROTECT } else { SHARE_DEFAULT });
        let share: Vec<String> = share.split('+').map(str::to_owned).collect();
        let page = if is_protect {
            options.take("share");
            options.take("page").map_or(PAGE_DEFAULT.map(str::to_owned).to_vec(), |page| vec![page])
        } else {
            Vec::new()
        };

        if let (Some(burst), Some(rate)) = (burst, rate)
            && !rate.is_zero()
            && rate.slot().checked_mul(burst).is_none_or(|time| time > BURST_TIME_MAX)
        {
            kinds.push(PolicyErrorKind::BurstTime { burst, rate });
        }
        // A missing number counts as 0, so that the law's own options are checked too.
        let objective = Objective { burst: burst.unwrap_or(0), rate: rate.unwrap_or(Rate::ZERO) };
        let law = law.as_deref().unwrap_or(Law::DEFAULT_NAME);
        let made = match work {
            Some(work) => work.law(law, &options).map(|(work, objective, law)| (Some(work), objective, law)),
            None if is_protect => Law::protect(options).map(|law| (None, objective, law)),
            None => Law::new(law, objective, options).map(|law| (None, objective, law)),
        };
        let Some((work, objective, law)) = keep(made, &mut kinds) else { return Err(kinds) };
        if let Some(assured) = assured {
            kinds.extend(error_of_assured(assured, &law, objective.rate, also.is_some()));
        }
        let known = sharings(&law, work.is_some());
        if let Some(sharing) = sharing.filter(|sharing| !known.contains(sharing)) {
            let sharing = sharing.name();
            kinds.push(PolicyErrorKind::Sharing { sharing, law: law.name(), known });
        }
        if kinds.is_empty() && !objective.rate.is_zero() && law.refuses_first() {
            kinds.push(PolicyErrorKind::NonePasses { burst: objective.burst, rate: objective.rate });
        }
        if also.is_none() && law.sketched().is_some_and(|law| law.is_first_stage) {
            kinds.push(PolicyErrorKind::NoAlso);
        }
        let share = if law.is_shared() || is_protect { share } else { Vec::new() };
        if share.iter().chain(&page).any(String::is_empty) {
            return Err(vec![PolicyErrorKind::NoShare]);
        }
        if share.len() > SHARE_MAX {
            return Err(vec![PolicyErrorKind::ShareMax { law: law.name(), most: SHARE_MAX }]);
        }
        if !kinds.is_empty() {
            return Err(kinds);
        }
        Ok(Slo {
            id,
            objective,
            law,
            dry_run,
            is_quota,
            name,
            replaces,
            block,
            also,
            assured: assured.map(|rate| Assured::new(Objective { rate, ..objective })),
            sharing: sharing.unwrap_or(known[0]),
            is_sharing_given: is_unlimited || sharing.is_some(),
            share,
            page,
            ends: ends(work.as_ref(), &law),
            work: work.map(Box::new),
        })
    }
}

fn ends(work: Option<&Work>, law: &Law) -> Ends {
    match work {
        Some(work) if work.unit.is_of_stream() => Ends::WithStream,
        Some(_) => Ends::WithResponse,
        None if law.counts_ends() => Ends::InFlight,
        None => Ends::Never,
    }
}

/// The ways in which nodes can share an SLO. `lease` promises that a quota is never exceeded, which is impossible for
/// work.
fn sharings(law: &Law, is_work: bool) -> &'static [Sharing] {
    match law.sharings() {
        [Sharing::Lease, rest @ ..] if is_work => rest,
        [Sharing::Count, Sharing::Lease, ..] if is_work => &[Sharing::Count, Sharing::Split, Sharing::Local],
        known => known,
    }
}

/// The shortest block. A shorter one is probably a mistake, because `retry_after` counts whole seconds.
const BLOCK_MIN: Duration = Duration::from_secs(1);

const BURST_TIME_MAX: Duration = Duration::from_secs(BURST_YEARS_MAX * 366 * 86_400);

fn options(text: &str, kinds: &mut Vec<PolicyErrorKind>) -> Options {
    let mut options: Vec<(&str, &str)> = Vec::new();
    for word in text.split_ascii_whitespace() {
        if word.starts_with('#') {
            kinds.push(PolicyErrorKind::Comment(quoted(word.as_bytes())));
            break;
        }
        match word.split_once('=') {
            None | Some(("", _)) => kinds.push(PolicyErrorKind::Word(quoted(word.as_bytes()))),
            Some((name, _)) if options.iter().any(|&(given, _)| given == name) => {
                kinds.push(PolicyErrorKind::OptionTwice(quoted(name.as_bytes())));
            }
            Some(option) => options.push(option),
        }
    }
    Options::new(options)
}

fn keep<T>(read: Result<T, impl Into<PolicyErrorKind>>, kinds: &mut Vec<PolicyErrorKind>) -> Option<T> {
    read.map_err(|kind| kinds.push(kind.into())).ok()
}

fn needed<T>(read: Result<Option<T>, OptionError>, missing: PolicyErrorKind) -> Result<T, PolicyErrorKind> {
    read?.ok_or(missing)
}

fn of_no_limit((name, value): (String, String)) -> PolicyErrorKind {
    PolicyErrorKind::OfNoLimit(quoted(format!("{name}={value}").as_bytes()))
}

/// The reason why this rate cannot be assured, if there is one. A closed SLO may keep its assured rate.
fn error_of_assured(assured: Rate, law: &Law, rate: Rate, has_also: bool) -> Option<PolicyErrorKind> {
    // The rate of `concurrency` is not a limit.
    let is_limit = !law.counts_ends() && !rate.is_zero();
    match has_also {
        _ if assured.is_zero() => Some(PolicyErrorKind::NoAssured(assured)),
        false => Some(PolicyErrorKind::AssuredAlone(assured)),
        true if is_limit && assured.slot() < rate.slot() => {
            Some(PolicyErrorKind::AssuredOver { assured, rate })
        }
        true => None,
    }
}

/// The SLOs of a policy, ordered by id.
#[derive(Debug, Default)]
pub(in crate::policy) struct Slos {
    pub(in crate::policy) sorted: Vec<Slo>,
    /// The number of the line with each id, whether or not the line is valid.
    pub(in crate::policy) lines: BTreeMap<SloId, usize>,
    /// Whether `slo.map` could not be read. If so, maps may name any id, so that only one problem is reported.
    is_unread: bool,
}

impl Slos {
    pub(in crate::policy) fn read(file: &MapFile, layout: &Layout, errors: &mut PolicyErrors) -> Slos {
        let path = &file.path;
        let mut slos = Slos::default();
        match &file.text {
            Ok(text) => slos.read_lines(path, text, layout, errors),
            Err(error) => {
                errors.add(path, None, PolicyErrorKind::of_slo_map(error));
                slos.is_unread = true;
            }
        }
        slos
    }

    fn read_lines(&mut self, path: &Path, text: &[u8], layout: &Layout, errors: &mut PolicyErrors) {
        for line in map::lines(text) {
            match line {
                Ok(line) => self.read_line(line, layout, |kind| errors.add(path, Some(line.number), kind)),
                Err((number, kind)) => errors.add(path, Some(number), kind),
            }
        }
        if !self.lines.contains_key(&SloId::DEFAULT) {
            errors.add(path, None, PolicyErrorKind::NoDefault);
        }
        self.sorted.sort_by_key(|slo| slo.id);
        self.check_sketches(|line, bytes| errors.add(path, Some(line), PolicyErrorKind::Sketches(bytes)));
    }

    /// Reports the line of the first SLO, in order of id, at which all sketches together take too much memory.
    fn check_sketches(&self, report: impl FnOnce(usize, usize)) {
        let mut bytes = 0;
        let over = self.sorted.iter().find(|slo| {
            bytes += slo.law.sketched().map_or(0, |law| law.shape.bytes());
            bytes > SKETCHES_BYTES_MAX
        });
        if let Some(slo) = over {
            report(self.lines[&slo.id], bytes);
        }
    }

    fn read_line(&mut self, line: Line<'_>, layout: &Layout, mut report: impl FnMut(PolicyErrorKind)) {
        let id = match id(line.key, layout) {
            Ok(id) => id,
            Err(kind) => return report(kind),
        };
        // HAProxy would silently use the first line with an id.
        if let Some(&first) = self.lines.get(&id) {
            return report(PolicyErrorKind::SloTwice { id, first });
        }
        if self.sorted.len() == SLO_LINES_MAX {
            return report(PolicyErrorKind::TooManySlos);
        }
        self.lines.insert(id, line.number);
        match Slo::parse(id, &String::from_utf8_lossy(line.value)) {
            Ok(mut slo) => match slo.also.as_ref().filter(|&also| !layout.has_lookup(also)) {
                Some(also) => report(PolicyErrorKind::Also {
                    name: quoted(also.as_bytes()),
                    lookups: layout.lookup_list(),
                }),
                None => {
                    slo.law.follow(layout.wall);
                    self.sorted.push(slo);
                }
            },
            Err(kinds) => kinds.into_iter().for_each(report),
        }
    }

    /// The answer for an id in a map. A faulty SLO causes no additional faults in the maps that name it.
    pub(in crate::policy) fn answer(&self, id: SloId) -> Result<Answer, PolicyErrorKind> {
        match self.sorted.binary_search_by_key(&id, |slo| slo.id) {
            Ok(place) => Ok(Answer::slo(place)),
            Err(_) if self.is_unread || self.lines.contains_key(&id) => Ok(Answer::NEXT),
            Err(_) => Err(PolicyErrorKind::NoSuchSlo(id.number().into())),
        }
    }

    /// The fields of all `share` and `page` options.
    pub(in crate::policy) fn shares(&self) -> impl Iterator<Item = &str> {
        self.sorted.iter().flat_map(|slo| slo.share.iter().chain(&slo.page)).map(String::as_str)
    }

    /// Whether an SLO reserves the work that requests announce.
    pub(in crate::policy) fn are_announced(&self) -> bool {
        self.sorted.iter().filter_map(|slo| slo.work.as_ref()).any(|work| work.is_announced())
    }
}

fn id(key: &[u8], layout: &Layout) -> Result<SloId, PolicyErrorKind> {
    let number = str::from_utf8(key).ok().and_then(units::whole);
    let id = number.and_then(SloId::new).ok_or_else(|| PolicyErrorKind::Id(quoted(key)))?;
    if layout.has_type(id.kind()) {
        Ok(id)
    } else {
        Err(PolicyErrorKind::Type { id, types: layout.type_list() })
    }
}
