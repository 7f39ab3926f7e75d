//! The law of the drift, worked out by hand from the formula in `cluster/view.rs`: what one node expects of the others.

use std::time::Duration;

use slowlane_core::base::Timestamp;
use slowlane_core::cluster::{Message, OnSilence, Plan, Reply, Stats, View};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// The demand fades within this time: 200 requests at 100/s.
const MEMORY_S: f64 = 2.0;

/// At 100/s with a longest delay of five seconds: a request is 10 ms.
fn plan(burst: f64, nodes: u32) -> Plan {
    let (max_delay, period) = (Duration::from_secs(5), Duration::from_millis(100));
    let (silent_after, on_silence) = (Duration::from_millis(500), OnSilence::Share);
    Plan {
        rate_per_s: 100.0,
        burst,
        max_delay,
        period,
        silent_after,
        on_silence,
        nodes,
        phase: 0.0,
        round_trip: Duration::ZERO,
        is_work: false,
    }
}

fn at(ms: u64) -> Timestamp {
    START + Duration::from_millis(ms)
}

/// The store answers: the TAT lies so far ahead, the node asks so often in a second, and the others so often.
struct Answer {
    ahead_s: f64,
    own_per_s: f64,
    others_per_s: f64,
    round_trip_ms: u64,
    age_s: f64,
}

/// Of an old record, at once.
fn answer(ahead_s: f64, own_per_s: f64, others_per_s: f64) -> Answer {
    Answer { ahead_s, own_per_s, others_per_s, round_trip_ms: 0, age_s: 1e6 }
}

impl Answer {
    fn reach(&self, view: &mut View, plan: &Plan, ms: u64) {
        let message = Message { own: self.own_per_s * MEMORY_S, ..Message::new(plan) };
        let demand = (self.own_per_s + self.others_per_s) * MEMORY_S;
        let &Answer { ahead_s, age_s, round_trip_ms, .. } = self;
        let reply = Reply { ahead_s, demand, slow_demand: demand, age_s, grant: None };
        let plan = Plan { round_trip: Duration::from_millis(round_trip_ms), ..*plan };
        view.reply(&plan, &message, &reply, at(ms));
    }

    /// A view that knows nothing but this.
    fn view(&self, plan: &Plan) -> View {
        let mut view = View::new(plan, START);
        self.reach(&mut view, plan, 0);
        view
    }
}

fn stats(view: &View, plan: &Plan, ms: u64) -> Stats {
    view.clone().stats(plan, at(ms))
}

/// To a tenth of a millisecond.
#[track_caller]
fn assert_near(number: f64, expected: f64) {
    assert!((number - expected).abs() < 1e-4, "{number} is not {expected}");
}

/// The delay, or the time after which the request would get through.
fn judge(view: &mut View, plan: &Plan, cost: f64, ms: u64) -> Result<f64, f64> {
    view.judge(plan, cost, at(ms)).map(|delay| delay.as_secs_f64()).map_err(|wait| wait.as_secs_f64())
}

/// The others ask for half of the rate. They have not yet reported what they took in half a period, 50 ms: 25 ms of
/// the rate. While there is a debt, half of what they take is charged as time goes by.
#[test]
fn the_view_drifts_by_what_the_others_take() {
    let plan = plan(10.0, 2);
    let view = answer(1.0, 0.0, 50.0).view(&plan);
    let now = stats(&view, &plan, 0);
    assert_near(now.others_per_s, 50.0);
    assert_near(now.ahead_s, 1.025);
    assert_near(stats(&view, &plan, 100).ahead_s, 1.025 + 0.5 * 0.05 - 0.1);
}

/// Others that ask for a tenth of the rate send on average each second message only, so half as much is outstanding.
#[test]
fn others_that_seldom_ask_have_seldom_something_to_report() {
    let plan = plan(10.0, 2);
    assert_near(stats(&answer(1.0, 0.0, 10.0).view(&plan), &plan, 0).ahead_s, 1.0 + 0.1 * 0.025);
}

/// Of a burst of a second, half is left.
#[test]
fn without_debt_the_others_take_all_of_it_as_time_goes_by_unless_the_rate_is_nearly_used_up() {
    let plan = plan(100.0, 2);
    for (others_per_s, part) in [(94.0, 1.0), (96.0, 0.5)] {
        let (view, speed) = (answer(-0.5, 0.0, others_per_s).view(&plan), others_per_s / 100.0);
        assert_near(stats(&view, &plan, 0).ahead_s, -0.5 + speed * 0.05);
        assert_near(stats(&view, &plan, 100).ahead_s, -0.5 + speed * 0.05 - 0.1 + part * speed * 0.1);
    }
}

