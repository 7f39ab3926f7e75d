//! The fuzz target `spop_round_trip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::spop_round_trip::run(bytes));
