//! The fuzz target `token_server`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::token_server::run(bytes));
