//! What a catalogue says: documents read leniently, and what items say of their bands and grids.
//!
//! Real servers send bare `NaN`, numbers as strings, old extension names, items without links. A
//! document is repaired here, once, before it becomes the strict types of the `stac` crate; nothing
//! after this module knows that there was anything to repair.

mod facts;
mod lenient;
mod select;
mod value;

pub(crate) use self::select::Selection;
pub use self::{
    facts::{
        BandFacts, Projection, band_facts, band_facts_of, boa_offset_applied, cloud_cover,
        collection, datetime, file_sha256, file_size, header_bytes, interval, longitude, number,
        processing_baseline, projection, requester_pays, storage_region, text, time,
    },
    lenient::{Document, Items, Next, Skipped, read},
};
