//! From a STAC query to pixels: one query, and every access path to its pixels behind it.
//!
//! Someone who works with satellite imagery has an area, some dates and a few bands in mind.
//! [`ImageQueryBuilder`] takes these and finds the items of a catalogue: Digital Earth Australia
//! ([`DEA`]), Earth Search ([`ELEMENT84`]), the Planetary Computer ([`PLANETARY_COMPUTER`]), or any
//! other STAC API by its URL ([`Source::api`]). [`QueryResult`] then offers these access paths:
//!
//! | call | hrefs become | costs | choose it to |
//! |---|---|---|---|
//! | [`QueryResult::download`] | local files, copied byte for byte | the complete files, once | read most of the pixels, or the same ones often |
//! | [`QueryResult::get`] | local files by `gdal_translate`, cropped if wanted | the bytes that the crop needs | keep a part of large files |
//! | [`QueryResult::get_remote`] | `/vsis3/`, `/vsicurl/`, .. paths | nothing yet | hand them to GDAL, in this process or another |
//! | [`QueryResult::items`] | as they are | nothing yet | read tiles and windows in place |
//!
//! Reading is the same for all of them: [`Session::open`] (or [`reader::open`] in async code) opens a
//! [`Location`] with a [`Backend`] and reads windows of any level into a [`Raster`].
//!
//! ```
//! use rss_core::{
//!     Backend, Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Location, ReadRequest, Session,
//!     Source, date,
//! };
//!
//! // Servers on loopback stand in for DEA: use `DEA` as it is, and no session, for the real one.
//! let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
//! let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
//! let dea = Source::api(&bed.stac_url())?.like(&DEA);
//!
//! let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
//!     .session(session.clone())
//!     .canonical_bands(["red", "nir"])
//!     .start_date(date(2021, 1, 1))
//!     .end_date(date(2021, 2, 1)) // the end day is included
//!     .cloudcover((Cmp::Less, 30))
//!     .build()? // checked here, before the first request
//!     .search()?;
//! assert_eq!(found.len(), 4);
//!
//! let red = &found.items().items[0].assets["nbart_red"];
//! let raster = session.open(&Location::parse(&red.href)?, Backend::Auto)?;
//! let block = raster.read(&ReadRequest::new().with_window("0,0,512,512".parse()?))?;
//! assert_eq!(block.pixels.shape(), [1, 512, 512]); // band, y, x
//! assert_eq!(block.nodata, Some((-999.0).into()));
//! # Ok::<_, anyhow::Error>(())
//! ```
//!
//! [`gather`] reads one tile of each of thousands of files; with an index, which stores the headers of
//! files in one Parquet file (`index`, a feature), each tile costs one request. [`apply`] computes over many
//! images on one grid, block by block: masks, reducers, mosaics, formulas, and values at points or in zones.
//!
//! [`Raster::save`] writes pixels to files; [`writer`] writes Cloud Optimized GeoTIFFs block by block, to a
//! file or a bucket.
//!
//! Grids, CRSs, rasters in memory and warps ([`GeoBox`], [`Window`], [`Raster`], [`Resampling`], [`Error`], ..)
//! come from the crate `rss_raster`, which needs no network and no GDAL; this crate re-exports them.
//!
//! Calls named as above block; each has an async form ([`QueryResult::get_async`], ..). Errors are
//! one type, [`Error`], whose [`ErrorKind`] tells what a caller can do. No error, log or cache key
//! holds a secret.
//!
//! # Words
//!
//! An **item** is a scene of a catalogue, an **asset** one of its files, a **band** one layer of
//! pixels. A **window** is a rectangle of pixels: column, row, width, height. **Level** 0 is full
//! resolution, 1 and up are the overviews. A **tile** is the unit of storage of a TIFF, a **block** the unit of
//! computation of [`apply`]; Zarr stores **chunks**, many of them in one **shard**. **nodata** is the value of
//! pixels without a measurement.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `cog` | yes | [`Backend::Cog`], our COG reader, and the COG writer, [`writer`] |
//! | `jpeg-xl` | no | JPEG XL in the COG reader |
//! | `gdal` | yes | [`Backend::Gdal`] and `get()`; links the system's libgdal, 3.6 or newer |
//! | `gdal-bundled` | no | `gdal`, with GDAL built from source: a long build, without ZSTD and WebP |
//! | `arrow` | no | tables of samples as Parquet and Arrow |
//! | `index` | no | the index: headers of many files in one Parquet file; the `index` module |
//! | `expression` | no | formulas over bands: `apply::Expression` |
//! | `zarr` | no | sharded Zarr v3 arrays and cubes; the `zarr` module |
//! | `icechunk` | no | cubes and arrays in Icechunk repositories; needs Rust 1.95, newer than the rest |
//! | `async-tiff` | no | `Backend::AsyncTiff`, the crate `async-tiff` as a backend, for comparison: tiled files of the common codecs |
//!
//! The crates whose types stand in signatures are re-exported, so that versions agree: [`object_store`], [`ndarray`],
//! [`chrono`], [`geo_types`], [`geojson`], `arrow_array` (feature `arrow`), and those of `stac` in [`mod@stac`].
//!
//! `index` adds `arrow`, and `jpeg-xl`, `index`, `zarr` and `async-tiff` add `cog`. `--no-default-features --features
//! cog` needs no GDAL and no OpenSSL; it needs a C compiler, for libdeflate, zstd and ring.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod apply;
#[cfg(feature = "zarr")]
mod array;
mod blocking;
#[cfg(feature = "zarr")]
mod cube;
mod fetch;
pub mod gather;
#[cfg(feature = "index")]
pub mod index;
mod location;
pub mod mask;
mod products;
mod proj;
mod query;
pub mod reader;
mod session;
pub mod stac;
mod store;
#[cfg(feature = "cog")]
pub mod writer;
#[cfg(feature = "zarr")]
pub mod zarr;

