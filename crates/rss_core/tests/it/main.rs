//! Stories of the library, one module each.

mod cog;
mod layers;
