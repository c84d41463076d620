//! The arguments of `rss sample`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Items;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("shapes").required(true).args(["points", "point", "zones"])))]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    /// An index of the files: they cost requests for pixels only. Default: the file of --items, where it is one.
    #[cfg(feature = "index")]
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<PathBuf>,
    /// GeoJSON of Points and MultiPoints, or CSV with a header: longitude and latitude, or x and y in the CRS of
    /// --crs.
    #[arg(long, value_name = "FILE")]
    pub(crate) points: Option<PathBuf>,
    /// The columns of the coordinates in CSV of --points. Default: lon,lat, longitude,latitude, x,y or easting,northing.
    #[arg(long, value_name = "X,Y", requires = "points")]
    pub(crate) columns: Option<String>,
    /// A point. May be repeated.
    #[arg(long, value_name = "LON,LAT", allow_hyphen_values = true)]
    pub(crate) point: Vec<String>,
    /// Where the pixel at a point has no data, is masked or lies outside of the image, take the nearest valid pixel whose
    /// centre lies within this distance on the ground. The column `distance` tells it; 0 is the point's own pixel. The search
    /// is for images within the distance too.
    #[arg(
        long,
        value_name = "METRES",
        conflicts_with = "zones",
        allow_hyphen_values = true
    )]
    pub(crate) nearest: Option<f64>,
    /// GeoJSON of Polygons and MultiPolygons.
    #[arg(long, value_name = "FILE")]
    pub(crate) zones: Option<PathBuf>,
    /// The CRS of the coordinates: an EPSG code, ESRI:CODE, a PROJ string, WKT, PROJJSON, or a file with one. Default: that of the file's `crs` member, else EPSG:4326.
    #[arg(long, value_name = "EPSG")]
    pub(crate) crs: Option<String>,
    /// The property, of CSV the column, to write as the column `name`, beside the ids.
    #[arg(long, value_name = "PROPERTY", conflicts_with = "point")]
    pub(crate) name: Option<String>,
    /// Statistics of zones: count, mean, min, max, std, sum, median, or p and a percentile: p90.
    #[arg(
        long,
        value_name = "HOW,..",
        default_value = "count,mean,min,max,std",
        conflicts_with_all = ["points", "point"]
    )]
    pub(crate) stats: String,
    /// The bin edges of a histogram of each zone; the last bin includes its upper edge.
    #[arg(
        long,
        value_name = "EDGE,..",
        allow_hyphen_values = true,
        conflicts_with_all = ["points", "point"]
    )]
    pub(crate) histogram: Option<String>,
    /// Take all pixels that a zone touches, not only those whose centres are in it.
    #[arg(long, conflicts_with_all = ["points", "point"])]
    pub(crate) all_touched: bool,
    /// Count each pixel by the fraction of it that a zone covers, as exactextract: statistics are weighted.
    #[arg(long, conflicts_with_all = ["points", "point", "all_touched"])]
    pub(crate) weights: bool,
    /// Mask pixels of these classes: clouds, cloud, shadow, snow, water, saturated, ..
    #[arg(long, value_name = "CLASS,..")]
    pub(crate) mask: Option<String>,
    /// Dilate the mask by this radius.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) dilate: usize,
    /// Open the mask by this radius before the dilation: masked specks narrower than twice this are removed from it.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) opening: usize,
    /// What to do with duplicates of a scene (near real time and final, two processing baselines): best (sample the best,
    /// and list the others) or keep (sample all).
    #[arg(long, value_name = "WHAT", default_value = "best")]
    pub(crate) duplicates: String,
    /// Use raw DNs, without scale and offset.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Use physical values (reflectance, kelvin) by scale and offset: the default.
    #[arg(long, conflicts_with = "raw")]
    pub(crate) reflectance: bool,
    /// Write a row without a value for points and zones outside of an image.
    #[arg(long)]
    pub(crate) keep_outside: bool,
    /// What to do if an image cannot be read: fail, or skip (it has no rows, and is listed as a missing input).
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_failure: String,
    /// The table; its extension is .csv, .jsonl, .parquet or .arrow; `-` is stdout as CSV.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: String,
    /// Write OUT.json beside the table: where it comes from, and how `rss again` makes it once more. Parquet and Arrow hold
    /// both always.
    #[arg(long)]
    pub(crate) record: bool,
    /// The memory budget of images under way, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document with the report; without -o it holds the rows.
    #[arg(long)]
    pub(crate) json: bool,
}
