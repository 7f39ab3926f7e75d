//! The fuzz target `ticket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::ticket::run(bytes));
