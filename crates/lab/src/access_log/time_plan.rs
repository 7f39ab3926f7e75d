//! The items of a format that hold the time of a request and its duration.

use crate::access_log::date::{Calendar, TimeForm, decimal};
use crate::access_log::format::Format;
use crate::access_log::slots::{SlotList, Slots};

/// Where a line has its times, and in which form.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimePlan {
    pub(super) noun: &'static str,
    slot: usize,
    form: TimeForm,
    /// HAProxy's `%ms`, beside a time in whole seconds.
    ms: Option<usize>,
    /// The time is the answer's, not the request's.
    is_of_end: bool,
    took: Option<(usize, Took)>,
}

/// The unit of the duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    Milliseconds,
    Seconds,
}

/// Items with a time, the best first: that of the request, of its connection, of its answer.
const TIMES: &[(&str, TimeForm, bool)] = &[
    ("%tr", TimeForm::Clf, false),
    ("%trg", TimeForm::Clf, false),
    ("%trl", TimeForm::Clf, false),
    ("%[request_date(0,us)]", TimeForm::Microseconds, false),
    ("%[request_date(0,ms)]", TimeForm::Milliseconds, false),
    ("%[request_date]", TimeForm::Seconds, false),
    ("%t", TimeForm::Clf, false),
    ("%[accept_date(0,us)]", TimeForm::Microseconds, false),
    ("%[accept_date(0,ms)]", TimeForm::Milliseconds, false),
    ("%[accept_date]", TimeForm::Seconds, false),
    ("%Ts", TimeForm::Seconds, false),
    ("%T", TimeForm::Clf, false),
    ("%Tl", TimeForm::Clf, false),
    ("%[date(0,us)]", TimeForm::Microseconds, true),
    ("%[date(0,ms)]", TimeForm::Milliseconds, true),
    ("%[date]", TimeForm::Seconds, true),
    ("$msec", TimeForm::Seconds, true),
    ("$time_iso8601", TimeForm::Iso8601, true),
    ("$time_local", TimeForm::Clf, true),
];

/// Items with the duration, those without the connection's idle time first.
const TOOK: &[(&str, Took)] = &[
    ("%Ta", Took::Milliseconds),
    ("%Tu", Took::Milliseconds),
    ("%Tt", Took::Milliseconds),
    ("$request_time", Took::Seconds),
];

impl TimePlan {
    /// None: no item of the format holds a time.
    pub(super) fn of(format: &Format, slots: &mut SlotList) -> Option<TimePlan> {
        let find = |noun: &str| format.items().find(|item| item.noun == noun);
        let (noun, item, form, is_of_end) =
            TIMES.iter().find_map(|&(noun, form, is_of_end)| Some((noun, find(noun)?, form, is_of_end)))?;
        let is_whole = matches!(noun, "%Ts" | "%T" | "%Tl");
        let ms = find("%ms").filter(|_| is_whole);
        let took = TOOK.iter().find_map(|&(noun, took)| Some((slots.of(find(noun)?), took)));
        Some(TimePlan {
            noun,
            slot: slots.of(item),
            form,
            ms: ms.map(|item| slots.of(item)),
            is_of_end,
            took,
        })
    }

    /// HAProxy's usual times have no zone.
    pub(super) fn has_zone(&self) -> bool {
        !matches!(self.noun, "%tr" | "%t")
    }

    pub(super) fn tells_how_long(&self) -> bool {
        self.took.is_some()
    }

    /// The time of the request, and its duration.
    pub(super) fn read(&self, slots: &Slots<'_>, calendar: &mut Calendar) -> Option<(u64, Option<u64>)> {
        let mut at_ns = calendar.read(self.form, slots[self.slot]?)?;
        if let Some(ms) = self.ms {
            let ms_ns = decimal(slots[ms]?, 1_000_000).filter(|&ns| ns < 1_000_000_000)?;
            at_ns = at_ns.checked_add(ms_ns)?;
        }
        let took_ns = self.took.and_then(|(slot, took)| {
            let text = slots[slot]?;
            // With `option logasap` HAProxy writes a `+` before the time so far.
            let text = text.strip_prefix(b"+").unwrap_or(text);
            decimal(text, if took == Took::Seconds { 1_000_000_000 } else { 1_000_000 })
        });
        if self.is_of_end {
            at_ns = at_ns.saturating_sub(took_ns.unwrap_or(0));
        }
        Some((at_ns, took_ns))
    }
}
