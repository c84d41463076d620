//! The arguments, with help and examples.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod apply;
mod sample;

pub(crate) use self::{
    apply::{ApplyArgs, CubeArgs, GridArgs, MosaicArgs},
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
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints the items that a query finds.
    #[command(
        after_help = "Example:\n  rss search dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --cloud-below 30"
    )]
    Search(SearchArgs),
    /// Downloads into the file cache, links into a folder, prints the items with local hrefs.
    #[command(
        after_help = "Example:\n  rss get dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --canonical red,nir --to imagery\n  rss search .. --json | rss get --items - --to imagery --mode copy"
    )]
    Get(GetArgs),
    /// Prints the items with hrefs that GDAL reads in place.
    #[command(
        after_help = "Example:\n  rss remote dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --bands nbart_red --json"
    )]
    Remote(RemoteArgs),
    /// Prints what a raster says of itself.
    #[command(
        after_help = "Example:\n  rss info s3://sentinel-cogs/sentinel-s2-l2a-cogs/56/J/NS/2021/1/S2A_56JNS_20210103_0_L2A/B04.tif"
    )]
    Info(InfoArgs),
    /// Reads pixels into a file or to stdout.
    #[command(
        after_help = "Example:\n  rss read B04.tif --window 0,0,512,512 -o block.npy\n  rss read B04.tif --level 3 -o look.png"
    )]
    Read(ReadArgs),
    /// Keeps the headers of many files in one Parquet file, so that a tile costs one request.
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
    /// Computes one picture of many images: a formula, a median, without clouds, as a COG.
    #[command(
        after_help = "Example:\n  rss apply dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --expr \"(nir-red)/(nir+red)\" --mask clouds --reduce median --resolution 20 -o ndvi.tif"
    )]
    Apply(ApplyArgs),
    /// Lays images over each other: one picture of them all.
    #[command(
        after_help = "Example:\n  rss mosaic dea sentinel2 --bbox 153.0,-27.6,153.3,-27.3 --start 2021-01-01 --end 2021-02-01 --canonical red,green,blue --mask clouds -o brisbane.tif"
    )]
    Mosaic(MosaicArgs),
    /// Takes the values of many images at points, or statistics of zones, as a table.
    #[command(
        after_help = "Where no area is named, it is the box round the points or zones.\n\nExample:\n  rss sample dea sentinel2 --start 2021-01-01 --end 2021-02-01 --canonical red,nir --points plots.geojson --mask clouds -o plots.parquet\n  rss sample dea sentinel2 --start 2021-01-01 --end 2021-02-01 --canonical red --zones fields.geojson --stats count,mean,p90 -o fields.csv\n  rss sample --items scenes.json --bands nbart_red --point 153.02,-25.33"
    )]
    Sample(Box<SampleArgs>),
    /// Looks after the file cache.
    #[command(after_help = "Example:\n  rss cache info --json\n  rss cache clean")]
    Cache(CacheArgs),
    /// Compares ways to the same pixels on servers of its own, and reports.
    #[cfg(feature = "bench")]
    #[command(
        after_help = "Example:\n  rss bench gather --files 200 --latency 30 --concurrency 1,4,16,64 --html report.html"
    )]
    Bench(BenchArgs),
}

