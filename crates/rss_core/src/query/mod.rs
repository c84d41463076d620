//! From a question to items: the query, the search that pages through a STAC API, and catalogues
//! that need no API.
//!
//! What is asked ([`builder`], `filter`, `intersects`, `date`), how pages follow each other
//! (`paging`) and whether an item fits (`check`) is arithmetic; `http` sends one request and
//! `search` drives them.

mod builder;
mod catalogue;
mod check;
mod date;
mod filter;
mod href;
mod http;
mod intersects;
mod paging;
mod result;
mod search;

pub use self::{
    builder::{ImageQuery, ImageQueryBuilder},
    date::{Date, date},
    filter::Cmp,
    intersects::Intersects,
    result::{QueryResult, SearchReport},
};
