//! Pages: groups of requests that take about the same time, so that a longer time means a queue.

use hashbrown::HashTable;

use crate::base::Key;
use crate::law::protect::limit::TOO_FAST;
use crate::law::protect::probe::FALL;

/// The maximum number of pages with their own place. All other pages share one place, so that clients gain nothing from
/// made-up paths.
const PAGES_MAX: usize = 256;

/// The page of all requests whose own page has no place.
pub(super) const REST: u16 = 0;

/// A page loses its place after at most this many checks without a request in between.
const USES_MAX: u8 = 16;

/// The estimated work of a request before any request of its page has ended.
const WORK_NS: f64 = 30e6;

/// The weight of one request's end in the mean work of its page, after many ends.
const WORK_WEIGHT: f64 = 0.02;

/// The weight of one request's end in the base of its page while nothing queues.
const IDLE_WEIGHT: f64 = 0.006;

/// A probe with this many request ends weighs as much as the old base.
const PROBE_ENDS: f64 = 8.0;

/// A base is steady after a probe whose mean differed from it by less than this, as a difference of logarithms.
const STEADY: f64 = 0.5;

/// A steady base falls by at most this much in one probe if the requests in the probe took less than a third of the
/// base. Errors come back at once: a probe that measures errors must not leave the base far below the time of the page.
const SINK: f64 = 0.25;

/// The measured times of one page, and how much the page is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageTimes {
    key: Key,
    uses: u8,
    /// The number of the page's requests that wait or are inside.
    pending: u32,
    work_ns: f64,
    ends: u32,
    /// The mean logarithm of the page's time in nanoseconds while nothing queues. None if not known yet.
    base: Option<f64>,
    is_steady: bool,
    /// The request ends in the current stage of a probe, and in the stage before it.
    stage: ProbedEnds,
    before: ProbedEnds,
}

/// How many requests of a page ended in one stage of a probe, and the sum of the logarithms of their times.
#[derive(Clone, Copy, Debug, Default)]
struct ProbedEnds {
    sum: f64,
    ends: u32,
}

impl ProbedEnds {
    fn mean(&self) -> Option<f64> {
        (self.ends > 0).then(|| self.sum / f64::from(self.ends))
    }
}

impl PageTimes {
    fn new(key: Key) -> PageTimes {
        PageTimes {
            key,
            uses: 1,
            pending: 0,
            work_ns: WORK_NS,
            ends: 0,
            base: None,
            is_steady: false,
            stage: ProbedEnds::default(),
            before: ProbedEnds::default(),
        }
    }

    /// The estimated work of a request, before it ends.
    pub(super) fn work_ns(&self) -> i64 {
        self.work_ns as i64
    }

    /// The time that a request takes while nothing queues.
    pub(super) fn base_ns(&self) -> Option<f64> {
        self.base.map(f64::exp)
    }

    pub(super) fn learn_work(&mut self, work_ns: i64) {
        self.ends = self.ends.saturating_add(1);
        let weight = WORK_WEIGHT.max(1.0 / (f64::from(self.ends) + 1.0));
        self.work_ns += (work_ns as f64 - self.work_ns) * weight;
    }

    /// How much longer a time is than the base, as a difference of logarithms.
    pub(super) fn excess(&self, log_ns: f64) -> Option<f64> {
        self.base.map(|base| log_ns - base)
    }

    /// Learns from a request that ended while nothing queued.
    pub(super) fn learn_idle(&mut self, log_ns: f64) {
        let base = self.base.unwrap_or(log_ns);
        self.base = Some(base + (log_ns - base) * IDLE_WEIGHT);
    }

    /// Counts a request that has ended in the current stage of a probe.
    pub(super) fn probe(&mut self, log_ns: f64) {
        self.stage.sum += log_ns;
        self.stage.ends += 1;
    }

    fn next_stage(&mut self) {
        self.before = std::mem::take(&mut self.stage);
    }

    /// Learns from the last stage of a probe, and from the stage before it if nothing queued there either.
    fn learn_probe(&mut self, has_queued: bool) {
        let (stage, mut before) = (std::mem::take(&mut self.stage), std::mem::take(&mut self.before));
        if has_queued {
            before = ProbedEnds::default();
        }
        let probed = ProbedEnds { sum: stage.sum + before.sum, ends: stage.ends + before.ends };
        if let Some(mean) = probed.mean() {
            let (base, ends) = (self.base.unwrap_or(mean), f64::from(probed.ends));
            let is_fast = self.is_steady && mean - base < TOO_FAST;
            let least = if is_fast { -SINK } else { f64::NEG_INFINITY };
            self.is_steady |= self.base.is_some() && (mean - base).abs() < STEADY;
            self.base = Some(base + ((mean - base) * ends / (ends + PROBE_ENDS)).max(least));
        }
    }
}

/// The pages of an application, and one page that all other pages share.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pages: Vec<PageTimes>,
    numbers: HashTable<u16>,
    /// The place that was checked last for an unknown page.
    hand: usize,
}

