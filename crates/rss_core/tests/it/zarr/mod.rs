//! Arrays and cubes in Zarr.

mod arrays;
mod others;
