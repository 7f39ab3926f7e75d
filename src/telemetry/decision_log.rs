//! The decision log: some of the decisions, a line of JSON each, for whoever wants to know who was delayed and why.
//!
//! ```text
//! {"time":"2026-11-21T09:55:09.123Z","verdict":"delay","delay_ms":400,"slo":3001,"key":"0A7C…","rate":52,
//!  "remaining":0,"cost":1,"fields":{"source":"192.0.2.66","website":"shop.example"}}
//! ```
//! Nobody waits for it: a line is made only of a decision that is wanted, drawn, and within the lines of this second;
//! then it goes into a bounded queue, from which a thread of its own writes. What finds the queue full is counted.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::request::Value;
use crate::telemetry::log::OncePerSecond;
use crate::telemetry::metrics::DecisionLogMetrics;
use crate::time::Timestamp;
use crate::verdict::{Decision, Verdict};

/// What is logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub place: Place,
    pub sample: Sample,
    /// The most lines of any second.
    pub per_second: u32,
    pub kinds: Vec<Kind>,
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Stdout,
    File(PathBuf),
}

/// A kind of verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Pass,
    Delay,
    Deny,
}

impl Kind {
    fn of(verdict: Verdict) -> Kind {
        match verdict {
            Verdict::Pass => Kind::Pass,
            Verdict::Delay(_) => Kind::Delay,
            Verdict::Deny { .. } => Kind::Deny,
        }
    }
}

/// The part of the decisions that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// As one of 64 random bits: what is not above it is drawn.
    most: u64,
}

impl Sample {
    /// Some part, up to all: more than 0, and at most 1.
    ///
    /// ```
    /// use slowlane::telemetry::decision_log::Sample;
    /// assert!(Sample::new(1.0).unwrap().draws(u64::MAX));
    /// assert!(!Sample::new(0.5).unwrap().draws(u64::MAX));
    /// assert!(Sample::new(0.0).is_none());
    /// ```
    pub fn new(part: f64) -> Option<Sample> {
        // The largest number is rounded up, and then cut to what there is.
        (part > 0.0 && part <= 1.0).then(|| Sample { most: (part * 2f64.powi(64)) as u64 })
    }

    pub fn draws(self, bits: u64) -> bool {
        bits <= self.most
    }
}

/// Lines that wait to be written: some 300 bytes each.
const QUEUE_MAX: usize = 4096;

/// A value of a client is told up to here.
const VALUE_CHARS_MAX: usize = 200;

/// How often it is asked whether the file is still the one of its name: it is moved away to be rotated.
const LOOK: Duration = Duration::from_secs(1);

/// How long the end waits for what is queued.
const GOODBYE: Duration = Duration::from_secs(1);

/// The log, as those see it who decide.
#[derive(Debug)]
pub struct DecisionLog {
    queue: SyncSender<Message>,
    sample: Sample,
    quota: PerSecond,
    wants: [bool; 3],
    metrics: DecisionLogMetrics,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Tell when all before it is written.
    Flush(SyncSender<()>),
}

impl DecisionLog {
    /// Opens the place, and starts the thread that writes there.
    pub fn start(settings: &Settings, metrics: DecisionLogMetrics) -> io::Result<DecisionLog> {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let writer = Writer::open(&settings.place, metrics.clone())?;
        thread::Builder::new().name("decision log".into()).spawn(move || writer.run(&messages))?;
        let wants = [Kind::Pass, Kind::Delay, Kind::Deny].map(|kind| settings.kinds.contains(&kind));
        let quota = PerSecond::new(settings.per_second);
        Ok(DecisionLog { queue, sample: settings.sample, quota, wants, metrics })
    }

    /// Whether a decision is to be written: by its verdict, by what an SLO of a dry run would have said, by chance, and by how
    /// many have been in this second.
    pub fn wants(&self, decision: &Decision, now: Timestamp, draw: impl FnOnce() -> u64) -> bool {
        let is_kind = |verdict| self.wants[Kind::of(verdict) as usize];
        let shadow = decision.judged().iter().filter(|judged| judged.is_dry_run);
        if !is_kind(decision.verdict) && !shadow.map(|judged| judged.verdict).any(is_kind) {
            return false;
        }
        if !self.sample.draws(draw()) {
            return false;
        }
        let is_within = self.quota.take(now);
        if !is_within {
            self.metrics.dropped_rate.inc();
        }
        is_within
    }

