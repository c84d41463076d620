//! Arrays and cubes in Zarr.

mod arrays;
mod computed;
mod cubes;
#[cfg(feature = "icechunk")]
mod icechunk;
mod others;