/// What to look for.
#[derive(Clone, Debug, Args)]
pub(crate) struct Selection {
    /// dea, element84, planetary-computer, or the URL of any STAC API.
    #[arg(value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// sentinel2, sentinel2-c1, landsat, landsat5, landsat7, landsat8, landsat9, or a collection id.
    #[arg(value_name = "COLLECTION")]
    pub(crate) collection: Option<String>,
    /// A scene: a Sentinel-2 tile (56jns) or a Landsat path and row (090084). May be repeated.
    #[arg(long, value_name = "S")]
    pub(crate) scene: Vec<String>,
    /// A box in degrees; it may cross the antimeridian.
    #[arg(
        long,
        value_name = "W,S,E,N",
        allow_hyphen_values = true,
        conflicts_with = "scene"
    )]
    pub(crate) bbox: Option<String>,
    /// A GeoJSON geometry or feature.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scene", "bbox"])]
    pub(crate) geometry: Option<PathBuf>,
    /// The first day.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) start: Option<String>,
    /// The last day, included.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) end: Option<String>,
    /// Only items whose cloud cover is below so many percent.
    #[arg(long, value_name = "P")]
    pub(crate) cloud_below: Option<f64>,
    /// Assets by the provider's keys.
    #[arg(long, value_name = "B,..", value_delimiter = ',')]
    pub(crate) bands: Vec<String>,
    /// Assets by canonical names: red, nir, swir_1, ..
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
    /// At most so many items.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// A product manifest of your own.
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
    /// stdin. Stdin is read too where neither this nor a SOURCE is given.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "scene", "bbox", "geometry",
        "start", "end", "cloud_below", "platform", "limit", "like"])]
    pub(crate) items: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    /// The folder to link into: DIR/ITEM_ID/FILE_NAME.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Only this extent, in the CRS of --crop-epsg, else of the file.
    #[arg(long, value_name = "W,S,E,N", allow_hyphen_values = true)]
    pub(crate) crop: Option<String>,
    /// The CRS of --crop.
    #[arg(long, value_name = "E", requires = "crop")]
    pub(crate) crop_epsg: Option<u32>,
    /// translate: through GDAL, tiled and compressed; copy: byte for byte.
    #[arg(long, value_enum, default_value_t = ModeArg::default_mode())]
    pub(crate) mode: ModeArg,
    /// Files at once.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Get what can be got: errors are printed and the rest goes on.
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
    /// vsi: what GDAL opens; https: plain URLs; presigned: URLs that need no credentials for an hour.
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
    /// A band, counted from 1. All bands if absent.
    #[arg(long, value_name = "N")]
    pub(crate) band: Option<usize>,
    /// A rectangle in pixels of the level. The whole level if absent.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT")]
    pub(crate) window: Option<String>,
    /// 0 is full resolution, 1.. are the overviews.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) level: usize,
    /// auto, cog, gdal or async-tiff.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// The file to write, by its ending .tif, .npy, .bin or .png; `-` is stdout as .bin.
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
        after_help = "Images that share their pixels are copied as they are. Any of --resolution, --grid, --resampling, --mask, --mosaic, --reflectance and --on-failure makes a cube on one grid of them first, as rss apply does; its bands have their canonical names, such as red.\n\nA write that was stopped goes on where it was when the same command is started again; until it is done nothing can be opened.\n\nExample:\n  rss zarr write dea sentinel2 --scene 56jns --start 2021-01-01 --end 2021-02-01 --canonical red,nir --to cube.zarr\n  rss search .. --json | rss zarr write --items - --use time-series --to s3://bucket/cube.zarr\n  rss zarr write .. --append --to cube.zarr\n  rss zarr write dea sentinel2 --bbox 152.9,-27.6,153.2,-27.3 --start 2021-01-01 --end 2021-02-01 --canonical red,nir --crs utm --resolution 20 --resampling average --mask clouds --reflectance --by solar_day --to brisbane.zarr"
    )]
    Write(Box<ZarrWriteArgs>),
    /// Reads some dates of a band of a cube, or a box of any array, into a file or to stdout.
    #[command(
        after_help = "Example:\n  rss zarr read cube.zarr --band nbart_red --time 0 --window 0,0,512,512 -o block.tif\n  rss zarr read cube.zarr --band nbart_red --window 800,900,1,1 -o series.npy\n  rss zarr read volume.zarr/color --ranges 0:32,0:32,0:32 -o cutout.npy"
    )]
    Read(ZarrReadArgs),
    /// Prints what a cube or an array holds.
    #[command(after_help = "Example:\n  rss zarr info cube.zarr --json")]
    Info {
        /// The folder or prefix with its zarr.json.
        #[arg(value_name = "LOCATION")]
        location: String,
        /// The location is an Icechunk repository: this branch of it, or main.
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
    /// Write physical values as float32 (reflectance from 0 to 1, kelvin), not samples as they are stored.
    #[arg(long)]
    pub(crate) reflectance: bool,
    /// What is one date: item, day, solar_day, month, season or all.
    #[arg(long, value_name = "WHAT", default_value = "item")]
    pub(crate) by: String,
    /// What becomes of images of one date: first, least_cloud, median, mean, min, max or count.
    #[arg(long, value_name = "HOW", default_value = "first")]
    pub(crate) mosaic: String,
    /// Where the cube lies: a folder, or s3://, gs://, az://.
    #[arg(long, value_name = "LOCATION")]
    pub(crate) to: String,
    /// The location is an Icechunk repository: this branch of it, or main.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    pub(crate) icechunk: Option<String>,
    /// Add later dates to a cube that is there. Its layout stays; images that are in it are left out.
    #[arg(long)]
    pub(crate) append: bool,
    /// What the cube is read for: balanced, time-series or maps.
    #[arg(long = "use", value_name = "USE", default_value = "balanced")]
    pub(crate) for_use: String,
    /// The chunk, what is read at least, in place of the usual one.
    #[arg(long, value_name = "TIME,Y,X")]
    pub(crate) chunk: Option<String>,
    /// The shard, one object, in place of the usual one: a whole number of chunks.
    #[arg(long, value_name = "TIME,Y,X")]
    pub(crate) shard: Option<String>,
    /// How chunks are compressed: auto, none, zstd, gzip, blosc-zstd or blosc-lz4, all but the first two with
    /// :LEVEL behind it if wanted, and those of Blosc with :SHUFFLE behind that: auto, none, byte or bit.
    #[arg(long, value_name = "CODEC", default_value = "auto")]
    pub(crate) codec: String,
    /// Put all bands into one array (time, band, y, x).
    #[arg(long)]
    pub(crate) stack: bool,
    /// Make overviews, each half as wide and high as the one before.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) overviews: usize,
    /// How overviews are made: average, nearest, bilinear, mode, min or max.
    #[arg(long, value_name = "HOW", default_value = "average")]
    pub(crate) overview_resampling: String,
    /// The value of pixels without data, where the files state none or another; with --reflectance in place of
    /// NaN.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) nodata: Option<f64>,
    /// The most memory that shards under way take, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document about what was written.
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(feature = "zarr")]
#[derive(Debug, Args)]
pub(crate) struct ZarrReadArgs {
    /// A cube, or with --ranges any array: a path, file://, s3://, gs://, az:// or https://.
    pub(crate) location: String,
    /// The location is an Icechunk repository: this branch of it, or main.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, default_missing_value = "main")]
    pub(crate) icechunk: Option<String>,
    /// The band of the cube. Need not be named where there is one.
    #[arg(long, value_name = "NAME", conflicts_with = "ranges")]
    pub(crate) band: Option<String>,
    /// A date, counted from 0, or several. All dates if absent.
    #[arg(long, value_name = "N|START:END", conflicts_with = "ranges")]
    pub(crate) time: Option<String>,
    /// A rectangle in pixels of the level. The whole level if absent.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT", conflicts_with = "ranges")]
    pub(crate) window: Option<String>,
    /// 0 is full resolution, 1.. are the overviews.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "ranges")]
    pub(crate) level: usize,
    /// A box of an array, one range for each axis. Axes before the last two are written as one.
    #[arg(long, value_name = "START:END,..")]
    pub(crate) ranges: Option<String>,
    /// The file to write, by its ending .tif, .npy, .bin or .png; `-` is stdout as .bin. Dates are its
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
    /// Reads the header of each file, once, and writes the index.
    #[command(
        after_help = "A build that was stopped goes on where it was when the same command is started again.\n\nExample:\n  rss index build list.txt -o files.parquet\n  rss search dea sentinel2 --scene 56jns --json | rss index build --items - --assets nbart_red -o scenes.parquet\n  rss index build --prefix s3://bucket/folder -o folder.parquet\n  rss index build --parquet items.parquet -o items-indexed.parquet"
    )]
    Build(IndexBuildArgs),
    /// Prints what an index holds.
    #[command(after_help = "Example:\n  rss index info scenes.parquet --json")]
    Info {
        /// The index.
        #[arg(value_name = "INDEX")]
        index: PathBuf,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Asks whether the files are still what the index says: one small request for each.
    #[command(
        after_help = "Example:\n  rss index check scenes.parquet --sample 100\n  rss index check scenes.parquet --update"
    )]
    Check {
        /// The index.
        #[arg(value_name = "INDEX")]
        index: PathBuf,
        /// Only so many files, spread evenly over the index.
        #[arg(long, value_name = "N")]
        sample: Option<usize>,
        /// Read the headers of changed files again, and put them into the index.
        #[arg(long)]
        update: bool,
        /// Files at once.
        #[arg(long, value_name = "N")]
        concurrency: Option<usize>,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Writes an index as others read it: Zarr references, or a virtual raster.
    #[command(
        after_help = "What the format cannot say exactly is left out, and listed on stderr.\n\nExample:\n  rss index export scenes.parquet --format kerchunk -o scenes.json\n  rss index export scenes.parquet --format vrt --asset nbart_red -o red.vrt"
    )]
    Export(IndexExportArgs),
    /// Makes one index of several: of an item that several hold, the last one counts.
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
    /// kerchunk (a Zarr group for each file), kerchunk-cube (a time axis for each asset and grid), vrt
    /// (a mosaic for each asset) or vrt-stack (a band for each file).
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: rss_core::index::Format,
    /// Only this asset, by its key; may be given again.
    #[arg(long = "asset", value_name = "KEY")]
    pub(crate) assets: Vec<String>,
    /// The file to write.
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
    /// All TIFFs below a prefix of a bucket, or below a folder.
    #[arg(long, value_name = "URL", conflicts_with = "parquet")]
    pub(crate) prefix: Option<String>,
    /// A stac-geoparquet file; its columns stay as they are.
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// The index to write.
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) output: PathBuf,
    /// Assets by their keys. All GeoTIFFs but thumbnails if absent.
    #[arg(long, value_name = "A,..", value_delimiter = ',')]
    pub(crate) assets: Vec<String>,
    /// Add to the index if it is there: files that it knows are not asked for.
    #[arg(long)]
    pub(crate) append: bool,
    /// Files at once.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// Print one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatherArgs {
    /// A file with one location a line; `-` is stdin. Empty lines and those that begin with `#` do not
    /// count. Without a list, all files of the index.
    #[cfg_attr(feature = "index", arg(required_unless_present = "index"))]
    #[cfg_attr(not(feature = "index"), arg(required = true))]
    pub(crate) list: Option<String>,
    /// An index of the files: each tile costs one request. Files that it lacks are read without it.
    #[cfg(feature = "index")]
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<PathBuf>,
    /// Assets of the index, by their keys, where no list is given. All if absent.
    #[cfg(feature = "index")]
    #[arg(
        long,
        value_name = "A,..",
        value_delimiter = ',',
        requires = "index",
        conflicts_with = "list"
    )]
    pub(crate) assets: Vec<String>,
    /// The tile, from 0 at the top left. The one in the middle if absent.
    #[arg(long, value_name = "COL,ROW", group = "place")]
    pub(crate) tile: Option<String>,
    /// A rectangle in pixels of the level.
    #[arg(long, value_name = "COL,ROW,WIDTH,HEIGHT", group = "place")]
    pub(crate) window: Option<String>,
    /// The tile that holds a point, in degrees; with --size, so many pixels around it.
    #[arg(
        long,
        value_name = "LON,LAT",
        group = "place",
        allow_hyphen_values = true
    )]
    pub(crate) point: Option<String>,
    /// Pixels around --point.
    #[arg(long, value_name = "WIDTH,HEIGHT", requires = "point")]
    pub(crate) size: Option<String>,
    /// The pixels under a box, in degrees.
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
    /// A band, counted from 1. All bands if absent.
    #[arg(long, value_name = "N")]
    pub(crate) band: Option<usize>,
    /// Tiles under way at once. Found by itself if absent; with gdal, its threads.
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// auto, cog, gdal or async-tiff.
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,
    /// What is done about a file that is not the one the index knows.
    #[arg(long, value_enum, default_value_t = OnChangeArg::Report)]
    pub(crate) on_change: OnChangeArg,
    /// Ask a second time for tiles that take longer than this part of those before, such as 0.95.
    #[arg(long, value_name = "PART")]
    pub(crate) hedge: Option<f64>,
    /// How often a tile is tried again, beyond the retries of each request.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) retries: u32,
    /// Say what would be asked for, and what it costs; ask for nothing.
    #[arg(long)]
    pub(crate) explain: bool,
    /// A table of prices in place of the built-in one, for --explain.
    #[arg(long, value_name = "FILE", requires = "explain")]
    pub(crate) prices: Option<PathBuf>,
    /// Write the tiles as one array (file, band, y, x) of this .npy file.
    #[arg(short, long, value_name = "OUT.npy", conflicts_with = "explain")]
    pub(crate) output: Option<PathBuf>,
    /// Print one JSON document about how it went.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnChangeArg {
    /// An error row.
    Report,
    /// Its header is read anew, then the tile.
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
    /// Removes what has expired and what a killed download left.
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

