//! An index: the headers of many files in one Parquet file, so that any tile costs one request.
//!
//! The file is [stac-geoparquet](https://github.com/radiantearth/stac-geoparquet-spec), a row for each
//! item, which any tool for Parquet can query. Beside the columns of the catalogue it has a nested column
//! for each asset, `index:<key>`, with the header that [`reader::open`](crate::reader::open) would otherwise fetch.
//! `docs/INDEX.md` documents the columns. Left out are pixels, and everything else outside of headers.
//!
//! Reading an index needs no network: [`Index`] is synchronous.

mod assemble;
mod bare;
mod build;
mod catalogue;
mod check;
mod delta;
mod disk;
mod entries;
mod export;
mod file;
mod inputs;
mod items;
mod journal;
mod merge;
mod open;
mod pack;
mod schema;
mod select;
mod source;
mod splice;
mod summary;
mod table;
mod unite;
mod unpack;
mod wkb;
mod write;

pub use self::{
    build::{BuildProgress, BuildReport, BuildSource, Builder, Failed},
    check::{CheckOptions, CheckReport, check},
    entries::{Entries, Indexed},
    export::{ExportFormat, Exported, Omitted, export, export_index},
    merge::merge,
    open::{AssetInfo, Index, Info, is_index},
    select::Select,
    write::Writer,
};

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `BuildSource`")]
pub type Source = BuildSource;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `ExportFormat`")]
pub type Format = ExportFormat;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `Omitted`")]
pub type LeftOut = Omitted;
