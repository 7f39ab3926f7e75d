//! Any text as the options of an SLO.

use slowlane_core::base::SloId;
use slowlane_core::policy::Slo;

pub fn run(text: &[u8]) {
    if let Err(faults) = Slo::parse(SloId::DEFAULT, &String::from_utf8_lossy(text)) {
        assert!(!faults.is_empty());
        assert!(faults.iter().all(|fault| !fault.to_string().contains('\n')));
    }
}
