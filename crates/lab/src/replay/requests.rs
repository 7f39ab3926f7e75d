//! The requests of all logs as one stream, in order of arrival, although proxies log a request when they answer it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::mem;
use std::time::Duration;

use crate::access_log::{KEPT_BYTES_MAX, Log, LogOutcome, LogPlan, LogRecord, Measure, PlanError};
use crate::events::EventQueue;
use crate::replay::ReplaySettings;
use slowlane_core::base::{Request, plural, shown, units};

/// The number of lines to read between two reports of progress.
const REPORT_EVERY: u64 = 1 << 15;

/// A log: its name and its bytes.
pub struct Input {
    pub name: String,
    pub bytes: Box<dyn Read>,
}

/// A function that takes a request, the virtual time, and the request's record.
type Each<'e> = dyn FnMut(&Request<'_>, u64, &LogRecord) + 'e;

/// Logs that are being read together.
pub(crate) struct Requests {
    logs: Vec<Log>,
    order: Order,
    reorder_ns: u64,
    /// The virtual time. It never goes back.
    now_ns: u64,
    begun_ns: Option<u64>,
    late: u64,
    stray: u64,
}

impl Requests {
    /// Opens the logs and recognises their formats. `wanted` tells whether a field is used. `measures` is given if a
    /// policy counts work.
    pub(crate) fn open(
        inputs: Vec<Input>,
        settings: &ReplaySettings,
        wanted: &dyn Fn(&str) -> bool,
        measures: Option<&[Measure]>,
    ) -> Result<Requests, PlanError> {
        let open = |(number, Input { name, bytes })| {
            Log::open(name, bytes, &settings.format, &settings.mappings, wanted, measures, number)
        };
        let logs = (0..).zip(inputs).map(open).collect::<Result<Vec<Log>, PlanError>>()?;
        let reorder_ns = u64::try_from(settings.reorder.as_nanos()).unwrap_or(u64::MAX);
        let order = Order::new(reorder_ns);
        Ok(Requests { logs, order, reorder_ns, now_ns: 0, begun_ns: None, late: 0, stray: 0 })
    }

    /// Calls `each` with every request, the virtual time and the request's record.
    ///
    /// Reading always continues in the log furthest behind, so the logs of several proxies or days become one stream.
    pub(crate) fn each(
        &mut self,
        progress: &mut impl FnMut(u64),
        mut each: impl FnMut(&Request<'_>, u64, &LogRecord),
    ) {
        let mut record = LogRecord::default();
        // The start time of a log is unknown until its first requests are read, so no request is judged before every
        // log has been started.
        let mut next: BinaryHeap<_> = (0..self.logs.len()).map(|number| Reverse((0, number))).collect();
        let (mut lines, mut reported) = (0, 0);
        while let Some(Reverse((_, number))) = next.pop() {
            let others_ns = next.peek().map_or(u64::MAX, |&Reverse((at_ns, _))| at_ns);
            loop {
                let log = &mut self.logs[number];
                let (before, back) = (log.lines.number(), log.went_back());
                if !log.next(&mut record) {
                    break;
                }
                if let Some(back) = log.went_back().filter(|_| back.is_none()) {
                    self.logs.iter_mut().for_each(|log| log.follow(back));
                }
                self.take(&mut record, number, others_ns, &mut each);
                lines += self.logs[number].lines.number() - before;
                if lines - reported >= REPORT_EVERY {
                    progress(lines);
                    reported = lines;
                }
                let come_to_ns = self.logs[number].come_to_ns;
                if come_to_ns > others_ns {
                    next.push(Reverse((come_to_ns, number)));
                    break;
                }
            }
        }
        self.finish(&mut record, &mut each);
    }

    /// Keeps a record of one log, then passes on the kept requests, up to the first that an unread request may precede.
    fn take(&mut self, record: &mut LogRecord, log: usize, others_ns: u64, each: &mut Each<'_>) {
        self.order.keep(record);
        let come_to_ns = self.logs[log].come_to_ns.min(others_ns);
        while self.order.due(come_to_ns, record) {
            self.give(record, each);
        }
    }

    fn finish(&mut self, record: &mut LogRecord, each: &mut Each<'_>) {
        let ends_ns = self.logs.iter().map(Log::ends_ns).max().unwrap_or(0);
        while self.order.next(record) {
            // All lines after this record have much earlier times, so the record's time is wrong.
            if record.at_ns > ends_ns.saturating_add(self.reorder_ns) {
                self.stray += 1;
            } else {
                self.give(record, each);
            }
        }
    }

    fn give(&mut self, record: &LogRecord, each: &mut Each<'_>) {
        self.begun_ns.get_or_insert(record.at_ns);
        self.late += u64::from(record.at_ns < self.now_ns);
        self.now_ns = self.now_ns.max(record.at_ns);
        let plan = self.logs[record.log as usize].plan.as_ref();
        let request = record.request(plan.map_or(&[][..], |plan| &plan.names));
        each(&request, self.now_ns, record);
    }

    /// The plans of the logs whose format is known.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &LogPlan> {
        self.logs.iter().filter_map(|log| log.plan.as_ref())
    }

