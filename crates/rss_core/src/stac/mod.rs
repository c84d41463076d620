//! STAC documents, parsed leniently, and the metadata of items on their bands and grids.
//!
//! Real servers send bare `NaN`, numbers as strings, old extension names, items without links. A document is repaired
//! here, once, before it is converted to the strict types of the `stac` crate; other modules need no special cases.

mod bands;
mod facts;
mod features;
mod lenient;
mod select;
mod value;

// `use rss_core::*` would otherwise hide the crate whose types this one returns.
#[doc(no_inline)]
pub use ::stac::{Asset, Band, Bbox, Catalog, Collection, Item, ItemCollection, Link};

pub(crate) use self::lenient::read_page;
pub(crate) use self::{
    bands::{BandNames, are_named, band_names, labels, number_in_file, number_of, split},
    select::{Choice, Selection, nothing_guessed, without_role},
};
pub use self::{
    facts::{
        BandFacts, Projection, band_facts, band_facts_of, boa_offset_applied, cloud_cover,
        collection, datetime, file_sha256, file_size, header_bytes, interval, is_class, longitude,
        number, processing_baseline, projection, requester_pays, storage_platform, storage_region,
        text, time,
    },
    lenient::{Document, Items, Next, Skipped, read},
};
