//! The fuzz target `headers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::headers::run(bytes));
