//! The fuzz target `end_line`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::end_line::run(bytes));
