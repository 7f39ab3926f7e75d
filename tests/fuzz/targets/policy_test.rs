//! Any text as a file of cases: its run ends with a report that is safe to show.

use std::io;
use std::path::Path;
use std::time::Duration;

use slowlane_core::policy::{Layout, Policy};
use slowlane_lab::policy_test::{Action, FileOutcome, Suite, TestSettings, TestStep, json, report};

const SLO_MAP: &str = "0 rate=unlimited
1001 burst=3 rate=7/s law=token-bucket block=3s
2001 burst=3 rate=10/s also=owner
2002 burst=3 rate=10/s law=concurrency max=3 lease=1s
2003 burst=3 rate=10/s law=fair max_delay=1s
2004 burst=3 rate=10/s law=sliding-log
2005 burst=0 rate=10/month law=fixed-window
";

const WEBSITE_MAP: &str = "a 2001\nb 2002\nc 2003\nd 2004\ne 2005\n";

/// More requests take too long for an input of a fuzzer.
const REQUESTS_MAX: u64 = 2_000;

const CASES_MAX: usize = 20;

pub fn run(bytes: &[u8]) {
    let result = match Suite::parse(bytes) {
        Ok(suite) => {
            let asked = |step: &TestStep| match step.action {
                Action::Ask { count, .. } => u64::from(count),
                Action::After(_) | Action::Done(_) => 0,
            };
            let requests: u64 = suite.cases.iter().flat_map(|case| &case.steps).map(asked).sum();
            if requests > REQUESTS_MAX || suite.cases.len() > CASES_MAX {
                return;
            }
            let settings = TestSettings { expire: Duration::from_secs(30), annex_bytes_max: 1 << 16 };
            let (outcome, policy) = slowlane_lab::policy_test::run(&suite, policy(), &settings);
            let (same, _) = slowlane_lab::policy_test::run(&suite, policy, &settings);
            assert_eq!(outcome, same);
            assert_eq!(outcome.cases.len(), suite.cases.len());
            Ok(outcome)
        }
        Err(mistakes) => {
            assert!(mistakes.count >= mistakes.listed.len() && !mistakes.listed.is_empty());
            Err(mistakes)
        }
    };
    let files = [FileOutcome { file: "policy.test".into(), result }];
    let lines = [files[0].errors(), files[0].warnings()].concat();
    for text in [report(&files, true), json(&files), lines.join("\n")] {
        assert!(text.bytes().all(|byte| byte == b'\n' || !byte.is_ascii_control()), "{text:?}");
    }
}

fn policy() -> Policy {
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(SLO_MAP.into()),
        Some("website.map") => Ok(WEBSITE_MAP.into()),
        Some("owner.map") => Ok("acme 1001\n".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), read).expect("the lines are valid")
}
