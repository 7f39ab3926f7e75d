//! The fuzz target `runtime_api`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::runtime_api::run(bytes));
