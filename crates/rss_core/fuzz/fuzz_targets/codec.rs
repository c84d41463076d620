//! Any bytes as one tile of any compression, sample type and predictor.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rss_core::reader::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::codec(input));
