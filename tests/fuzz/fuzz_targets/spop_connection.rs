//! The fuzz target `spop_connection`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::spop_connection::run(bytes));
