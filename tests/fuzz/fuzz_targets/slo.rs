//! The fuzz target `slo`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::slo::run(bytes));
