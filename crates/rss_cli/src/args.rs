//! The command line arguments, with help and examples.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use rss_core::{GdalReads, parse_duration};

mod apply;
mod logging;
mod sample;

pub(crate) use self::{
    apply::{ApplyArgs, CubeArgs, GridArgs, MosaicArgs},
    logging::Logging,
    sample::SampleArgs,
};

/// From a STAC query to pixels.
#[derive(Debug, Parser)]
#[command(
    name = "rss",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Example:\n  rss search dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --json | rss get --to imagery"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How long a command waits: options of every command.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct NetworkArgs {
    /// How long a server that does not answer is asked again, as 90s, 5m, 1h; 0 is not at all [default: 5m, or
    /// RSS_RETRY_FOR]
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration, help_heading = "Network")]
    pub(crate) retry_for: Option<Duration>,
    /// Ends the command after this time, with exit code 75 [default: never]
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration, help_heading = "Network")]
    pub(crate) timeout: Option<Duration>,
    /// How GDAL reaches the network, where it reads: stores, as all else does (retries, redirects, one version of a file);
    /// vsi, by file systems of its own [default: stores, or RSS_GDAL_READS]
    #[arg(long, global = true, value_name = "stores|vsi", value_parser = gdal_reads, help_heading = "Network")]
    pub(crate) gdal_reads: Option<GdalReads>,
}

fn gdal_reads(text: &str) -> Result<GdalReads, rss_core::Error> {
    text.parse()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the items that a query finds.
    #[command(
        after_help = "Example:\n  rss search dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --cloud-below 30"
    )]
    Search(SearchArgs),
    /// Downloads files through the cache into a folder, and prints the items with local hrefs.
    #[command(
        after_help = "Example:\n  rss get dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --canonical red,nir --to imagery\n  rss search .. --json | rss get --items - --to imagery --mode copy"
    )]
    Get(GetArgs),
    /// Prints the items with hrefs that GDAL reads in place.
    #[command(
        after_help = "Example:\n  rss remote dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --bands nbart_red --json"
    )]
    Remote(RemoteArgs),
    /// Prints the metadata of a raster: size, CRS, dtype, overviews, nodata.
    #[command(
        after_help = "Example:\n  rss info s3://sentinel-cogs/sentinel-s2-l2a-cogs/56/J/NS/2021/1/S2A_56JNS_20210103_0_L2A/B04.tif"
    )]
    Info(InfoArgs),
    /// Reads pixels into a file or to stdout.
    #[command(
        after_help = "Example:\n  rss read B04.tif --window 0,0,512,512 -o block.npy\n  rss read B04.tif --level 3 -o look.png"
    )]
    Read(ReadArgs),
    /// Builds and reads an index: the headers of many files in one Parquet file, so that a tile costs one request.
    #[cfg(feature = "index")]
    #[command(
        after_help = "Example:\n  rss search dea sentinel2 --scene 56jns --json | rss index build --items - -o scenes.parquet\n  rss index info scenes.parquet"
    )]
    Index(IndexArgs),
    /// Reads one tile from each of many files.
    #[command(
        after_help = "Example:\n  rss gather files.txt --json\n  rss gather files.txt --index scenes.parquet -o tiles.npy\n  rss gather files.txt --index scenes.parquet --explain\n  rss gather files.txt --backend gdal --concurrency 16"
    )]
    Gather(GatherArgs),
    /// Writes images as a cube of sharded Zarr, and reads cubes and arrays.
    #[cfg(feature = "zarr")]
    #[command(
        after_help = "Example:\n  rss zarr write dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --canonical red,nir --to cube.zarr\n  rss zarr read cube.zarr --band nbart_red --window 0,0,512,512 -o block.npy"
    )]
    Zarr(ZarrArgs),
    /// Computes one raster from many images: a formula, a median, without clouds, as a COG.
    #[command(
        after_help = "Example:\n  rss apply dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --expr \"(nir-red)/(nir+red)\" --mask clouds --reduce median --resolution 20 -o ndvi.tif"
    )]
    Apply(ApplyArgs),
    /// Mosaics images into one raster.
    #[command(
        after_help = "Example:\n  rss mosaic dea sentinel2 --bbox 153.0,-27.6,153.3,-27.3 --start 2021-01-01 --end 2021-02-01 --canonical red,green,blue --mask clouds -o brisbane.tif"
    )]
    Mosaic(MosaicArgs),
    /// Samples many images at points, or computes zonal statistics, as a table.
    #[command(
        after_help = "Without --scene, --bbox or --geometry the search area is the bounding box of the points or zones.\n\nExample:\n  rss sample dea sentinel2 --start 2021-01-01 --end 2021-02-01 --canonical red,nir --points plots.geojson --mask clouds -o plots.parquet\n  rss sample dea sentinel2 --start 2021-01-01 --end 2021-02-01 --canonical red --zones fields.geojson --stats count,mean,p90 -o fields.csv\n  rss sample --items scenes.json --bands nbart_red --point 153.02,-25.33"
    )]
    Sample(Box<SampleArgs>),
    /// Makes a result once more, by the record that it holds, and compares the bytes.
    #[command(
        after_help = "Example:\n  rss again ndvi.tif\n  rss again ndvi.tif -o again.tif\n  rss again cube.zarr --json\n  rss again plots.parquet"
    )]
    Again(AgainArgs),
    /// Inspects and cleans the file cache.
    #[command(after_help = "Example:\n  rss cache info --json\n  rss cache clean")]
    Cache(CacheArgs),
    /// Compares ways to the same pixels, and reports: the program rss-bench, where it is installed.
    #[command(
        disable_help_flag = true,
        after_help = "Example:\n  rss bench gather --files 200 --latency 30 --concurrency 1,4,16,64 --html report.html"
    )]
    Bench(BenchArgs),
}

