//! The fuzz target `http`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::http::run(bytes));