    /// Queues a line of a decision, or counts it as dropped. `rate` is that of its key, `fields` are what it was made from.
    pub fn write<'a>(
        &self,
        decision: &Decision,
        rate: u32,
        fields: impl Iterator<Item = (&'a [u8], Value<'a>)>,
    ) {
        match self.queue.try_send(Message::Line(line(decision, rate, fields))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.metrics.dropped_queue.inc();
            }
        }
    }

    /// Waits until what is queued has been written, for a second at most.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        let deadline = Instant::now() + GOODBYE;
        let mut message = Message::Flush(done);
        loop {
            match self.queue.try_send(message) {
                Err(TrySendError::Full(unsent)) if Instant::now() < deadline => message = unsent,
                Err(_) => return,
                Ok(()) => break,
            }
            thread::sleep(Duration::from_millis(10));
        }
        // In vain: the place takes no more, and the end has waited long enough.
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// So many in each second of the clock.
#[derive(Debug)]
struct PerSecond {
    most: u32,
    /// The second, and how many have been in it: its low half.
    state: AtomicU64,
}

impl PerSecond {
    fn new(most: u32) -> PerSecond {
        PerSecond { most, state: AtomicU64::new(0) }
    }

    fn take(&self, now: Timestamp) -> bool {
        let second = (now.as_nanos() / 1_000_000_000) << 32;
        let next = |state: u64| {
            let count = if state & !u64::from(u32::MAX) == second { state & u64::from(u32::MAX) } else { 0 };
            (count < self.most.into()).then_some(second | (count + 1))
        };
        self.state.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

fn line<'a>(decision: &Decision, rate: u32, fields: impl Iterator<Item = (&'a [u8], Value<'a>)>) -> String {
    let mut line = String::with_capacity(320);
    write_line(&mut line, decision, rate, fields).expect("a string takes all that is written");
    line
}

fn write_line<'a>(
    line: &mut String,
    decision: &Decision,
    rate: u32,
    fields: impl Iterator<Item = (&'a [u8], Value<'a>)>,
) -> fmt::Result {
    let &Decision { verdict, slo, key, remaining, cost, at, .. } = decision;
    write!(line, "{{\"time\":\"{}\",\"verdict\":\"{}\"", Utc(at), verdict.name())?;
    match verdict {
        Verdict::Pass => {}
        Verdict::Delay(_) => write!(line, ",\"delay_ms\":{}", verdict.delay_ms())?,
        Verdict::Deny { retry_after_s } => write!(line, ",\"retry_after_s\":{retry_after_s}")?,
    }
    write!(line, ",\"slo\":{},\"key\":\"{key}\",\"rate\":{rate},\"remaining\":{remaining}", slo.number())?;
    write!(line, ",\"cost\":{cost}")?;
    for (number, judged) in decision.judged().iter().filter(|judged| judged.is_dry_run).enumerate() {
        let start = if number == 0 { ",\"dry_run\":{" } else { "," };
        write!(line, "{start}\"{}\":\"{}\"", judged.slo.number(), judged.verdict.name())?;
    }
    if decision.judged().iter().any(|judged| judged.is_dry_run) {
        line.push('}');
    }
    line.push_str(",\"fields\":{");
    let mut names: Vec<&[u8]> = Vec::new();
    for (name, value) in fields {
        // Of several of one name the first counts.
        if names.contains(&name) {
            continue;
        }
        line.push_str(if names.is_empty() { "" } else { "," });
        names.push(name);
        write_text(line, name)?;
        line.push(':');
        match value {
            Value::Address(address) => write!(line, "\"{address}\"")?,
            Value::Number(number) => write!(line, "{number}")?,
            Value::Text(text) => write_text(line, text)?,
        }
    }
    line.push_str("}}\n");
    Ok(())
}

