//! The arguments of `rss apply` and `rss mosaic`, which compute one raster from many images.

use clap::Args;

use super::Items;

/// The target grid, the resampling and the mask.
#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    /// An index of the files: they cost requests for pixels only. Default: the file of --items, where it is one.
    #[cfg(feature = "index")]
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<std::path::PathBuf>,
    /// Mask pixels of these classes: clouds, cloud, shadow, snow, water, saturated, ..
    #[arg(long, value_name = "CLASS,..")]
    pub(crate) mask: Option<String>,
    /// Dilate the mask by this radius.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) dilate: usize,
    /// Open the mask by this radius before the dilation: masked specks narrower than twice this are removed from it.
    #[arg(long, value_name = "PIXELS", default_value_t = 0, requires = "mask")]
    pub(crate) opening: usize,
    /// Where to mask: grid (pixels of the result) or source (pixels of the images at full resolution, before they are
    /// resampled: no masked pixel contributes; --dilate and --opening are in pixels of the images).
    #[arg(long, value_name = "WHERE", default_value = "grid", requires = "mask")]
    pub(crate) mask_stage: String,
    /// The least share, from 0 to 1, of the weight of its source pixels that must be valid in a valid pixel. Default: any.
    #[arg(long, value_name = "SHARE")]
    pub(crate) min_valid: Option<f64>,
    /// The pixel size of the result in units of its CRS. Default: that of the images.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub(crate) resolution: Option<f64>,
    /// The CRS of the result: an EPSG code, utm, ESRI:CODE, a PROJ string, WKT, PROJJSON, or a file with one of these.
    /// Default: that of the images. Needs --resolution.
    #[arg(long, value_name = "CRS", requires = "resolution")]
    pub(crate) crs: Option<String>,
    /// Use the grid of this raster: a path, s3://, gs://, az:// or https://.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resolution", "crs"])]
    pub(crate) grid: Option<String>,
    /// Where the edges of pixels lie with --resolution: edge (at its multiples), center (centres at its multiples), X,Y
    /// (a corner of four pixels, in the CRS of the result) or native (the images' own edges). Default: native where CRS
    /// and resolution are the images' own, else edge.
    #[arg(
        long,
        value_name = "WHERE",
        allow_hyphen_values = true,
        conflicts_with = "grid"
    )]
    pub(crate) anchor: Option<String>,
    /// Crop to this box in degrees.
    #[arg(long, value_name = "W,S,E,N", allow_hyphen_values = true)]
    pub(crate) crop: Option<String>,
    /// Crop to this box in the CRS of the result.
    #[arg(
        long,
        value_name = "XMIN,YMIN,XMAX,YMAX",
        allow_hyphen_values = true,
        conflicts_with = "crop"
    )]
    pub(crate) extent: Option<String>,
    /// Use --geometry for the search only: pixels outside of it stay, and the images are not cropped to it.
    #[arg(long)]
    pub(crate) no_clip: bool,
    /// Read images at full resolution, not their overviews, also where the result is coarser (gdalwarp's -ovr NONE).
    #[arg(long)]
    pub(crate) no_overviews: bool,
    /// How images are resampled onto the grid, as by gdalwarp: nearest, bilinear, cubic, cubicspline, lanczos, average,
    /// rms, mode, min, max, med, q1, q3, sum; and single bands by name: average,scl=mode. Classes and flags are resampled by nearest, unless they are named.
    #[arg(long, value_name = "HOW", default_value = "nearest")]
    pub(crate) resampling: String,
    /// What to do with duplicates of a scene (near real time and final, two processing baselines): best (use the best,
    /// and list the others) or keep (use all).
    #[arg(long, value_name = "WHAT", default_value = "best")]
    pub(crate) duplicates: String,
    /// What fills the gaps of an image where a mosaic or --reduce takes the first or last image: pixel (all bands of a
    /// pixel come from one image) or band (each band by itself).
    #[arg(long, value_name = "WHAT", default_value = "pixel")]
    pub(crate) fill: String,
    /// Cover the full extent of the images: do not crop to --bbox or --geometry.
    #[arg(long)]
    pub(crate) no_crop: bool,
    /// What to do if an image cannot be read: fail, or skip (its pixels are nodata, and it is listed as a missing
    /// input).
    #[arg(long, value_name = "WHAT", default_value = "fail")]
    pub(crate) on_failure: String,
}