/// A node with a quarter of the demand expects one request: half of the three that the others take meanwhile are
/// charged with it. The next one is a surprise, and the others are taken to be surprised alike: it counts four times.
#[test]
fn a_request_that_was_not_foreseen_counts_for_the_others_too() {
    let plan = plan(10.0, 2);
    let mut view = answer(1.0, 25.0, 75.0).view(&plan);
    let before_s = 1.0 + 0.75 * 0.05;
    for charged_s in [0.0, 0.025, 0.065] {
        assert_near(judge(&mut view, &plan, 1.0, 0).unwrap(), before_s + charged_s + 0.01);
    }
}

/// A node that has all of the demand, five times the rate. Between 4.8 and 5 s only the allowance gets through. It
/// grows by the rate, and by a factor that falls from 2 to 0 there: 1.45 at 4.855 s after 5 ms, so 0.725, and 0.75
/// after 10 ms.
#[test]
fn near_the_longest_delay_only_the_allowance_gets_through() {
    let plan = plan(10.0, 2);
    let mut view = View::new(&plan, START);
    assert_near(judge(&mut view, &plan, 1_000.0, 0).unwrap_err(), 10.0 - 0.1 - 4.8);
    answer(4.85, 500.0, 0.0).reach(&mut view, &plan, 0);
    assert_near(judge(&mut view, &plan, 1.0, 0).unwrap(), 4.86);
    assert_near(judge(&mut view, &plan, 1.0, 0).unwrap_err(), 4.87 - 4.8);
    assert_near(judge(&mut view, &plan, 1.0, 5).unwrap_err(), 4.865 - 4.8);
    assert_near(judge(&mut view, &plan, 1.0, 10).unwrap(), 4.86);
    assert_near(judge(&mut view, &plan, 1.0, 10).unwrap_err(), 4.87 - 4.8);
}

#[test]
fn what_is_let_through_is_owed_until_the_store_answers_or_it_is_taken_back() {
    let plan = plan(10.0, 2);
    let mut view = View::new(&plan, START);
    assert_eq!(view.debt(), 0.0);
    // Four of ten tokens are foreseen, and each of the rest counts for two nodes.
    assert_eq!(view.remaining(&plan, START), 7);
    judge(&mut view, &plan, 20.0, 0).unwrap();
    judge(&mut view, &plan, 2.0, 0).unwrap();
    assert_eq!(view.debt(), 22.0);
    let before_s = stats(&view, &plan, 0).ahead_s;
    view.take_back(&plan, 2.0);
    assert_eq!(view.debt(), 20.0);
    assert_near(stats(&view, &plan, 0).ahead_s, before_s - 0.02);
    view.message(&plan, START);
    assert_eq!(view.debt(), 20.0, "it is under way");
    answer(0.0, 0.0, 0.0).reach(&mut view, &plan, 0);
    assert_eq!(view.debt(), 0.0);
}

/// A request that came after the message is added to what the store knows.
#[test]
fn what_is_unsent_is_added_to_the_answer() {
    let plan = plan(10.0, 2);
    let mut view = View::new(&plan, START);
    view.message(&plan, START);
    judge(&mut view, &plan, 4.0, 0).unwrap();
    answer(1.0, 0.0, 0.0).reach(&mut view, &plan, 0);
    assert_near(stats(&view, &plan, 0).ahead_s, 1.04);
}

/// With ten nodes, of which this one has half of the demand: of the hundred tokens, fewer by what the others took in
/// 12.5 ms, half are its own, and one request. Each of the others counts twice.
#[test]
fn an_answer_with_tokens_brings_the_allowance_of_the_own_share() {
    let plan = plan(100.0, 10);
    let view = answer(-1.0, 25.0, 25.0).view(&plan);
    let (tokens, own) = (100.0 - 0.3125, 1.0 + 99.6875 / 2.0);
    assert_eq!(view.remaining(&plan, START), (own + (tokens - own) / 2.0) as u32);
    assert_eq!(view.remaining(&plan, START), 75);
}

/// Of twenty tokens, four and one are the part of a node with a fifth of the demand. It asks for 4 requests in a
/// period and a round trip, 0.25 s in all: with two more, and three deviations of two, it may take 8. Of the other
/// twelve, each counts for five.
#[test]
fn a_law_that_refuses_leaves_room_for_chance_while_the_rate_is_not_used_up() {
    let plan = Plan { max_delay: Duration::ZERO, ..plan(20.0, 10) };
    let left = |others_per_s| {
        let answer = Answer { round_trip_ms: 150, ..answer(-0.2, 16.0, others_per_s) };
        answer.view(&plan).remaining(&plan, START)
    };
    assert_eq!(left(64.0), 10);
    // At 100/s in all there is no such room. The others took a little more: 17.67 tokens, of which 3.83 are its own.
    assert_eq!(left(84.0), 6);
}