    /// The times of the first and the last request.
    pub(crate) fn span_ns(&self) -> (u64, u64) {
        (self.begun_ns.unwrap_or(0), self.now_ns)
    }

    pub(crate) fn outcomes(&self) -> Vec<LogOutcome> {
        self.logs.iter().map(Log::outcome).collect()
    }

    /// Notes on the reliability of the times.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.plans().any(|plan| plan.times.has_zone()) && self.plans().any(|plan| !plan.times.has_zone()) {
            notes.push("some times have a time zone; times without a time zone were read as UTC".to_owned());
        }
        for (log, (_, line)) in self.logs.iter().filter_map(|log| Some((log, log.went_back()?))) {
            notes.push(format!(
                "{}: the clock goes back at line {line}, so an hour was added to the times from that line on",
                shown(&log.name)
            ));
        }
        let late = plural(self.late, "request");
        if self.late > 0 && self.order.was_full {
            notes.push(format!(
                "{late} followed more than {RECORDS_MAX} requests that arrived later, and got the time of \
                 the last of these: give each proxy's log as a separate file"
            ));
        } else if self.late > 0 {
            notes.push(format!(
                "{late} arrived more than {} before requests on earlier lines, and got the time of the last \
                 of these: raise --reorder, or give each proxy's log as a separate file",
                units::written(Duration::from_nanos(self.reorder_ns))
            ));
        }
        if self.stray > 0 {
            let stray = plural(self.stray, "request");
            notes.push(format!("left out {stray} with times far ahead of the times on the following lines"));
        }
        notes
    }
}

/// The maximum number of requests that are held back.
const RECORDS_MAX: usize = 1 << 18;

/// The maximum memory for the fields of held requests.
const BYTES_MAX: usize = 64 << 20;

/// Holds requests back until no earlier request is expected.
#[derive(Debug)]
struct Order {
    patience_ns: u64,
    waiting: EventQueue<LogRecord>,
    free: Vec<LogRecord>,
    bytes: usize,
    /// Whether a request was released early because there was no room.
    was_full: bool,
}

impl Order {
    /// A line may come after the lines of requests that arrived up to `patience_ns` later.
    fn new(patience_ns: u64) -> Order {
        Order { patience_ns, waiting: EventQueue::default(), free: Vec::new(), bytes: 0, was_full: false }
    }

    /// Takes a record, and leaves an empty record in its place.
    fn keep(&mut self, record: &mut LogRecord) {
        record.bytes.shrink_to(KEPT_BYTES_MAX);
        self.bytes += record.bytes.capacity();
        let kept = mem::replace(record, self.free.pop().unwrap_or_default());
        self.waiting.enter(kept.at_ns, kept);
    }