/// A text of a client as a JSON string that is ASCII and of one line, whatever it is read with: quotes, control
/// characters and whatever is not ASCII are escaped, what is no UTF-8 is replaced, and what is too long is cut.
fn write_text(line: &mut String, bytes: &[u8]) -> fmt::Result {
    // A character has four bytes at most.
    let is_cut = bytes.len() > VALUE_CHARS_MAX * 4;
    let text = String::from_utf8_lossy(if is_cut { &bytes[..VALUE_CHARS_MAX * 4] } else { bytes });
    line.push('"');
    let mut chars = text.chars();
    for c in chars.by_ref().take(VALUE_CHARS_MAX) {
        match c {
            '"' | '\\' => write!(line, "\\{c}")?,
            ' '..='~' => line.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(line, "\\u{unit:04x}")?;
                }
            }
        }
    }
    if is_cut || chars.next().is_some() {
        line.push_str("...");
    }
    line.push('"');
    Ok(())
}

/// A moment as RFC 3339 has it, in UTC, to the millisecond.
struct Utc(Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_nanos() / 1_000_000;
        let (day, second) = (ms / 86_400_000, ms / 1000 % 86_400);
        let (year, month, day) = civil(day);
        write!(f, "{year:04}-{month:02}-{day:02}T")?;
        write!(f, "{:02}:{:02}:{:02}.{:03}Z", second / 3600, second / 60 % 60, second % 60, ms % 1000)
    }
}

/// Year, month and day of a number of days since 1970-01-01, as Howard Hinnant's `civil_from_days` has it: years begin
/// in March, so that the day that some have and others do not is their last.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, of_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + of_next_year, month, day)
}

/// The thread that writes.
struct Writer {
    out: Box<dyn Write + Send>,
    file: Option<Opened>,
    metrics: DecisionLogMetrics,
    failed_line: OncePerSecond,
    started: Instant,
    /// The last write may have ended within a line.
    is_torn: bool,
}

/// Which file it is that is written to.
struct Opened {
    path: PathBuf,
    identity: (u64, u64),
    looked_at: Instant,
}

impl Writer {
    fn open(place: &Place, metrics: DecisionLogMetrics) -> io::Result<Writer> {
        let (out, file): (Box<dyn Write + Send>, _) = match place {
            Place::Stdout => (Box::new(io::stdout()), None),
            Place::File(path) => {
                let (file, opened) = open(path)?;
                (Box::new(file), Some(opened))
            }
        };
        let (failed_line, started) = (OncePerSecond::default(), Instant::now());
        Ok(Writer { out, file, metrics, failed_line, started, is_torn: false })
    }

