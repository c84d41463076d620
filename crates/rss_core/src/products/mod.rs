//! What a provider calls its bands, and how its catalogue is asked: manifests and sources, as data.

mod access;

pub use self::access::Access;
