//! Bytes: which store holds a location, what may be done there, and what is kept on disk.

mod meter;
mod options;
mod registry;

pub(crate) use self::meter::Meter;
pub use self::{meter::Traffic, options::StoreOptions, registry::Registry};
