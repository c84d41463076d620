//! Stories of the library, one module each.

mod layers;
