//! Assured rates, worked out by hand: which SLO carries a request, and past which ones.

use slowlane_core::base::{
    Assurance, Blocked, BlockedBy, Decision, Request, Sample, Timestamp, Value, Verdict,
};
use slowlane_core::throttle::Throttle;

use super::lines::throttle_of;
use super::oracle::at_ms;

const DENY: Verdict = Verdict::Deny { retry_after_s: 1 };

fn request(website: &str) -> Request<'_> {
    let mut request = Request::new();
    request.push(b"website", Value::Text(website.as_bytes()));
    request.push(b"owner", Value::Text(b"acme"));
    request
}

fn ask(throttle: &Throttle, website: &str, now: Timestamp) -> Decision {
    throttle.decide_one(&request(website), now, Sample::MIDDLE)
}

/// An owner with 1/s, of which its shop is assured all, and its blog nothing.
fn owner(options: &str) -> Throttle {
    let slo_map = format!(
        "0 rate=unlimited\n2001 burst=3 rate=9/s also=owner assured=1/s\n2002 burst=9 rate=9/s also=owner\n\
         1001 burst=1 rate=1/s law=token-bucket{options}\n"
    );
    throttle_of(&slo_map, &[("website.map", "shop 2001\nblog 2002\n"), ("owner.map", "acme 1001\n")])
}

#[test]
fn an_assured_rate_carries_only_what_the_slo_above_would_stop() {
    let throttle = owner("");
    let parts = |decision: Decision| {
        let part =
            decision.judged().into_iter().map(|judged| (judged.verdict, judged.remaining, judged.assurance));
        (decision.verdict, part.collect::<Vec<_>>())
    };
    let carries = Assurance { carries: true, is_carried: false };
    let is_carried = Assurance { carries: false, is_carried: true };
    let (none, pass) = (Assurance::NONE, Verdict::Pass);
    let first = parts(ask(&throttle, "shop", at_ms(0)));
    assert_eq!(first, (pass, vec![(pass, 2, none), (pass, 0, none)]));
    // The burst of the assured rate is that of its SLO: three, of which this request takes one.
    let second = parts(ask(&throttle, "shop", at_ms(0)));
    assert_eq!(second, (pass, vec![(pass, 1, carries), (DENY, 2, is_carried)]));
    let (verdict, of_blog) = parts(ask(&throttle, "blog", at_ms(0)));
    // Nothing is assured to the blog, and what the shop got beyond 1/s is owed first.
    let after_both = Verdict::Deny { retry_after_s: 2 };
    assert_eq!((verdict, of_blog[0].2, of_blog[1].2), (after_both, none, none));
}

#[test]
fn the_block_of_an_slo_above_decides_unless_an_assured_rate_carries_past_it() {
    let throttle = owner(" block=10m");
    let blocked = |website, ms| {
        let decision = ask(&throttle, website, at_ms(ms));
        (decision.verdict, decision.blocked())
    };
    let key = ask(&throttle, "blog", at_ms(0)).judged()[1].key;
    assert_eq!(blocked("blog", 0), (DENY, None), "the law refuses it, and begins a block");
    let until = at_ms(600_000);
    let of_owner = Some(Blocked { by: BlockedBy::Slo(key), until });
    assert_eq!(blocked("blog", 1_000), (Verdict::Deny { retry_after_s: 599 }, of_owner));
    assert_eq!(blocked("shop", 1_000), (Verdict::Pass, None));
}
