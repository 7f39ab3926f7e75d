//! Held requests of many nodes: each is charged once, whatever is lost on the way to the store and back.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Key, Sample, Timestamp, Turn};
use slowlane_core::cluster::{Answer, Arguments, Message, OnSilence, Plan, Records, Reply, View};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const KEY: Key = Key::from_bits(7);
const NODES: usize = 4;
const TRIP: Duration = Duration::from_millis(20);

/// 10/s with a burst of 10, and a longest delay of five seconds.
fn plan() -> Plan {
    Plan {
        rate_per_s: 10.0,
        burst: 10.0,
        max_delay: Duration::from_secs(5),
        period: Duration::from_millis(100),
        silent_after: Duration::from_millis(500),
        on_silence: OnSilence::Share,
        nodes: NODES as u32,
        phase: 0.0,
        round_trip: TRIP,
        is_work: false,
    }
}

/// The fate of a message.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    LostThere,
    /// The store applies it, and the node does not get the answer.
    LostBack,
}

/// A request at a node, after a time, and whether its client hangs up before its turn.
type Step = (u64, usize, bool, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u64..120, 0..NODES, prop::bool::weighted(0.2), any::<u64>()), 20..300)
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![8 => Just(Fate::Answered), 1 => Just(Fate::LostThere), 1 => Just(Fate::LostBack)];
    prop::collection::vec(fate, 1..50)
}

struct Node {
    view: View,
    held: Vec<(u64, Arc<Turn>, bool)>,
    was_lost: bool,
}

struct Site {
    plan: Plan,
    nodes: Vec<Node>,
    records: Records,
    fates: Vec<Fate>,
    messages: usize,
    now: Timestamp,
    admitted: f64,
    /// The arrival time of the store's bucket, from the start on, without the tokens that it lost while it was full.
    tat_s: f64,
    lost_s: f64,
}

impl Site {
    fn new(fates: Vec<Fate>) -> Site {
        let (plan, node) =
            (plan(), || Node { view: View::new(&plan(), START), held: vec![], was_lost: false });
        let nodes = (0..NODES).map(|_| node()).collect();
        let records = Records::new(10);
        let ahead_s = -plan.burst_s();
        Site {
            plan,
            nodes,
            records,
            fates,
            messages: 0,
            now: START,
            admitted: 0.0,
            tat_s: ahead_s,
            lost_s: ahead_s,
        }
    }

    fn ask(&mut self, place: usize, hangs_up: bool, bits: u64) {
        let node = &mut self.nodes[place];
        match node.view.judge_held(&self.plan, Sample::from_bits(bits), self.now) {
            Ok((_, Some(number))) => {
                let turn = node.view.turn(number).expect("it is in the queue");
                node.held.push((number, turn, hangs_up));
            }
            Ok((delay, None)) => {
                assert_eq!(delay, Duration::ZERO, "all others are held");
                self.admitted += 1.0;
            }
            Err(_) => {}
        }
    }

    /// Ten milliseconds: turns come, clients hang up, and nodes talk.
    fn tick(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        for place in 0..NODES {
            self.release(place);
            self.talk(place);
        }
    }

    fn release(&mut self, place: usize) {
        let (now, node) = (self.now, &mut self.nodes[place]);
        node.held.retain(|(_, turn, _)| turn.due().is_some());
        let mut held = std::mem::take(&mut node.held);
        held.retain(|(number, turn, hangs_up)| {
            let has_come = turn.due().is_some_and(|due| due <= now);
            if *hangs_up {
                assert!(node.view.leave(&self.plan, *number, now));
            } else if has_come {
                node.view.pass(&self.plan, *number, now);
                self.admitted += 1.0;
            }
            !*hangs_up && !has_come
        });
        node.held = held;
    }

    fn talk(&mut self, place: usize) {
        let view = &mut self.nodes[place].view;
        if !view.has_to_tell(&self.plan, self.now) {
            return;
        }
        let mut message = view.message(&self.plan, self.now);
        message.wants.as_mut().expect("it has held a request").run = place as u64;
        // After half a second without an answer, the store counts as silent, and a node forgets what it asked for.
        let is_again = std::mem::replace(&mut self.nodes[place].was_lost, false);
        let fate = if is_again { Fate::Answered } else { self.fates[self.messages % self.fates.len()] };
        self.messages += 1;
        if !matches!(fate, Fate::LostThere) {
            let reply = self.post(&message);
            if matches!(fate, Fate::Answered) {
                let view = &mut self.nodes[place].view;
                return view.reply(&self.plan, &message, &reply, self.now);
            }
        }
        self.nodes[place].view.lost(&message);
        self.nodes[place].was_lost = true;
    }