#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) comparison: Comparison,
}

#[cfg(feature = "bench")]
#[derive(Debug, Subcommand)]
pub(crate) enum Comparison {
    /// One tile from each of many files: by several readers, several at once. As many files and runs as
    /// in the published report take most of an hour.
    #[command(
        after_help = "Example:\n  rss bench gather --files 200 --latency 30 --concurrency 1,4,16,64 --html gather.html\n  rss bench gather --backends gdal-tuned,async-tiff --repeats 3 --json gather.json"
    )]
    Gather(BenchGatherArgs),
    /// One window by ranged requests: serial, parallel, in pieces, merged; over three networks.
    /// Takes about two minutes.
    #[command(
        after_help = "Example:\n  rss bench ranges --html ranges.html\n  rss bench ranges --profile same-region --scale 1 --pieces 10000,262144,1048576 --json -"
    )]
    Ranges(BenchRangesArgs),
    /// Sharded arrays written, read and cut, by rss_core, by plain zarrs and by any other system that
    /// speaks the protocol of scripts/peers/zarr_worker.py.
    #[command(
        after_help = "Example:\n  rss bench zarr --side 512 --html zarr.html\n  rss bench zarr --data color --inner 32 --peer \"wkw=python3 scripts/peers/zarr_worker.py wkw\"\n  scripts/peers/zarr --side 512 --html zarr.html"
    )]
    Zarr(BenchZarrArgs),
    /// Is a system of a comparison of arrays.
    #[command(hide = true)]
    ZarrWorker {
        /// ours or zarrs.
        system: String,
    },
    /// Is the servers of a comparison.
    #[command(hide = true)]
    Serve {
        /// What they hold.
        stock: String,
    },
}

