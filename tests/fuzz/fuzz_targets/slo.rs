//! Any text as the options of an SLO.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slowlane::policy::Slo;
use slowlane::base::slo_id::SloId;

fuzz_target!(|text: &[u8]| {
    if let Err(faults) = Slo::parse(SloId::DEFAULT, &String::from_utf8_lossy(text)) {
        assert!(!faults.is_empty());
        assert!(faults.iter().all(|fault| !fault.to_string().contains('\n')));
    }
});
