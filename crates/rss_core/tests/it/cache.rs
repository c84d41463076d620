//! The file cache.