/// The names that most programs need, to be imported with `use rss_core::prelude::*`.
pub mod prelude {
    pub use crate::{
        Backend, Bbox, Cmp, Collection, DEA, ELEMENT84, GeoBox, ImageQueryBuilder, Intersects,
        Location, PLANETARY_COMPUTER, Raster, ReadRequest, Resampling, Session, Source, date,
    };
}

#[cfg(feature = "arrow")]
#[doc(no_inline)]
pub use arrow_array;
#[doc(no_inline)]
pub use {chrono, geo_types, geojson, ndarray, object_store, reqwest};

use rss_raster::{error, geo, raster, warp};

#[cfg(feature = "cog")]
pub use self::blocking::OpenCog;
#[cfg(feature = "zarr")]
pub use self::blocking::{OpenArray, OpenCube};
pub use self::{
    blocking::{GatherRows, OpenRaster},
    error::{Error, ErrorKind, Result},
    fetch::{
        AssetOutcome, Delivery, Existing, Fetched, GetOptions, Origin, Policy, Progress,
        RemoteVariant,
    },
    geo::{Bbox, Crop, Crs, GeoBox, GeoTransform, Resolution, Size, TileIndex, Window},
    location::{Location, S3Address, Trust},
    products::{
        Access, BandDef, BandValues, Collection, DEA, ELEMENT84, Kind, Manifest,
        PLANETARY_COMPUTER, Scaling, ScalingOrigin, Scene, SceneRule, Source,
    },
    proj::use_proj,
    query::{
        Cmp, Date, ImageQuery, ImageQueryBuilder, Intersects, ItemStream, QueryResult,
        SearchReport, When, date, packed, unpacked,
    },
    raster::{
        Complex, DataType, Format, NpyStack, Number, Pixels, Raster, Resampling, Sample, Sparse,
        Stretch,
    },
    reader::{
        Backend, BandProfile, ColorInterp, Entry, Masking, OpenOptions, Profile, RasterReader,
        ReadRequest,
    },
    session::{GdalReads, Session, SessionBuilder, parse_duration},
    store::{CacheStats, FileCache, Mode, Registry, Removed, StoreOptions, Traffic},
    warp::WarpOptions,
};
