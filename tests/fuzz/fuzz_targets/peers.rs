//! The fuzz target `peers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::peers::run(bytes));
