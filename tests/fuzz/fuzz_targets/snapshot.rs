//! The fuzz target `snapshot`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::snapshot::run(bytes));