/// The search: source, collection, area, dates, bands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Selection {
    /// dea, element84, planetary-computer, or the URL of any STAC API.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// sentinel2, sentinel2-c1, landsat, landsat5, landsat7, landsat8, landsat9, or a collection id.
    #[arg(value_name = "COLLECTION")]
    pub(crate) collection: Option<String>,
    /// A scene: a Sentinel-2 MGRS tile (56jns) or a Landsat path and row (090084). May be repeated.
    #[arg(long, value_name = "S")]
    pub(crate) scene: Vec<String>,
    /// A bounding box in degrees; it may cross the antimeridian.
    #[arg(
        long,
        value_name = "W,S,E,N",
        allow_hyphen_values = true,
        conflicts_with = "scene"
    )]
    pub(crate) bbox: Option<String>,
    /// A GeoJSON geometry or feature. Results of apply, mosaic and zarr write are cropped to it, and nodata outside of
    /// it (see --no-clip).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scene", "bbox"])]
    pub(crate) geometry: Option<PathBuf>,
    /// The first day, month, year or instant: 2021-01-31, 2021-01, 2021, 2021-01-31T10:30:00Z, in UTC.
    #[arg(long, value_name = "DATE")]
    pub(crate) start: Option<String>,
    /// The last day, month, year or instant, included.
    #[arg(long, value_name = "DATE")]
    pub(crate) end: Option<String>,
    /// Only items with a cloud cover below this percentage.
    #[arg(long, value_name = "P")]
    pub(crate) cloud_below: Option<f64>,
    /// Assets by their keys in the catalogue, with all their bands; KEY:2 (counted from 1) or KEY:red is one band of an
    /// asset with several.
    #[arg(long, value_name = "B,..", value_delimiter = ',')]
    pub(crate) bands: Vec<String>,
    /// Assets by canonical names: red, nir, swir_1, ..; NAME:2 is one band of an asset with several.
    #[arg(
        long,
        value_name = "B,..",
        value_delimiter = ',',
        conflicts_with = "bands"
    )]
    pub(crate) canonical: Vec<String>,
    /// Only this platform, such as landsat-8.
    #[arg(long, value_name = "NAME")]
    pub(crate) platform: Option<String>,
    /// The maximum number of items.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// A product manifest of your own: bands, canonical names, scales, scene rule and masks. COLLECTION is searched in
    /// any case; the manifest's own product name stands for all collections that it lists.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Treat the API at a URL as this known source: its filters, paging and products.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) like: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Print a STAC ItemCollection.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A selection, or items found before.
