//! The arguments of what samples points and zones.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::Items;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("shapes").required(true).args(["points", "point", "zones"])))]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    /// GeoJSON of Points and MultiPoints.
    #[arg(long, value_name = "FILE")]
    pub(crate) points: Option<PathBuf>,
    /// A point; may be repeated.
    #[arg(long, value_name = "LON,LAT", allow_hyphen_values = true)]
    pub(crate) point: Vec<String>,
    /// GeoJSON of Polygons and MultiPolygons.
    #[arg(long, value_name = "FILE")]
    pub(crate) zones: Option<PathBuf>,
    /// The CRS of the coordinates, an EPSG code. Default: what the file names, else degrees.
    #[arg(long, value_name = "EPSG")]
    pub(crate) crs: Option<String>,
    /// The property that names points or zones, beside their ids.
    #[arg(long, value_name = "PROPERTY", conflicts_with = "point")]
    pub(crate) name: Option<String>,
    /// What is told of zones: count, mean, min, max, std, sum, median, or p and a percentile: p90.
    #[arg(
        long,
        value_name = "HOW,..",
        default_value = "count,mean,min,max,std",
        conflicts_with_all = ["points", "point"]
    )]
    pub(crate) stats: String,
    /// A histogram of zones too: the edges of its bins, the last of which belongs to its bin.
    #[arg(
        long,
        value_name = "EDGE,..",
        allow_hyphen_values = true,
        conflicts_with_all = ["points", "point"]
    )]
    pub(crate) histogram: Option<String>,
    /// Take all pixels that a zone touches, not those whose centres lie in it.
    #[arg(long, conflicts_with_all = ["points", "point"])]
    pub(crate) all_touched: bool,
    /// Leave out pixels of these classes: clouds, cloud, shadow, snow, water, saturated, ..
    #[arg(long, value_name = "CLASS,..")]
    pub(crate) mask: Option<String>,
    /// Leave out so many pixels around them too.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) dilate: usize,
    /// Let specks narrower than twice this show.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) opening: usize,
    /// Take samples as they are stored, without scale and offset.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Take reflectance and kelvin, by scale and offset: what is done without --raw.
    #[arg(long, conflicts_with = "raw")]
    pub(crate) reflectance: bool,
    /// Give points and zones that an image does not hold a row without a value.
    #[arg(long)]
    pub(crate) keep_outside: bool,
    /// What happens where an image cannot be read: fail, or skip (it has no rows, and is listed).
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_failure: String,
    /// The table, by its ending .csv, .jsonl, .parquet or .arrow; `-` is stdout as CSV.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: String,
    /// The most memory that images under way take, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document about what was made; without -o it holds the rows.
    #[arg(long)]
    pub(crate) json: bool,
}
