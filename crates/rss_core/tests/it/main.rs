//! Stories of the library, one module each.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod apply;
#[cfg(feature = "async-tiff")]
mod async_tiff;
mod cache;
mod cog;
mod corpora;
mod damaged;
mod download;
mod elsewhere;
mod entries;
mod fax;
mod gather;
#[cfg(feature = "gdal")]
mod gdal;
#[cfg(feature = "gdal")]
mod gdal_bounds;
#[cfg(feature = "gdal")]
#[expect(clippy::duplicate_mod, reason = "the same stories, by another way")]
#[path = "gdal.rs"]
mod gdal_by_stores;
#[cfg(feature = "gdal")]
mod geokeys;
#[cfg(feature = "index")]
mod index;
mod layers;
mod mutants;
mod odd_files;
mod own_store;
mod products;

mod reading;
mod recorded;
mod sample;
mod search;
mod store;
mod tile_tables;
mod values;
#[cfg(feature = "gdal")]
mod vsirss;
mod warp;
mod writer;
#[cfg(feature = "zarr")]
mod zarr;

/// Keeps other tests from changing how GDAL reaches a bucket: its settings belong to the process.
#[cfg(feature = "gdal")]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
