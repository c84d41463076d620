//! Providers and products as data: sources (STAC APIs) and manifests (bands, scaling and nodata).
//!
//! A provider is one YAML file in `data/sources`, a product one in `data/products`; both are embedded
//! at compile time, and adding one changes no code but the list below.

mod access;
mod manifest;
mod scene;
mod source;
mod values;

pub use self::{
    access::Access,
    manifest::{BandDef, Kind, Manifest},
    scene::{Scene, SceneRule},
    source::{Collection, DEA, ELEMENT84, PLANETARY_COMPUTER, Source},
    values::{BandValues, Scaling, ScalingOrigin},
};
pub(crate) use self::{
    manifest::Naming,
    source::{FilterLanguage, Sas},
};

/// The sources that are built in.
const SOURCES: &[&str] = &[
    include_str!("../../data/sources/dea.yaml"),
    include_str!("../../data/sources/element84.yaml"),
    include_str!("../../data/sources/planetary-computer.yaml"),
];

/// The products that are built in.
const PRODUCTS: &[&str] = &[
    include_str!("../../data/products/dea-sentinel2.yaml"),
    include_str!("../../data/products/dea-landsat5.yaml"),
    include_str!("../../data/products/dea-landsat7.yaml"),
    include_str!("../../data/products/dea-landsat8.yaml"),
    include_str!("../../data/products/dea-landsat9.yaml"),
    include_str!("../../data/products/element84-sentinel2.yaml"),
    include_str!("../../data/products/element84-sentinel2-c1.yaml"),
    include_str!("../../data/products/element84-landsat.yaml"),
    include_str!("../../data/products/planetary-computer-sentinel2.yaml"),
    include_str!("../../data/products/planetary-computer-landsat.yaml"),
];

/// Returns the SAS settings of the built-in source whose API `href` points into.
pub(crate) fn sas_of(href: &str) -> Option<Sas> {
    source::dialects()
        .iter()
        .find(|dialect| {
            href.strip_prefix(&dialect.url)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .and_then(|dialect| dialect.sas.clone())
}

/// Returns the access settings of a bucket of a built-in source.
pub(crate) fn bucket_access(bucket: &str) -> Option<Access> {
    source::dialects()
        .iter()
        .find_map(|dialect| dialect.buckets.get(bucket).cloned())
}
