//! Arrays and cubes in Zarr.

mod append;
mod arrays;
mod check;
mod computed;
mod copied;
mod cubes;
#[cfg(feature = "icechunk")]
mod icechunk;
mod others;
mod writers;
