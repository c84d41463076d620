//! Any bytes as a header: parsed piece by piece, then the byte ranges of tiles.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rss_core::reader::fuzzing;

fuzz_target!(|file: &[u8]| fuzzing::header(file));
