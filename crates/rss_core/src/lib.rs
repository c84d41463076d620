//! From a STAC query to pixels: one query, and every way to its pixels behind it.
//!
//! Someone who works with satellite imagery has a place, some dates and a few bands in mind. A
//! [`ImageQueryBuilder`] takes these and finds the items of a catalogue: Digital Earth Australia
//! ([`DEA`]), Earth Search ([`ELEMENT84`]), the Planetary Computer ([`PLANETARY_COMPUTER`]), or any
//! other STAC API by its URL ([`Source::api`]). [`QueryResult`] then goes one of these ways:
//!
//! | call | hrefs become | costs | choose it to |
//! |---|---|---|---|
//! | [`QueryResult::download`] | local files, copied byte for byte | the whole files, once | read most of the pixels, or the same ones often |
//! | [`QueryResult::get`] | local files by `gdal_translate`, cropped if wanted | what the crop needs | keep a part of large files |
//! | [`QueryResult::get_remote`] | `/vsis3/`, `/vsicurl/`, .. paths | nothing yet | hand them to GDAL, in this process or another |
//! | [`QueryResult::items`] | as they are | nothing yet | read tiles and windows in place |
//!
//! What follows does not know which was chosen: [`Session::open`] (or [`reader::open`] in async
//! code) opens a [`Location`] with a [`Backend`] and reads windows of any level into a [`Raster`].
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
//!     .build()? // checked here, before anything is asked of the network
//!     .search()?;
//! assert_eq!(found.len(), 4);
//!
//! let red = &found.items().items[0].assets["nbart_red"];
//! let raster = session.open(&Location::parse(&red.href)?, Backend::Auto)?;
//! let block = raster.read(&ReadRequest::new().with_window("0,0,512,512".parse()?))?;
//! assert_eq!(block.pixels.shape(), [1, 512, 512]); // band, y, x
//! assert_eq!(block.nodata, Some(-999.0));
//! # Ok::<_, anyhow::Error>(())
//! ```
//!
//! One tile of each of a thousand files is what [`gather`] is for; with an index, which keeps the headers
//! of files in one Parquet file (`index`, a feature), each costs one request.
//!
//! Pixels go back into files by [`Raster::save`], and as Cloud Optimized GeoTIFFs by [`writer`], block by
//! block, to a file or a bucket.
//!
//! Calls named as above wait; each has an async form ([`QueryResult::get_async`], ..). Errors are
//! one type, [`Error`], whose [`ErrorKind`] says what a caller can do. No error, log or cache key
//! holds a secret.
//!
//! # Words
//!
//! An **item** is a scene of a catalogue, an **asset** one of its files, a **band** one layer of
//! pixels. A **window** is a rectangle of pixels: column, row, width, height. **Level** 0 is full
//! resolution, 1 and up are the overviews. A **tile** is what a TIFF stores. **nodata** is the value
//! that means "nothing was measured here".
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `async-tiff` | yes | the COG backend and the COG writer, pure Rust |
//! | `gdal` | yes | the GDAL backend and `get()`; links the system's libgdal, 3.6 or newer |
//! | `gdal-bundled` | no | builds GDAL from source, for machines without it: long, and without ZSTD and WebP |
//! | `arrow` | no | tables of samples as Parquet and Arrow |
//! | `index` | no | the index: headers of many files in one Parquet file; the `index` module |
//! | `expression` | no | formulas over bands: `apply::Expression` |
//! | `zarr` | no | sharded Zarr v3 arrays and cubes; the `zarr` module |
//! | `icechunk` | no | Icechunk repositories as places of cubes and arrays; needs Rust 1.95, newer than the rest |
//! | `bench_live`, `bench_testbed` | no | the benches, against live DEA or against servers on loopback |
//!
//! `--no-default-features --features cog` is pure Rust, without GDAL and OpenSSL.

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
mod query;
pub mod reader;
mod session;
pub mod stac;
mod store;
#[cfg(feature = "cog")]
pub mod writer;
#[cfg(feature = "zarr")]
pub mod zarr;

use rss_raster::{error, geo, raster, warp};

#[cfg(feature = "cog")]
pub use self::blocking::OpenCog;
#[cfg(feature = "zarr")]
pub use self::blocking::{OpenArray, OpenCube};
pub use self::{
    blocking::{GatherRows, OpenRaster},
    error::{Error, ErrorKind, Result},
    fetch::{AssetOutcome, Fetched, GetOptions, Origin, Policy, Progress, RemoteVariant},
    geo::{Bbox, Crop, Crs, GeoBox, GeoTransform, Resolution, Size, TileIndex, Window},
    location::{Location, S3Address, Trust},
    products::{
        Access, BandDef, BandValues, Collection, DEA, ELEMENT84, Kind, Manifest,
        PLANETARY_COMPUTER, Scaling, ScalingOrigin, Scene, SceneRule, Source,
    },
    query::{
        Cmp, Date, ImageQuery, ImageQueryBuilder, Intersects, QueryResult, SearchReport, date,
    },
    raster::{
        Complex, DataType, Format, NpyStack, Pixels, Raster, Resampling, Sample, Sparse, Stretch,
    },
    reader::{
        Backend, BandProfile, ColorInterp, Entry, Masking, OpenOptions, Profile, RasterReader,
        ReadRequest,
    },
    session::{GdalReads, Session, SessionBuilder},
    store::{CacheStats, FileCache, Mode, Registry, Removed, StoreOptions, Traffic},
    warp::WarpOptions,
};
