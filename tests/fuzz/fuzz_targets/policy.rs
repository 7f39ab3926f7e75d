//! The fuzz target `policy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::policy::run(bytes));
