//! The fuzz target `grpc`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| slowlane_fuzz::grpc::run(bytes));