    /// Until the last who could queue something is gone.
    fn run(mut self, messages: &Receiver<Message>) {
        let (mut lines, mut count) = (String::new(), 0);
        while let Ok(message) = messages.recv() {
            let mut told = Vec::new();
            // What has come meanwhile is written with it.
            for message in std::iter::once(message).chain(messages.try_iter().take(QUEUE_MAX)) {
                match message {
                    Message::Line(line) => {
                        lines.push_str(&line);
                        count += 1;
                    }
                    Message::Flush(done) => told.push(done),
                }
            }
            self.write(&lines, count);
            lines.clear();
            count = 0;
            for done in told {
                // Whoever waited may have given up.
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self, lines: &str, count: u64) {
        // A full disk may have taken half a line: the next is not to be a part of it.
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = self.follow().and_then(|()| self.out.write_all(end));
        let written = written.and_then(|()| self.out.write_all(lines.as_bytes()));
        match written.and_then(|()| self.out.flush()) {
            Ok(()) => {
                self.is_torn = false;
                self.metrics.lines.inc_by(count);
            }
            Err(error) => {
                self.is_torn = true;
                self.metrics.dropped_write.inc_by(count);
                let now = Timestamp::from_millis(1) + self.started.elapsed();
                if let Some(unsaid) = self.failed_line.allow(now) {
                    tracing::error!(unsaid, "cannot write to the decision log: {error}");
                }
            }
        }
    }

    /// Opens the file again if another one has taken its name, or none has.
    fn follow(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if file.looked_at.elapsed() < LOOK {
            return Ok(());
        }
        file.looked_at = Instant::now();
        let found = fs::metadata(&file.path).map(|found| (found.dev(), found.ino()));
        if !found.is_ok_and(|identity| identity == file.identity) {
            let (out, opened) = open(&file.path)?;
            (self.out, self.file) = (Box::new(out), Some(opened));
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, Opened)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let found = file.metadata()?;
    let opened =
        Opened { path: path.to_owned(), identity: (found.dev(), found.ino()), looked_at: Instant::now() };
    Ok((file, opened))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Key;
    use crate::slo_id::SloId;
    use crate::telemetry::metrics::Metrics;
    use crate::verdict::Judged;

    fn decision(verdict: Verdict, is_dry_run: bool) -> Decision {
        let (slo, key) = (SloId::new(3001).unwrap(), Key::from_bits(255));
        let judged = Judged { slo, key, verdict, remaining: 4, is_dry_run, counts_end: false };
        Decision::of(&[judged], 2, Timestamp::from_millis(1_793_267_709_123))
    }

    fn log(sample: f64, per_second: u32, kinds: &[Kind]) -> (DecisionLog, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let place = Place::File(file.path().to_owned());
        let sample = Sample::new(sample).unwrap();
        let settings = Settings { place, sample, per_second, kinds: kinds.to_vec() };
        (DecisionLog::start(&settings, Metrics::new().decision_log).unwrap(), file)
    }

    const DELAY: Verdict = Verdict::Delay(Duration::from_micros(1_500));
    const NOW: Timestamp = Timestamp::from_millis(60_000);

    #[test]
    fn a_line_tells_all_about_a_decision() {
        let address = Value::address("2001:db8::1".parse().unwrap());
        let fields: [(&[u8], Value<'_>); 4] = [
            (b"source", address),
            (b"cost", Value::Number(-2)),
            (b"a\"b", Value::Text(b"\x1b]0;\xff\n\\")),
            (b"cost", Value::Number(3)),
        ];
        let line = line(&decision(DELAY, false), 52, fields.into_iter());
        let want = concat!(
            r#"{"time":"2026-10-29T09:55:09.123Z","verdict":"delay","delay_ms":2,"slo":3001,"#,
            r#""key":"00000000000000FF","rate":52,"remaining":4,"cost":2,"#,
            r#""fields":{"source":"2001:db8::1","cost":-2,"a\"b":"\u001b]0;\ufffd\u000a\\"}}"#,
            "\n"
        );
        assert_eq!(line, want);
        let of = |decision| super::line(&decision, 0, std::iter::empty());
        assert!(
            of(decision(Verdict::Deny { retry_after_s: 3 }, false))
                .contains(r#""verdict":"deny","retry_after_s":3,"slo""#)
        );
        assert!(of(decision(DELAY, true)).contains(r#""verdict":"pass","slo":3001"#));
        assert!(of(decision(DELAY, true)).contains(r#","dry_run":{"3001":"delay"},"fields":{}}"#));
    }

    #[test]
    fn moments_are_told_as_the_calendar_has_them() {
        let told = |seconds: u64| Utc(Timestamp::from_millis(seconds * 1000)).to_string();
        assert_eq!(told(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(told(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(told(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(told(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(told(1_735_689_599), "2024-12-31T23:59:59.000Z");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn only_what_is_wanted_is_written() {
        let (log, _file) = log(1.0, 1000, &[Kind::Deny]);
        let wants = |decision| log.wants(&decision, NOW, || 0);
        assert!(!wants(decision(Verdict::Pass, false)));
        assert!(!wants(decision(DELAY, false)));
        assert!(wants(decision(Verdict::Deny { retry_after_s: 1 }, false)));
        assert!(wants(decision(Verdict::Deny { retry_after_s: 1 }, true)), "it would have been denied");
        assert!(!wants(decision(DELAY, true)));
    }

    #[test]
    fn a_second_has_so_many_lines_and_no_more() {
        let (log, _file) = log(1.0, 3, &[Kind::Delay]);
        let wanted = |now| (0..10).filter(|_| log.wants(&decision(DELAY, false), now, || 0)).count();
        assert_eq!(wanted(NOW), 3);
        assert_eq!(wanted(NOW + Duration::from_millis(999)), 0);
        assert_eq!(wanted(NOW + Duration::from_millis(1000)), 3);
        assert_eq!(log.metrics.dropped_rate.get(), 24);
        // Chance comes first: what was not drawn is no drop.
        let half = Sample::new(0.5).unwrap();
        assert!(half.draws(0) && half.draws(u64::MAX / 2) && !half.draws(u64::MAX / 2 + 2));
        assert_eq!([0.0, -1.0, 1.1, f64::NAN].map(Sample::new), [None; 4]);
    }

    /// The writer hangs: the queue fills up, the rest is counted, and nobody waits.
    #[test]
    fn who_decides_does_not_wait_for_who_writes() {
        let (mut log, _file) = log(1.0, 1000, &[Kind::Delay]);
        let (queue, messages) = sync_channel(4);
        log.queue = queue;
        for _ in 0..10 {
            log.write(&decision(DELAY, false), 0, std::iter::empty());
        }
        assert_eq!((messages.try_iter().count(), log.metrics.dropped_queue.get()), (4, 6));
        drop(messages);
        log.write(&decision(DELAY, false), 0, std::iter::empty());
        assert_eq!(log.metrics.dropped_queue.get(), 7);
        log.flush();
    }

    #[test]
    fn what_is_queued_is_written_when_it_is_asked_for() {
        let (log, file) = log(1.0, 1000, &[Kind::Delay]);
        for _ in 0..100 {
            log.write(&decision(DELAY, false), 0, std::iter::empty());
        }
        log.flush();
        assert_eq!(fs::read_to_string(file.path()).unwrap().lines().count(), 100);
        assert_eq!(log.metrics.lines.get(), 100);
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["log", "log.1"].map(|name| folder.path().join(name));
        let mut writer = Writer::open(&Place::File(path.clone()), Metrics::new().decision_log).unwrap();
        writer.write("one\n", 1);
        fs::rename(&path, &moved).unwrap();
        writer.write("two\n", 1);
        let file = writer.file.as_mut().unwrap();
        file.looked_at = file.looked_at.checked_sub(LOOK).unwrap();
        writer.write("three\n", 1);
        assert_eq!(fs::read_to_string(moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "three\n");
    }

    /// Takes so many bytes, and then no more until there is room again.
    struct Disk {
        room: usize,
        taken: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 && !bytes.is_empty() {
                self.room = usize::MAX;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_has_cut_off_spoils_no_other_line() {
        let taken = std::sync::Arc::<std::sync::Mutex<Vec<u8>>>::default();
        let mut writer = Writer::open(&Place::Stdout, Metrics::new().decision_log).unwrap();
        writer.out = Box::new(Disk { room: 6, taken: taken.clone() });
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            writer.write(line, 1);
        }
        assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), "one\ntw\nthree\nfour\n");
        assert_eq!((writer.metrics.lines.get(), writer.metrics.dropped_write.get()), (3, 1));
    }

    proptest! {
        /// Whatever a client calls itself: a JSON reader gets it back, and a terminal gets nothing to obey.
        #[test]
        fn any_text_is_one_plain_line_of_json(bytes in prop::collection::vec(any::<u8>(), 0..1200), text in "\\PC{0,300}") {
            for bytes in [&bytes[..], text.as_bytes()] {
                let mut line = String::new();
                write_text(&mut line, bytes).unwrap();
                prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                let read: String = serde_json::from_str(&line).unwrap();
                let whole = String::from_utf8_lossy(bytes);
                match read.strip_suffix("...").filter(|_| read != whole) {
                    Some(cut) => prop_assert_eq!(cut.chars().count(), VALUE_CHARS_MAX),
                    None => prop_assert_eq!(read, whole),
                }
            }
        }

        #[test]
        fn a_whole_line_is_json_whatever_its_fields_are(
            fields in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..9), prop::collection::vec(any::<u8>(), 0..9)), 0..9),
        ) {
            let fields = fields.iter().map(|(name, value)| (&name[..], Value::Text(value)));
            let line = line(&decision(DELAY, true), 1, fields);
            let read: serde_json::Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&read["slo"], 3001);
            prop_assert_eq!(line.matches('\n').count(), 1);
        }
    }
}
