//! Queries: the query builder, the search that pages through a STAC API, and catalogues without an API.
//!
//! The query ([`builder`], `filter`, `intersects`, `date`), the order of pages (`paging`) and the check of items
//! (`check`) do no IO; `http` sends one request, and `search` runs the loop over pages and retries.

mod builder;
mod catalogue;
mod check;
mod date;
mod filter;
mod href;
mod http;
mod intersects;
mod packed;
mod paging;
mod record;
mod result;
mod search;

#[cfg(feature = "index")]
pub(crate) use self::catalogue::ParsedItems;
pub(crate) use self::record::{recorded_version, without_secrets};
pub use self::{
    builder::{ImageQuery, ImageQueryBuilder},
    date::{Date, When, date},
    filter::Cmp,
    intersects::Intersects,
    packed::{packed, unpacked},
    result::{QueryResult, SearchReport},
    search::ItemStream,
};
