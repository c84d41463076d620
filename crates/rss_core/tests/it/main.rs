//! Stories of the library, one module each.

mod cache;
mod cog;
mod download;
mod layers;
mod store;
