//! The fuzz target `policy_test`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::policy_test::run(bytes));
