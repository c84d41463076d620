//! From a STAC query to pixels.

mod blocking;
mod error;
mod fetch;
mod geo;
mod location;
mod products;
mod query;
mod raster;
pub mod reader;
mod session;
pub mod stac;
mod store;

pub use self::{
    blocking::OpenRaster,
    error::{Error, ErrorKind, Result},
    fetch::{AssetOutcome, Fetched, GetOptions, Origin, Policy, Progress, RemoteVariant},
    geo::{Bbox, Crop, Crs, GeoBox, GeoTransform, Size, TileIndex, Window},
    location::{Location, S3Address, Trust},
    products::{
        Access, BandDef, Collection, DEA, ELEMENT84, Kind, Manifest, PLANETARY_COMPUTER, Scene,
        SceneRule, Source,
    },
    query::{
        Cmp, Date, ImageQuery, ImageQueryBuilder, Intersects, QueryResult, SearchReport, date,
    },
    raster::{DataType, Format, Pixels, Raster, Sample},
    reader::{Backend, Profile, RasterReader, ReadRequest},
    session::{Session, SessionBuilder},
    store::{CacheStats, FileCache, Mode, Registry, Removed, StoreOptions, Traffic},
};
