//! Stories of the library, one module each.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod cache;
mod cog;
mod download;
mod layers;
mod search;
mod store;
