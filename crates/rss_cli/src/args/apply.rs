//! The arguments of what computes one picture of many images.

use clap::Args;

use super::Items;

/// How images are put on one grid, and what of them counts.
#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    /// Leave out pixels of these classes: clouds, cloud, shadow, snow, water, saturated, ..
    #[arg(long, value_name = "CLASS,..")]
    pub(crate) mask: Option<String>,
    /// Leave out so many pixels around them too.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) dilate: usize,
    /// Let specks narrower than twice this show.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) opening: usize,
    /// The side of a pixel of the result, in units of its CRS. Default: that of the images.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub(crate) resolution: Option<f64>,
    /// The CRS of the result: an EPSG code, or utm. Default: that of the images. Wants --resolution.
    #[arg(long, value_name = "EPSG", requires = "resolution")]
    pub(crate) crs: Option<String>,
    /// The grid of this raster: a path, s3://, gs://, az:// or https://.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resolution", "crs"])]
    pub(crate) grid: Option<String>,
    /// How images are resampled, where they have to be: nearest, bilinear, cubic, average, mode, min, max.
    #[arg(long, value_name = "HOW", default_value = "nearest")]
    pub(crate) resampling: String,
    /// Take all that the images cover, not what --bbox names.
    #[arg(long)]
    pub(crate) no_crop: bool,
    /// What happens where an image cannot be read: fail, or skip (its pixels are missing, and listed).
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_failure: String,
}

/// What a picture is made of, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct CubeArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    #[command(flatten)]
    pub(crate) onto: GridArgs,
    /// Take samples as they are stored, without scale and offset.
    #[arg(long)]
    pub(crate) raw: bool,
    /// The result: a COG (.tif, or s3://, gs://, az://), a cube (.zarr, there too), or .npy, .bin, .png (a look).
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: String,
    /// The values that are black and white in a look. Default: of each band the 2nd and 98th percentile.
    #[arg(long, value_name = "LOW,HIGH", allow_hyphen_values = true)]
    pub(crate) range: Option<String>,
    /// How a COG is compressed: deflate, zstd, lzw or none, the first two with :LEVEL behind it if wanted.
    #[arg(long, value_name = "CODEC", default_value = "deflate")]
    pub(crate) compress: String,
    /// Columns and rows of a block, a multiple of 512 for a COG. Default: 1024, or 512 where that is better.
    #[arg(long, value_name = "PIXELS")]
    pub(crate) block: Option<u32>,
    /// The most memory that blocks under way take, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document about what was made.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) cube: CubeArgs,
    /// A formula over bands by their canonical names, perhaps with a name: "ndvi=(nir-red)/(nir+red)". May be
    /// repeated; without it the selected bands are taken as they are.
    #[arg(long = "expr", value_name = "FORMULA")]
    pub(crate) formulas: Vec<String>,
    /// Make one date of all: median, mean, min, max, sum, std, count, first, last, or p and a percentile: p90.
    /// Without it each date is a band.
    #[arg(long, value_name = "HOW")]
    pub(crate) reduce: Option<String>,
    /// What is one date: item, day, solar_day, month, season or all.
    #[arg(long, value_name = "WHAT", default_value = "solar_day")]
    pub(crate) by: String,
    /// What becomes of images of one date: first, least_cloud, median, mean, min, max or count.
    #[arg(long, value_name = "HOW", default_value = "first")]
    pub(crate) mosaic: String,
}

#[derive(Debug, Args)]
pub(crate) struct MosaicArgs {
    #[command(flatten)]
    pub(crate) cube: CubeArgs,
    /// Which pixel shows where images overlap: first, least_cloud, median, mean, min, max or count.
    #[arg(long, value_name = "HOW", default_value = "least_cloud")]
    pub(crate) method: String,
}
