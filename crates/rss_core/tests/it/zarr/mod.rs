//! Arrays and cubes in Zarr.

mod arrays;
mod cubes;
mod others;
