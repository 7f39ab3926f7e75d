//! The fuzz target `replay`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::replay::run(bytes));