#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct BenchGatherArgs {
    /// Files to read one tile of. Each takes half a megabyte of memory.
    #[arg(long, value_name = "N", default_value_t = 1278)]
    pub(crate) files: usize,
    /// The time before the first byte of each answer.
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pub(crate) latency: u64,
    /// Files under way at once, a run for each; threads, for GDAL.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256"
    )]
    pub(crate) concurrency: Vec<usize>,
    /// gdal, gdal-tuned, async-tiff, cog, index, index-adaptive. All of this build if
    /// absent.
    #[arg(long, value_name = "B,..", value_delimiter = ',')]
    pub(crate) backends: Vec<String>,
    /// Runs of each backend at each concurrency; the best is compared.
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) repeats: usize,
    /// Threads that decode, where the backend is not GDAL. One per core if absent.
    #[arg(long, value_name = "T")]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct BenchRangesArgs {
    /// Reads of each way that count.
    #[arg(long, value_name = "N", default_value_t = 21)]
    pub(crate) iterations: usize,
    /// Networks: home, other-region, same-region.
    #[arg(
        long,
        value_name = "P,..",
        value_delimiter = ',',
        default_value = "home,other-region,same-region"
    )]
    pub(crate) profile: Vec<String>,
    /// Most bytes of a piece, a way for each.
    #[arg(
        long,
        value_name = "BYTES,..",
        value_delimiter = ',',
        default_value = "10000,262144"
    )]
    pub(crate) pieces: Vec<u64>,
    /// The width of the window: 1 reads 12 MB, as the published measurement. 1 if absent, but a sixth
    /// over the home line: 1 takes ten minutes there.
    #[arg(long, value_name = "S")]
    pub(crate) scale: Option<f64>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct BenchZarrArgs {
    /// Voxels a side of a volume, a power of two from 64 to 1024; images have four times as many pixels.
    /// 1024 takes 5 GB of the disk and up to 10 GB of memory.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) side: u32,
    /// Voxels a side of an inner chunk, a comparison for each; at most half of --side.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "32,64,128"
    )]
    pub(crate) inner: Vec<u32>,
    /// Times that each system writes and reads; all have their turn before the next time.
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Data sets: color (uint8), segmentation (uint32), eo (int16 images over time).
    #[arg(
        long,
        value_name = "D,..",
        value_delimiter = ',',
        default_value = "color,segmentation,eo"
    )]
    pub(crate) data: Vec<String>,
    /// One more system: its name, and the command that a shell runs to be it. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) peer: Vec<String>,
    /// Where data and arrays lie, and stay. A temporary folder, which is removed, if absent.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Where a report goes, beside the text on stdout.
#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Write one JSON document; `-` or nothing prints it in place of the text.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<String>,
    /// Write one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