    /// Takes the next record in order, if no earlier record is expected from logs that have reached this time, or if
    /// there is no room left. Returns false if no record may be taken yet.
    fn due(&mut self, come_to_ns: u64, record: &mut LogRecord) -> bool {
        let is_full = self.waiting.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX;
        if self.next_before(come_to_ns.saturating_add(1).saturating_sub(self.patience_ns), record) {
            return true;
        }
        self.was_full |= is_full;
        is_full && self.next(record)
    }

    /// Takes the next record in order. Returns false if there is no record left.
    fn next(&mut self, record: &mut LogRecord) -> bool {
        self.next_before(u64::MAX, record)
    }

    fn next_before(&mut self, end_ns: u64, record: &mut LogRecord) -> bool {
        let Some((_, next)) = self.waiting.next_before(end_ns) else { return false };
        self.bytes -= next.bytes.capacity();
        let mut free = mem::replace(record, next);
        free.clear();
        self.free.push(free);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access_log::VALUE_BYTES_MAX;

    /// The times of the requests in the order in which they leave.
    fn ordered(times: &[u64], patience_ns: u64) -> Vec<u64> {
        let mut order = Order::new(patience_ns);
        let mut given = Vec::new();
        let mut record = LogRecord::default();
        let mut come_to_ns = 0;
        for &at_ns in times {
            record.clear();
            record.at_ns = at_ns;
            order.keep(&mut record);
            come_to_ns = come_to_ns.max(at_ns);
            while order.due(come_to_ns, &mut record) {
                given.push(record.at_ns);
            }
        }
        while order.next(&mut record) {
            given.push(record.at_ns);
        }
        given
    }

    #[test]
    fn it_waits_no_longer_than_needed() {
        let mut order = Order::new(10);
        let mut record = LogRecord::default();
        for at_ns in [5, 3] {
            record.at_ns = at_ns;
            order.keep(&mut record);
        }
        assert!(!order.due(12, &mut record));
        assert!(order.due(13, &mut record) && record.at_ns == 3);
        assert!(!order.due(14, &mut record) && order.due(15, &mut record));
    }

    /// Memory counts, not letters: a buffer may be larger than its text.
    #[test]
    fn long_fields_take_bounded_memory() {
        let mut order = Order::new(1);
        let mut record = LogRecord::default();
        let mut kept = 0;
        for at_ns in 0..100_000 {
            record.clear();
            record.at_ns = at_ns;
            record.bytes.reserve(8 * VALUE_BYTES_MAX);
            record.bytes.extend([b'a'; VALUE_BYTES_MAX]);
            order.keep(&mut record);
            while order.due(0, &mut record) {}
            kept = kept.max(order.waiting.len());
        }
        assert!(kept > 60_000 && order.was_full, "{kept}");
        let spare = |order: &Order| order.free.iter().map(|record| record.bytes.capacity()).sum::<usize>();
        let count = order.waiting.len() + order.free.len();
        let bytes = order.bytes + spare(&order);
        assert!(bytes <= BYTES_MAX + count * KEPT_BYTES_MAX, "{bytes}");
        while order.next(&mut record) {}
        assert_eq!(order.bytes, 0);
        assert!(spare(&order) <= order.free.len() * KEPT_BYTES_MAX, "{}", spare(&order));
    }

    proptest! {
        #[test]
        fn requests_within_patience_leave_in_order(gaps in prop::collection::vec((0u64..20, 0u64..10), 0..100)) {
            let mut now = 100;
            let times: Vec<u64> = gaps.iter().map(|&(gap, late)| { now += gap; now - late }).collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            prop_assert_eq!(ordered(&times, 10), sorted);
        }

        #[test]
        fn nothing_is_lost(times in prop::collection::vec(0u64..1000, 0..100)) {
            let mut given = ordered(&times, 10);
            let mut times = times;
            times.sort_unstable();
            given.sort_unstable();
            prop_assert_eq!(given, times);
        }
    }
}
