//! The fuzz target `resp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::resp::run(bytes));
