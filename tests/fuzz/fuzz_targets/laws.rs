//! The fuzz target `laws`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::laws::run(bytes));