impl Pages {
    pub(super) fn new() -> Pages {
        let rest = PageTimes::new(Key::from_bits(0));
        Pages { pages: vec![rest], numbers: HashTable::new(), hand: 0 }
    }

    /// Counts a new request, and returns the number of its page.
    pub(super) fn enter(&mut self, key: Key) -> u16 {
        let pages = &self.pages;
        let known = self.numbers.find(key.bits(), |&number| pages[usize::from(number)].key == key);
        let number = known.copied().or_else(|| self.place(key)).unwrap_or(REST);
        let page = self.at(number);
        page.uses = (page.uses + 1).min(USES_MAX);
        page.pending += 1;
        number
    }

    /// Stops counting a request of this page.
    pub(super) fn leave(&mut self, number: u16) {
        self.at(number).pending -= 1;
    }

    pub(super) fn at(&mut self, number: u16) -> &mut PageTimes {
        &mut self.pages[usize::from(number)]
    }

    pub(super) fn next_stage(&mut self) {
        self.pages.iter_mut().for_each(PageTimes::next_stage);
    }

    /// How far the times have fallen from the previous stage of a probe to this stage, as the mean difference of
    /// logarithms. None if no page has request ends in both stages, as in the first stage.
    pub(super) fn fall(&self) -> Option<f64> {
        let mut fall = ProbedEnds::default();
        for PageTimes { stage, before, .. } in &self.pages {
            if let Some(before) = before.mean().filter(|_| stage.ends > 0) {
                fall.sum += before * f64::from(stage.ends) - stage.sum;
                fall.ends += stage.ends;
            }
        }
        fall.mean()
    }

    pub(super) fn learn_probe(&mut self) {
        let has_queued = self.fall().is_some_and(|fall| fall > FALL);
        self.pages.iter_mut().for_each(|page| page.learn_probe(has_queued));
    }

    /// Finds a place for an unknown page, as the clock algorithm does (Corbató, 1968): each check takes one use away
    /// from the page at the hand; if that page has no uses or pending requests left, it is replaced. None if the page
    /// at the hand stays. A page that gets at least one request in 256 keeps its place.
    fn place(&mut self, key: Key) -> Option<u16> {
        let number = match self.pages.len() {
            number @ ..=PAGES_MAX => {
                self.pages.push(PageTimes::new(key));
                number
            }
            _ => {
                self.hand = self.hand % PAGES_MAX + 1;
                let page = &mut self.pages[self.hand];
                page.uses = page.uses.saturating_sub(1);
                if page.uses > 0 || page.pending > 0 {
                    return None;
                }
                let (old, hand) = (page.key, self.hand as u16);
                *page = PageTimes::new(key);
                if let Ok(entry) = self.numbers.find_entry(old.bits(), |&number| number == hand) {
                    entry.remove();
                }
                self.hand
            }
        } as u16;
        let pages = &self.pages;
        self.numbers.insert_unique(key.bits(), number, |&number| pages[usize::from(number)].key.bits());
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(pages: &mut Pages, bits: u64) -> u16 {
        let number = pages.enter(Key::from_bits(bits));
        pages.leave(number);
        number
    }

    #[test]
    fn made_up_pages_take_no_place_of_a_page_in_use() {
        let mut pages = Pages::new();
        let own: Vec<u16> = (1..=100).map(|page| ask(&mut pages, page)).collect();
        for made_up in 0..100_000 {
            ask(&mut pages, 1_000_000 + made_up);
            ask(&mut pages, 1 + made_up % 100);
        }
        let after: Vec<u16> = (1..=100).map(|page| ask(&mut pages, page)).collect();
        assert_eq!((own, pages.pages.len()), (after, PAGES_MAX + 1));
    }

    #[test]
    fn a_new_page_takes_the_place_of_one_out_of_use() {
        let mut pages = Pages::new();
        (1..=PAGES_MAX as u64).for_each(|page| _ = ask(&mut pages, page));
        let asked = (0..10_000).find(|_| ask(&mut pages, 1_000) != REST);
        assert!(asked.is_some_and(|asked| asked < 600), "{asked:?}");
    }

    #[test]
    fn a_page_with_pending_requests_stays() {
        let mut pages = Pages::new();
        let pending: Vec<u16> =
            (1..=PAGES_MAX as u64).map(|page| pages.enter(Key::from_bits(page))).collect();
        assert!((0..10_000).all(|made_up| ask(&mut pages, 1_000 + made_up) == REST));
        pending.into_iter().for_each(|number| pages.leave(number));
    }

    #[test]
    fn a_base_is_the_time_of_quiet_and_of_probes() {
        let mut page = PageTimes::new(Key::from_bits(1));
        assert_eq!(page.excess(18.0), None);
        page.learn_idle(18.0);
        assert_eq!(page.excess(18.5), Some(0.5));
        (0..8).for_each(|_| page.probe(18.4));
        page.learn_probe(false);
        assert!((page.excess(18.5).unwrap() - 0.3).abs() < 1e-9, "eight ends weigh as much as the past");
    }
}
