//! The fuzz target `host`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::host::run(bytes));
