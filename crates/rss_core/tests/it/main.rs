//! Stories of the library, one module each.

mod cache;
mod download;
mod layers;
mod store;