#[derive(Clone, Debug, Args)]
pub(crate) struct Items {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// A STAC Item, ItemCollection or catalogue in place of a search: a file, a URL, or `-` for
    /// stdin; or a stac-geoparquet file, such as an index. Stdin is read too where neither this nor a SOURCE is given.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "scene", "bbox",
        "start", "end", "cloud_below", "platform", "limit", "like"])]
    pub(crate) items: Option<String>,
    /// Let items of a file or a pipe name any file of this machine. Without it: those beside or below the file of items,
    /// and files that rss get made.
    #[arg(long)]
    pub(crate) trust_items: bool,
    /// The record of a result that is made once more: its items, in place of a search.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) recorded: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct AgainArgs {
    /// A COG, a cube, a table of rss sample, or the STAC Item or the record beside a file.
    #[arg(value_name = "OUT")]
    pub(crate) made: String,
    /// Where to make it once more. Default: a temporary place, to compare with OUT.
    #[arg(short, long, value_name = "NEW")]
    pub(crate) output: Option<String>,
    /// Print one JSON document: whether the bytes are the same.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    /// The folder of the files: DIR/ITEM_ID/FILE_NAME.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Crop to these bounds, in the CRS of --crop-epsg, else of the file.
    #[arg(long, value_name = "W,S,E,N", allow_hyphen_values = true)]
    pub(crate) crop: Option<String>,
    /// The CRS of --crop.
    #[arg(long, value_name = "E", requires = "crop")]
    pub(crate) crop_epsg: Option<u32>,
    /// translate: converted by GDAL to tiled and compressed files; copy: byte for byte.
    #[arg(long, value_enum, default_value_t = ModeArg::default_mode())]
    pub(crate) mode: ModeArg,
    /// Make symbolic links into the cache. Without it the files are your own: reflinks, else hard links (read-only), else
    /// copies. What a link points to stays in the cache, whatever its bound.
    #[arg(long)]
    pub(crate) link: bool,
    /// Replace files of these names. Without it a file that is not from the cache, or was changed since, is an error.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The number of concurrent files.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Continue after errors: they are printed, and the other files fetched.
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Print a STAC ItemCollection.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    Translate,
    Copy,
}