/// The images of a raster, and its output.
#[derive(Debug, Args)]
pub(crate) struct CubeArgs {
    #[command(flatten)]
    pub(crate) items: Items,
    #[command(flatten)]
    pub(crate) onto: GridArgs,
    /// Use raw DNs, without scale and offset, in the type of the files where the result is made of them as they are.
    #[arg(long)]
    pub(crate) raw: bool,
    /// The nodata value of the result. Default: NaN, and with --raw that of the files where the result keeps their integers.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) nodata: Option<rss_core::Number>,
    /// The output: a COG (.tif, local or s3://, gs://, az://), a cube (.zarr, likewise), or .npy, .bin, .png (a
    /// quicklook).
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: String,
    /// The values of black and white in a quicklook. Default: the 2nd and 98th percentile of each band.
    #[arg(long, value_name = "LOW,HIGH", allow_hyphen_values = true)]
    pub(crate) range: Option<String>,
    /// The compression of a COG: deflate, deflate:LEVEL, zstd, zstd:LEVEL, lzw or none.
    #[arg(long, value_name = "CODEC", default_value = "deflate")]
    pub(crate) compress: String,
    /// The overviews of a COG: auto (nearest for bands of classes, average for all others), nearest, average, rms, mode,
    /// min, max, or none.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) overview_resampling: String,
    /// Write a STAC Item beside the output, OUT.json: where it comes from, its grid, bands and checksum.
    #[arg(long)]
    pub(crate) stac: bool,
    /// The side of a block in pixels, a multiple of 512 for a COG. Default: 1024, or 512 where the budget or the tiles
    /// of the files suggest it.
    #[arg(long, value_name = "PIXELS")]
    pub(crate) block: Option<u32>,
    /// The memory budget of blocks under way, in MB. Default: 1074.
    #[arg(long, value_name = "MB")]
    pub(crate) budget: Option<u64>,
    /// Print one JSON document with the report.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) cube: CubeArgs,
    /// A formula over bands by their canonical names (image:4 or image:nir for a band of the asset image), with an
    /// optional name: "ndvi=(nir-red)/(nir+red)". May be repeated. Default: the selected bands. Precedence is that of mathematics and Python: + - * / // % ^ (or **),
    /// < <= > >= == !=, and or not, where(condition, a, b), min, max, clip, sqrt, exp, log (natural), isnan and others;
    /// names with odd characters in quotes: 'B8-A'. The grammar: docs/FORMULAS.md.
    #[arg(long = "expr", value_name = "FORMULA", allow_hyphen_values = true)]
    pub(crate) formulas: Vec<String>,
    /// Reduce over time: median, mean, min, max, sum, std, count, first, last, or p and a percentile: p90; or
    /// geomedian, of all bands together. Without it each time step is a band.
    #[arg(long, value_name = "HOW")]
    pub(crate) reduce: Option<String>,
    /// Reduce the time steps of each period by themselves: week, month, season, year, or a number of days such as 10d,
    /// counted from the first image, or from a day: 10d@2021-01-01. Each period is a band, or a time step of a cube.
    #[arg(long, value_name = "PERIOD", requires = "reduce")]
    pub(crate) every: Option<String>,
    /// Group images into time steps by item, day, solar_day, week, month, season, year, all, or a number of days such as
    /// 10d. Default: solar_day, or day with --clock utc.
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<String>,
    /// The clock by which images have their day, and so their week, month, season and year: solar (mean solar time at
    /// the image) or utc. Default: solar, or utc with --by day.
    #[arg(long, value_name = "CLOCK")]
    pub(crate) clock: Option<String>,
    /// How images of one time step are mosaicked, before formulas and --reduce: first, least_cloud, median, mean, min,
    /// max or count.
    #[arg(long, value_name = "HOW", default_value = "first")]
    pub(crate) mosaic: String,
}

#[derive(Debug, Args)]
pub(crate) struct MosaicArgs {
    #[command(flatten)]
    pub(crate) cube: CubeArgs,
    /// Which pixel wins where images overlap: first, least_cloud, median, mean, min, max or count; or geomedian, of all
    /// bands of the solar days together.
    #[arg(long, value_name = "HOW", default_value = "least_cloud")]
    pub(crate) method: String,
}