/// It asks at 100/s. After 40 ms four requests are expected: half of them more, and three, come by chance.
#[test]
fn more_requests_than_expected_are_news_and_others_can_wait_for_a_period() {
    let plan = plan(10.0, 2);
    for (asked, is_news) in [(9.0, false), (10.0, true)] {
        let mut view = View::new(&plan, START);
        judge(&mut view, &plan, 200.0, 0).unwrap();
        assert!(view.has_to_tell(&plan, START));
        let message = view.message(&plan, START);
        assert_near(message.own, 200.0);
        answer(-0.1, 100.0, 0.0).reach(&mut view, &plan, 0);
        judge(&mut view, &plan, asked, 40).unwrap();
        assert_eq!(view.has_to_tell(&plan, at(40)), is_news, "{asked}");
        assert!(view.has_to_tell(&plan, at(100)));
    }
}

#[test]
fn in_debt_a_node_asks_after_a_second_and_without_debt_it_has_nothing_to_tell() {
    let plan = plan(10.0, 2);
    for (ahead_s, is_in_debt) in [(3.0, true), (0.5, false)] {
        let mut view = View::new(&plan, START);
        view.message(&plan, START);
        answer(ahead_s, 0.0, 0.0).reach(&mut view, &plan, 0);
        assert!(!view.has_to_tell(&plan, at(1_000)));
        assert_eq!(view.has_to_tell(&plan, at(1_001)), is_in_debt);
    }
}

/// The answer took 0.1 s, and says that the record was five seconds old halfway. Its message arrives 50 ms later.
#[test]
fn a_message_says_how_old_the_record_is_when_it_arrives() {
    let plan = plan(10.0, 2);
    let mut view = View::new(&plan, START);
    Answer { round_trip_ms: 100, age_s: 5.0, ..answer(1.0, 0.0, 0.0) }.reach(&mut view, &plan, 10_000);
    assert_near(view.message(&plan, at(12_000)).known_age_s, 5.0 + 0.05 + 2.0 + 0.05);
}

/// A node fears three seconds of debt, and the store says two.
#[test]
fn seven_tenths_of_better_news_are_believed_at_once() {
    let plan = plan(10.0, 2);
    let mut view = answer(3.0, 0.0, 0.0).view(&plan);
    answer(1.0, 0.0, 0.0).reach(&mut view, &plan, 1_000);
    assert_near(stats(&view, &plan, 1_000).ahead_s, 2.0 - 0.7);
}

/// A message after 1 s is answered at 10 s. Until 10.4 s the others may still owe something, and until 12 s, when the
/// sum of their demand is a whole one again, they are taken to ask as often as before.
#[test]
fn after_a_silence_better_news_are_believed_later() {
    let plan = plan(10.0, 2);
    let mut view = answer(0.0, 0.0, 10.0).view(&plan);
    view.message(&plan, at(1_000));
    answer(4.0, 0.0, 0.0).reach(&mut view, &plan, 10_000);
    for (ms, others_per_s) in [(10_100, 10.0), (10_300, 10.0), (11_900, 10.0), (12_000, 0.0)] {
        let feared_s = stats(&view, &plan, ms).ahead_s;
        answer(1.0, 0.0, 0.0).reach(&mut view, &plan, ms);
        let now = stats(&view, &plan, ms);
        assert_near(now.others_per_s, others_per_s);
        // What the others have not yet reported is the tenth of 25 ms, as long as they are taken to ask.
        let known_s = 1.0 + others_per_s / 100.0 * 0.025;
        let believed = if ms < 10_400 { 0.0 } else { 0.7 };
        assert_near(now.ahead_s, feared_s.max(known_s) - believed * (feared_s - known_s).max(0.0));
    }
}

/// The node has let through 49 requests unreported, so its allowance is none. The store does not answer for 0.6 s: one
/// of two nodes takes half of the rate, thirty requests. Then it has a tenth of the demand, and 95.5 tokens, and each
/// of them beyond thirty counts for ten.
#[test]
fn the_allowance_grows_by_the_own_share_while_the_store_is_silent() {
    let plan = plan(100.0, 2);
    let mut view = View::owing(&plan, 49.0, START);
    view.message(&plan, START);
    judge(&mut view, &plan, 1.0, 600).unwrap();
    answer(-1.0, 10.0, 90.0).reach(&mut view, &plan, 600);
    assert_eq!(view.remaining(&plan, at(600)), 36);
}
