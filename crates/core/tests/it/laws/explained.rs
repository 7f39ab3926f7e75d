//! The explanations of the laws, word for word, with numbers worked out by hand.

use slowlane_core::law::{Arrival, Assured, Scale};
use slowlane_core::table::Entry;

use super::oracle::{Subject, at_ms, objective};

/// The explanation of a request of this cost and sharer, which changes nothing.
fn explained(subject: &Subject, cost: u32, sharer: u64, ms: u64) -> String {
    let arrival = Arrival { cost, sharer, ..Arrival::at(at_ms(ms)) };
    subject.law.explain(
        &Scale::of(subject.slo.objective.rate),
        &subject.entry,
        subject.aux.as_ref(),
        &arrival,
    )
}

#[test]
fn adaptive_compares_what_it_let_through_with_twice_the_rate() {
    let quiet = Subject::new("burst=20 rate=10/s law=adaptive jitter=0");
    assert_eq!(
        explained(&quiet, 1, 0, 0),
        "http_req_cnt 1 - burst 20 + slo 10 = -9 <= 0, not throttled; floor(accepted 0 / over 2) = 0 <= slo 10"
    );
    let mut busy = Subject::new("burst=0 rate=10/s law=adaptive jitter=0");
    for _ in 0..21 {
        busy.ask(at_ms(0));
    }
    let text = explained(&busy, 1, 0, 0);
    assert!(text.ends_with("; floor(accepted 21 / over 2) = 10 <= slo 10"), "{text}");
    busy.ask(at_ms(0));
    let text = explained(&busy, 1, 0, 0);
    assert!(text.ends_with("; floor(accepted 22 / over 2) = 11 > slo 10"), "{text}");
}

#[test]
fn an_assured_rate_shows_what_is_used_of_its_burst() {
    let (assured, mut entry) = (Assured::new(objective(20, "10/s")), Entry::default());
    assured.charge(&mut entry, 3, at_ms(0));
    assert_eq!(assured.explain(&entry, 1, at_ms(0)), "used 3 + cost 1 <= burst 20 at 10/s");
    assured.charge(&mut entry, 17, at_ms(0));
    assert_eq!(assured.explain(&entry, 1, at_ms(0)), "used 20 + cost 1 > burst 20 at 10/s");
}

/// A slot takes a tenth of a second. The second request of the first source has the first slot, so another source has
/// the second.
#[test]
fn fair_shows_its_tokens_and_the_slot() {
    let mut subject = Subject::new("burst=1 rate=10/s law=fair");
    subject.ask_of(1, at_ms(0));
    assert_eq!(explained(&subject, 1, 1, 200), "no queue; tokens 1 >= cost 1");
    assert_eq!(
        explained(&subject, 1, 1, 0),
        "tokens 0 - 0 kept for others = 0 < cost 1; slots taken: 0, other sources waiting: 0, this source's \
         turn: from slot 1 on; the request's slot of 1 / 10/s begins in 100 ms <= max_delay 5s"
    );
    subject.ask_of(1, at_ms(0));
    assert_eq!(
        explained(&subject, 1, 2, 0),
        "tokens 0 - 0 kept for others = 0 < cost 1; slots taken: 1, other sources waiting: 1, this source's \
         turn: from slot 1 on; the request's slot of 1 / 10/s begins in 200 ms <= max_delay 5s"
    );
}

#[test]
fn leaky_bucket_explains_itself_as_token_bucket() {
    let mut subject = Subject::new("burst=10 rate=10/s law=leaky-bucket");
    subject.ask_for(3, at_ms(0));
    assert_eq!(explained(&subject, 2, 0, 0), "tokens 7 of burst 10 >= cost 2");
    subject.ask_for(7, at_ms(0));
    assert_eq!(explained(&subject, 1, 0, 0), "tokens 0 of burst 10 < cost 1; wait = 1 / 10/s = 100 ms");
}

/// Ten in the first half of a second have left both halves of the window when the next second begins.
#[test]
fn sliding_buckets_shows_a_wait_where_waiting_helps() {
    let mut subject = Subject::new("burst=0 rate=10/s law=sliding-buckets buckets=2");
    assert_eq!(
        explained(&subject, 4, 0, 499),
        "sum 0 of 2 sub-windows + cost 4 = 4 <= N 10 (10/s in 1s); plus 0 of the previous sub-window = 4 <= \
         N + N / 2 = 15"
    );
    assert_eq!(explained(&subject, 11, 0, 499), "sum 0 of 2 sub-windows + cost 11 = 11 > N 10 (10/s in 1s)");
    subject.ask_for(10, at_ms(499));
    assert_eq!(
        explained(&subject, 1, 0, 998),
        "sum 10 of 2 sub-windows + cost 1 = 11 > N 10 (10/s in 1s); wait 2 ms"
    );
}

#[test]
fn sliding_log_waits_for_the_oldest_to_be_forgotten() {
    let mut subject = Subject::new("burst=0 rate=3/s law=sliding-log");
    subject.ask(at_ms(0));
    subject.ask(at_ms(400));
    assert_eq!(
        explained(&subject, 1, 0, 500),
        "2 let through in the last 1s + cost 1 = 3 <= N 3 (3/s in 1s)"
    );
    assert_eq!(
        explained(&subject, 2, 0, 500),
        "2 let through in the last 1s + cost 2 = 4 > N 3 (3/s in 1s); wait 500 ms"
    );
}

/// Adobe's example. One request too many waits until one more of the four has faded, in a quarter of a second.
#[test]
fn sliding_window_adds_both_windows_and_the_cost() {
    let mut subject = Subject::new("burst=0 rate=5/s law=sliding-window");
    subject.ask_for(4, at_ms(900));
    subject.ask_for(2, at_ms(1_250));
    assert_eq!(
        explained(&subject, 1, 0, 1_500),
        "prev 4 * (1s - 500 ms) / 1s + curr 2 + cost 1 = 5 <= N 5 (5/s in 1s)"
    );
    assert_eq!(
        explained(&subject, 2, 0, 1_500),
        "prev 4 * (1s - 500 ms) / 1s + curr 2 + cost 2 = 6 > N 5 (5/s in 1s); wait 250 ms"
    );
}
