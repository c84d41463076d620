//! Stories of the library, one module each.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod cache;
mod cog;
mod corpora;
mod damaged;
mod download;
#[cfg(feature = "gdal")]
mod gdal;
mod layers;
mod mutants;
mod products;
mod recorded;
mod search;
mod store;
