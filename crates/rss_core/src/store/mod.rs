//! Bytes: which store holds a location, what may be done there, and what is kept on disk.

mod error;
mod meter;
mod options;
mod registry;
mod wire;

pub(crate) use self::{
    error::{error, of_status},
    meter::Meter,
    registry::Patience,
    wire::{Query, retry_after},
};
pub use self::{meter::Traffic, options::StoreOptions, registry::Registry};
