//! The requests of all logs as one stream, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;
use std::time::Duration;

use crate::access_log::{Log, LogOutcome, LogPlan, LogRecord, Measure, PlanError};
use crate::replay::ReplaySettings;
use crate::replay::order::{Order, RECORDS_MAX};
use slowlane_core::base::{Request, plural, shown, units};

/// Lines read between two reports of progress.
const REPORT_EVERY: u64 = 1 << 15;

/// A log: its name and its bytes.
pub struct Input {
    pub name: String,
    pub bytes: Box<dyn Read>,
}

/// Takes a request, the virtual time, and its record.
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
    /// Recognises the formats. `wanted` returns whether a field is used. `measures`: a policy counts work.
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

    /// Calls `each` with every request, the virtual time and its record.
    ///
    /// It always continues in the log that is furthest behind, so the logs of several proxies or days become one.
    pub(crate) fn each(
        &mut self,
        progress: &mut impl FnMut(u64),
        mut each: impl FnMut(&Request<'_>, u64, &LogRecord),
    ) {
        let mut record = LogRecord::default();
        // The start of a log is known only once its first requests are read. No request is decided before that is
        // so for every log.
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

    /// Takes a record of one log, and decides all requests that no log can still precede.
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
            // All later lines are much earlier, so this time is wrong.
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
            notes.push("some times have a zone, and others have none and were read as UTC".to_owned());
        }
        for (log, (_, line)) in self.logs.iter().filter_map(|log| Some((log, log.went_back()?))) {
            notes.push(format!(
                "{}: the clock goes back at line {line}: the times from there on are read an hour later",
                shown(&log.name)
            ));
        }
        let late = plural(self.late, "request");
        if self.late > 0 && self.order.was_full() {
            notes.push(format!(
                "{late} came after more than {RECORDS_MAX} later ones and got the time of the last: give each proxy's log \
                 as a separate file"
            ));
        } else if self.late > 0 {
            notes.push(format!(
                "{late} came more than {} after later ones and got the time of the last: raise --reorder, or give each \
                 proxy's log as a separate file",
                units::written(Duration::from_nanos(self.reorder_ns))
            ));
        }
        if self.stray > 0 {
            let stray = plural(self.stray, "request");
            notes.push(format!("left out {stray} with a time far ahead of the lines after it"));
        }
        notes
    }
}