impl ModeArg {
    fn default_mode() -> Self {
        if cfg!(feature = "gdal") {
            Self::Translate
        } else {
            Self::Copy
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    /// vsi: paths of GDAL's virtual file systems; https: plain URLs; presigned: URLs that need no credentials for an
    /// hour.
    #[arg(long, value_enum, default_value_t = VariantArg::Vsi)]
    pub(crate) variant: VariantArg,
    /// Print a STAC ItemCollection.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VariantArg {
    Vsi,
    Https,
    Presigned,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// A path, file://, s3://, gs://, az://, https:// or a VSI path.
    pub(crate) location: String,
    /// auto, cog, gdal or async-tiff.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// A path, file://, s3://, gs://, az://, https:// or a VSI path.
    pub(crate) location: String,
    /// A band, counted from 1. Default: all bands.
    #[arg(long, value_name = "N")]
    pub(crate) band: Option<usize>,
    /// A window in pixels of the level. Default: the complete level.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT")]
    pub(crate) window: Option<String>,
    /// 0 is full resolution, 1.. are the overviews.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) level: usize,
    /// auto, cog, gdal or async-tiff.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// The output file; its extension is .tif, .npy, .bin or .png; `-` is stdout as .bin.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: String,
    /// Print one JSON document about what was read.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "zarr")]
#[derive(Debug, Args)]
pub(crate) struct ZarrArgs {
    #[command(subcommand)]
    pub(crate) action: ZarrAction,
}

#[cfg(feature = "zarr")]
#[derive(Debug, Subcommand)]
pub(crate) enum ZarrAction {
    /// Writes the images of a selection as a cube: an array (time, y, x) for each band.
    #[command(
        after_help = "Images that are aligned to one grid are copied without resampling. Any of --resolution, --grid, --resampling, --mask, --mosaic, --reflectance and --on-failure puts them on one grid first, as rss apply does; bands then have their canonical names, such as red.\n\nAn interrupted write resumes when the same command is started again: damaged shards, and those of files that were replaced since, are made anew. A new cube cannot be opened before its write is complete, and an append is seen as a whole. Of two writers of one cube the second is refused.\n\nExample:\n  rss zarr write dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --canonical red,nir --to cube.zarr\n  rss search .. --json | rss zarr write --items - --use time-series --to s3://bucket/cube.zarr\n  rss zarr write .. --append --to cube.zarr\n  rss zarr write dea sentinel2 --bbox 152.9,-27.6,153.2,-27.3 --start 2021-01-01 --end 2021-02-01 --canonical red,nir --crs utm --resolution 20 --resampling average --mask clouds --reflectance --by solar_day --to brisbane.zarr"
    )]
    Write(Box<ZarrWriteArgs>),
    /// Reads time steps of a band of a cube, or a region of any array, into a file or to stdout.
    #[command(
        after_help = "Example:\n  rss zarr read cube.zarr --band nbart_red --time 0 --window 0,0,512,512 -o block.tif\n  rss zarr read cube.zarr --band nbart_red --window 800,900,1,1 -o series.npy\n  rss zarr read volume.zarr/color --ranges 0:32,0:32,0:32 -o cutout.npy"
    )]
    Read(ZarrReadArgs),
    /// Checks that a cube is as it was written: shards and metadata against its manifest.
    #[command(
        after_help = "Finds objects that are missing, damaged, exchanged, stale (with --sources) or surplus. --repair puts metadata right from its copy, and makes the shards again that need it, of the sources that the cube records, as rss again does. A cube without a manifest, of an earlier version, is checked by the checksums in its shards.\n\nExit codes: 0 all is right, or repaired; 2 something is wrong; 3 repaired in part.\n\nExample:\n  rss zarr check cube.zarr\n  rss zarr check s3://bucket/cube.zarr --lengths --json\n  rss zarr check cube.zarr --sources --repair"
    )]
    Check(ZarrCheckArgs),
    /// Prints the metadata of a cube or an array.
    #[command(after_help = "Example:\n  rss zarr info cube.zarr --json")]
    Info {
        /// The folder or prefix with its zarr.json.
        #[arg(value_name = "LOCATION")]
        location: String,
        /// The location is an Icechunk repository; the branch is main if none is named.
        #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
        icechunk: Option<String>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

#[cfg(feature = "zarr")]
#[derive(Debug, Args)]
pub(crate) struct ZarrWriteArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    #[command(flatten)]
    pub(crate) onto: GridArgs,
    /// Write physical values (reflectance from 0 to 1, kelvin) as float32, not raw DNs.
    #[arg(long)]
    pub(crate) reflectance: bool,
    /// Group images into time steps by item, day, solar_day, week, month, season, year, all, or a number of days such as
    /// 10d.
    #[arg(long, value_name = "WHAT", default_value = "item")]
    pub(crate) by: String,
    /// The clock by which images have their day, and so their week, month, season and year: solar (mean solar time at
    /// the image) or utc. Default: solar, or utc with --by day.
    #[arg(long, value_name = "CLOCK")]
    pub(crate) clock: Option<String>,
    /// How images of one time step are mosaicked: first, least_cloud, median, mean, min, max or count.
    #[arg(long, value_name = "HOW", default_value = "first")]
    pub(crate) mosaic: String,
    /// The location of the cube: a folder, or s3://, gs://, az://.
    #[arg(long, value_name = "LOCATION")]
    pub(crate) to: String,
    /// The location is an Icechunk repository; the branch is main if none is named.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    pub(crate) icechunk: Option<String>,
    /// Append later time steps to an existing cube. Its layout stays; images that are in it are left out.
    #[arg(long)]
    pub(crate) append: bool,
    /// Take over the work of another writer of this cube that will never go on: its lock is ignored, and what it wrote of
    /// other images is discarded.
    #[arg(long)]
    pub(crate) take_over: bool,
    /// The access pattern that chunks and shards are chosen for: balanced, time-series or maps.
    #[arg(long = "use", value_name = "USE", default_value = "balanced")]
    pub(crate) for_use: String,
    /// The chunk shape, the smallest part that is decoded. Default: by --use.
    #[arg(long, value_name = "TIME,Y,X")]
    pub(crate) chunk: Option<String>,
    /// The shard shape, one object: a whole number of chunks. Default: by --use.
    #[arg(long, value_name = "TIME,Y,X")]
    pub(crate) shard: Option<String>,
    /// The compression of chunks: auto, none, zstd, gzip, blosc-zstd or blosc-lz4; with a level as
    /// zstd:LEVEL, with a shuffle as blosc-lz4:LEVEL:SHUFFLE. SHUFFLE is auto, none, byte or bit.
    #[arg(long, value_name = "CODEC", default_value = "auto")]
    pub(crate) codec: String,
    /// Stack all bands into one array (time, band, y, x).
    #[arg(long)]
    pub(crate) stack: bool,
    /// The number of overviews, each half as wide and high as the level before.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) overviews: usize,
    /// The resampling of overviews: auto (nearest for bands of classes, average for all others), average, nearest,
    /// bilinear, rms, mode, min or max.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) overview_resampling: String,
    /// The nodata value. Default: that of the files; NaN with --reflectance.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) nodata: Option<rss_core::Number>,
    /// The memory budget of shards under way, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document about what was written.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "zarr")]
#[derive(Debug, Args)]
pub(crate) struct ZarrCheckArgs {
    /// The cube.
    #[arg(value_name = "LOCATION")]
    pub(crate) location: String,
    /// The location is an Icechunk repository; the branch is main if none is named.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    pub(crate) icechunk: Option<String>,
    /// Put right what is wrong: metadata from its copy, shards from their sources.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Ask for the versions of the files that the cube was made of, one request for each; those on this machine are compared
    /// by size and time. Shards of files that are others now are stale.
    #[arg(long)]
    pub(crate) sources: bool,
    /// Compare the lengths of shards only, which costs a listing, and do not read them.
    #[arg(long, conflicts_with = "repair")]
    pub(crate) lengths: bool,
    /// The memory budget of shards that are made again, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "zarr")]
#[derive(Debug, Args)]
pub(crate) struct ZarrReadArgs {
    /// A cube, or with --ranges any array: a path, file://, s3://, gs://, az:// or https://.
    pub(crate) location: String,
    /// The location is an Icechunk repository; the branch is main if none is named.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    pub(crate) icechunk: Option<String>,
    /// The band of the cube. Not needed where there is only one.
    #[arg(long, value_name = "NAME", conflicts_with = "ranges")]
    pub(crate) band: Option<String>,
    /// A time step, counted from 0, or a range without its end. Default: all time steps.
    #[arg(long, value_name = "N|START:END", conflicts_with = "ranges")]
    pub(crate) time: Option<String>,
    /// A window in pixels of the level. Default: the complete level.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT", conflicts_with = "ranges")]
    pub(crate) window: Option<String>,
    /// 0 is full resolution, 1.. are the overviews.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "ranges")]
    pub(crate) level: usize,
    /// A region of an array, one range for each axis; '' for an array without axes. Axes before the last two are
    /// flattened into one.
    #[arg(long, value_name = "START:END,..")]
    pub(crate) ranges: Option<String>,
    /// The output file; its extension is .tif, .npy, .bin or .png; `-` is stdout as .bin. Time steps are its
    /// bands.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: String,
    /// Print one JSON document about what was read.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "index")]
#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    pub(crate) action: IndexAction,
}

#[cfg(feature = "index")]
#[derive(Debug, Subcommand)]
pub(crate) enum IndexAction {
    /// Reads the header of each file once and writes the index.
    #[command(
        after_help = "An interrupted build resumes when the same command is started again.\n\nExample:\n  rss index build list.txt -o files.parquet\n  rss search dea sentinel2 --scene 56jns --json | rss index build --items - --assets nbart_red -o scenes.parquet\n  rss index build --prefix s3://bucket/folder -o folder.parquet\n  rss index build --prefix s3://bucket -o bucket.parquet\n  rss index build --parquet items.parquet -o items-indexed.parquet"
    )]
    Build(IndexBuildArgs),
    /// Prints a summary of an index.
    #[command(after_help = "Example:\n  rss index info scenes.parquet --json")]
    Info {
        /// The index.
        #[arg(value_name = "INDEX")]
        index: PathBuf,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Checks that the files are still those that were indexed, by one small request for each.
    #[command(
        after_help = "Example:\n  rss index check scenes.parquet --sample 100\n  rss index check scenes.parquet --update"
    )]
    Check {
        /// The index.
        #[arg(value_name = "INDEX")]
        index: PathBuf,
        /// Check only this number of files, spread evenly over the index.
        #[arg(long, value_name = "N")]
        sample: Option<usize>,
        /// Read the headers of changed files again and update the index.
        #[arg(long)]
        update: bool,
        /// The number of concurrent files.
        #[arg(long, value_name = "N")]
        concurrency: Option<usize>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Exports an index for other readers: Kerchunk references to Zarr, or a virtual raster (VRT) or tile index (GTI) of GDAL.
    #[command(
        after_help = "Files that the format cannot express exactly are omitted, and listed on stderr.\n\nExample:\n  rss index export scenes.parquet --format kerchunk -o scenes.json\n  rss index export scenes.parquet --format vrt --asset nbart_red -o red.vrt"
    )]
    Export(IndexExportArgs),
    /// Merges indexes: of an item that several hold, the last one wins.
    #[command(after_help = "Example:\n  rss index merge 2020.parquet 2021.parquet -o all.parquet")]
    Merge {
        /// The indexes.
        #[arg(value_name = "INDEX", required = true)]
        indexes: Vec<PathBuf>,
        /// The index to write.
        #[arg(short, long, value_name = "OUT")]
        output: PathBuf,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

#[cfg(feature = "index")]
#[derive(Debug, Args)]
pub(crate) struct IndexExportArgs {
    /// The index.
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// kerchunk (a Zarr group for each file), kerchunk-cube (a time axis for each asset and grid), both as JSON, or as folders
    /// of Parquet files with -parquet behind the name; vrt (a mosaic for each asset), vrt-stack (a band for each file) or gti (the
    /// mosaic of one asset as a tile index).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: rss_core::index::ExportFormat,
    /// Only this asset, by its key. May be repeated.
    #[arg(long = "asset", value_name = "KEY")]
    pub(crate) assets: Vec<String>,
    /// The output: a file, which is replaced, or for Parquet a folder, which must be new or empty.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "index")]
#[derive(Debug, Args)]
pub(crate) struct IndexBuildArgs {
    /// A file with one LOCATION a line; `-` is stdin.
    #[arg(
        value_name = "LIST",
        required_unless_present_any = ["items", "prefix", "parquet"],
        conflicts_with_all = ["items", "prefix", "parquet"]
    )]
    pub(crate) list: Option<String>,
    /// A STAC Item, ItemCollection or catalogue: a file, a URL, or `-` for stdin.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefix", "parquet"])]
    pub(crate) items: Option<String>,
    /// Let items of a file or a pipe name any file of this machine. Without it: those beside or below the file of items,
    /// and files that rss get made.
    #[arg(long, conflicts_with_all = ["list", "prefix"])]
    pub(crate) trust_items: bool,
    /// All TIFFs below a prefix of a bucket, or below a folder.
    #[arg(long, value_name = "URL", conflicts_with = "parquet")]
    pub(crate) prefix: Option<String>,
    /// A stac-geoparquet file; its columns are preserved.
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// The index to write.
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: PathBuf,
    /// Assets by their keys. Default: all GeoTIFFs but thumbnails.
    #[arg(long, value_name = "A,..", value_delimiter = ',')]
    pub(crate) assets: Vec<String>,
    /// Append to the index if it exists: files that are in it are not requested.
    #[arg(long)]
    pub(crate) append: bool,
    /// The number of concurrent files.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatherArgs {
    /// A file with one location a line; `-` is stdin. Empty lines and those that begin with `#` are
    /// ignored. Default: all files of the index.
    #[cfg_attr(feature = "index", arg(required_unless_present = "index"))]
    #[cfg_attr(not(feature = "index"), arg(required = true))]
    pub(crate) list: Option<String>,
    /// An index of the files: each tile costs one request. Files that are not in it cost one more.
    #[cfg(feature = "index")]
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<PathBuf>,
    /// Assets of the index by their keys, where no list is given; KEY:2 is band 2 of an asset with several. Default: all
    /// assets, with all their bands.
    #[cfg(feature = "index")]
    #[arg(
        long,
        value_name = "A,..",
        value_delimiter = ',',
        requires = "index",
        conflicts_with = "list"
    )]
    pub(crate) assets: Vec<String>,
    /// The tile, counted from 0,0 at the top left. Default: the centre tile.
    #[arg(long, value_name = "COL,ROW", group = "place")]
    pub(crate) tile: Option<String>,
    /// A window in pixels of the level.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT", group = "place")]
    pub(crate) window: Option<String>,
    /// The tile that contains a point in degrees; with --size, a window of that size around it.
    #[arg(
        long,
        value_name = "LON,LAT",
        group = "place",
        allow_hyphen_values = true
    )]
    pub(crate) point: Option<String>,
    /// The size in pixels of the window around --point; beyond the image's edge it is --pad.
    #[arg(long, value_name = "WIDTH,HEIGHT", requires = "point")]
    pub(crate) size: Option<String>,
    /// The sample of pixels beyond the image's edge. Default: nodata, NaN in floats without a nodata value.
    #[arg(
        long,
        value_name = "VALUE",
        requires = "size",
        allow_hyphen_values = true
    )]
    pub(crate) pad: Option<rss_core::Number>,
    /// The window that covers a bounding box in degrees.
    #[arg(
        long,
        value_name = "W,S,E,N",
        group = "place",
        allow_hyphen_values = true
    )]
    pub(crate) bbox: Option<String>,
    /// 0 is full resolution, 1.. are the overviews.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) level: usize,
    /// A band, counted from 1. Default: all bands.
    #[arg(long, value_name = "N")]
    pub(crate) band: Option<usize>,
    /// The number of concurrent tiles; with gdal, of its threads. Default: adapted to the measured throughput.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// auto, cog, gdal or async-tiff.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// What to do if a file has changed since it was indexed.
    #[arg(long, value_enum, default_value_t = OnChangeArg::Report)]
    pub(crate) on_change: OnChangeArg,
    /// Hedge requests: send a second one for tiles slower than this quantile of the earlier ones, such as 0.95.
    #[arg(long, value_name = "PART")]
    pub(crate) hedge: Option<f64>,
    /// How often a tile whose bytes are damaged is fetched anew.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) retries: u32,
    /// Print the planned requests, bytes and costs, and send no request.
    #[arg(long)]
    pub(crate) explain: bool,
    /// A cost model for --explain: a table of prices in place of the built-in one.
    #[arg(long, value_name = "FILE", requires = "explain")]
    pub(crate) prices: Option<PathBuf>,
    /// Write the tiles as one array (file, band, y, x) of this .npy file.
    #[arg(short, long, value_name = "OUT.npy", conflicts_with = "explain")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON document with the report.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnChangeArg {
    /// Report the tile as an error.
    Report,
    /// Read the header again, then the tile.
    Reindex,
}

#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) action: CacheAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheAction {
    /// Prints where the cache is and how much it holds.
    #[command(after_help = "Example:\n  rss cache info --json")]
    Info {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Removes expired entries, and the partial files of interrupted downloads.
    #[command(after_help = "Example:\n  rss cache clean")]
    Clean {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Removes every entry.
    #[command(after_help = "Example:\n  rss cache clear")]
    Clear {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What rss-bench is told; rss bench --help prints its help.
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) args: Vec<OsString>,
}