    fn post(&mut self, message: &Message) -> Reply {
        let now_s = self.now.since(START).as_secs_f64();
        self.lost_s += (now_s - self.plan.burst_s() - self.tat_s).max(0.0);
        let Answer::Rate(reply) = self.records.post(KEY, &Arguments::Rate(message.clone()), self.now) else {
            panic!("another mode")
        };
        self.tat_s = reply.ahead_s + now_s;
        reply
    }

    /// Requests that the store has charged.
    fn charged(&self) -> f64 {
        (self.tat_s - self.lost_s) * self.plan.rate_per_s
    }
}

proptest! {
    #[test]
    fn each_request_is_charged_once(steps in steps(), fates in fates()) {
        let mut site = Site::new(fates);
        (0..10).for_each(|bits| site.ask(0, false, bits));
        for (after, place, hangs_up, bits) in steps {
            (0..after / 10).for_each(|_| site.tick());
            site.ask(place, hangs_up, bits);
            let most = 10.0 + site.now.since(START).as_secs_f64() * 10.0 + 2.0 * NODES as f64;
            prop_assert!(site.admitted <= most, "{} of {most}", site.admitted);
        }
        // All messages arrive from now on, and all turns come. Others use the slots that came back. Then nobody owes
        // anything.
        site.fates = vec![Fate::Answered];
        (0..10).for_each(|_| site.tick());
        (0..45).for_each(|_| site.ask(1, false, 0));
        for _ in 0..1_500 {
            site.tick();
            if site.nodes.iter().all(|node| node.held.is_empty() && node.view.debt() == 0.0) {
                break;
            }
        }
        prop_assert!(site.nodes.iter().all(|node| node.held.is_empty()));
        (0..30).for_each(|_| site.tick());
        let (charged, admitted) = (site.charged(), site.admitted);
        prop_assert!((charged - admitted).abs() < 0.5, "{charged} charged, {admitted} admitted");
    }
}

/// Alone, one of four nodes admits 2.5/s. The requests that it has promised are charged when the store answers again, and
/// those of which the client has disconnected are not.
#[test]
fn a_request_that_is_held_in_a_silence_keeps_its_turn_and_is_charged_once() {
    let (plan, mut view, mut records) = (plan(), View::new(&plan(), START), Records::new(10));
    let at = |ms: u64| START + Duration::from_millis(ms);
    assert_eq!(view.judge_held(&plan, Sample::MIDDLE, at(0)), Ok((Duration::ZERO, None)));
    let unanswered = view.message(&plan, at(10));
    view.lost(&unanswered);
    let held: Vec<u64> =
        (0..4).filter_map(|_| view.judge_held(&plan, Sample::MIDDLE, at(1_000)).unwrap().1).collect();
    let due = |view: &View, number| view.turn(number).unwrap().due().unwrap();
    let dues = |view: &View, held: &[u64]| held.iter().map(|&number| due(view, number)).collect::<Vec<_>>();
    assert!(view.leave(&plan, held[1], at(1_050)));
    let staying = [&held[..1], &held[2..]].concat();
    let promised = dues(&view, &staying);
    assert!(
        promised.windows(2).all(|pair| pair[1].since(pair[0]) == Duration::from_millis(400)),
        "{promised:?}"
    );

    let mut message = view.message(&plan, at(1_100));
    message.wants.as_mut().expect("it holds requests").run = 1;
    let want = message.wants.as_ref().map(|wants| wants.want);
    assert_eq!((message.returns, message.charge, want), (true, staying.len() as f64, Some(0)));
    let Answer::Rate(reply) = records.post(KEY, &Arguments::Rate(message.clone()), at(1_110)) else {
        panic!("another mode")
    };
    assert!((reply.ahead_s - 0.1 * staying.len() as f64).abs() < 0.01, "{reply:?}");
    view.reply(&plan, &message, &reply, at(1_120));
    assert_eq!((dues(&view, &staying), view.debt()), (promised, 0.0));
    // What comes then gets a slot of the store, once the others have reported what they owe.
    let (_, number) = view.judge_held(&plan, Sample::MIDDLE, at(1_130)).unwrap();
    assert!(number.is_some() && !view.has_to_tell(&plan, at(1_500)) && view.has_to_tell(&plan, at(1_600)));
    let message = view.message(&plan, at(1_600));
    assert_eq!((message.charge, message.wants.map(|wants| wants.want)), (0.0, Some(1)));
}
