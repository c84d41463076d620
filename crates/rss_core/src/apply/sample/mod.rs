//! Sampling many images at points and in zones: a table of values, or of zonal statistics.
//!
//! Nothing is resampled: the value at a point is that of the pixel of each file that holds it, and the pixels of a
//! zone are those of each file within it, at full resolution on the file's own grid. Each tile that holds a point or
//! a part of a zone is read once, however many there are; files are read concurrently within the session's memory
//! budget.
//!
//! ```
//! # use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, Source, date};
//! use rss_core::{Crs, apply::sample::{Points, SampleOptions}};
//! # let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
//! # let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
//! # let dea = Source::api(&bed.stac_url())?.like(&DEA);
//! # let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
//! #     .session(session.clone())
//! #     .canonical_bands(["red", "nir"])
//! #     .start_date(date(2021, 1, 1)).end_date(date(2021, 2, 1))
//! #     .cloudcover((Cmp::Less, 30)).build()?.search()?;
//!
//! let plots = Points::new([[153.02, -25.33], [153.05, -25.35]], Crs::Epsg(4326))?;
//! let options = SampleOptions::new().reflectance();
//! let (table, report) = session.sample_points(&found, plots, &options)?; // `sample::points` in async code
//! assert_eq!(table.len(), 2 * 4 * 2); // points, items, bands
//! let first = table.rows().next().unwrap();
//! assert_eq!((first.geometry.id.as_str(), first.band), ("0", "red"));
//! assert!(first.get("value").is_some_and(|red| red < 1.0));
//! assert!(report.missing_inputs.is_empty());
//! # Ok::<_, anyhow::Error>(())
//! ```

mod cells;
mod cover;
mod csv;
mod features;
mod fraction;
mod masks;
mod nearest;
mod points;
mod run;
mod save;
mod shapes;
mod table;
mod tally;
mod zones;

use std::{fmt, sync::Arc};

pub(super) use self::cover::Cover;
pub use self::{
    cover::Coverage,
    csv::CsvOptions,
    features::{GeoJsonOptions, Named},
    points::Points,
    save::TableFormat,
    table::{Column, SampleRow, Table},
    tally::Statistics,
    zones::Zones,
};

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `SampleRow`")]
pub type Row<'a> = SampleRow<'a>;

use self::{nearest::Nearest, run::Sampled, zones::Counted};
use serde_json::{Value, json};

use super::{
    options::{ImageCubeOptions, OnFailure, Values},
    provenance::{SOFTWARE, mask_json, sources_json, time_json, values_json},
    report::MissingInput,
    time::{Duplicates, Grouping},
};
use crate::{
    error::{Error, ErrorKind, Result},
    mask::{Cleanup, MaskClasses},
    products::Manifest,
    query::QueryResult,
    reader::KnownHeaders,
};

/// What happens with a point or zone outside of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outside {
    /// It has no row there.
    #[default]
    NoRow,
    /// It has a row without a value: each geometry has a row for each image and band that could be read.
    Empty,
}

/// The progress of sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleProgress {
    /// Images that are done.
    pub images_done: usize,
    /// All images.
    pub images: usize,
}

type Watch = Arc<dyn Fn(SampleProgress) + Send + Sync>;

/// Options of sampling.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct SampleOptions {
    /// Whether samples are scaled to physical values.
    pub values: Values,
    /// The classes of pixels that are masked: they have no value.
    pub mask: Option<MaskClasses>,
    /// The morphology applied to the mask, in pixels of each band's own grid.
    pub cleanup: Cleanup,
    /// How duplicates of one scene are handled.
    pub duplicates: Duplicates,
    /// What happens with geometries outside of an image.
    pub outside: Outside,
    /// Within which distance of a point, in metres on the ground, the nearest valid pixel stands in for one without a
    /// value; none takes the point's own pixel alone.
    pub nearest: Option<f64>,
    /// What happens when a file cannot be read.
    pub on_failure: OnFailure,
    /// The names and scales of the product's bands; none is the built-in manifest that fits each item.
    pub manifest: Option<Manifest>,
    /// Headers of the files that are known, such as an index: those files cost requests for pixels only.
    pub headers: Option<Arc<dyn KnownHeaders>>,
    watch: Option<Watch>,
}

impl fmt::Debug for SampleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleOptions")
            .field("values", &self.values)
            .field("mask", &self.mask)
            .field("cleanup", &self.cleanup)
            .field("duplicates", &self.duplicates)
            .field("outside", &self.outside)
            .field("nearest", &self.nearest)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

impl SampleOptions {
    /// Returns the defaults: raw samples, no mask, no duplicates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests physical values: reflectance from 0 to 1, kelvin.
    #[must_use]
    pub fn reflectance(mut self) -> Self {
        self.values = Values::Physical;
        self
    }

    /// Sets the classes of pixels that are masked, and the morphology applied to the mask before.
    #[must_use]
    pub fn with_mask(mut self, classes: MaskClasses, cleanup: Cleanup) -> Self {
        self.mask = Some(classes);
        self.cleanup = cleanup;
        self
    }

    /// Sets how duplicates of one scene are handled.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Sets what happens with geometries outside of an image.
    #[must_use]
    pub fn with_outside(mut self, outside: Outside) -> Self {
        self.outside = outside;
        self
    }

    /// Takes the nearest valid pixel of each image and band, where that of a point has no data, is masked or lies outside
    /// of the image, if its centre lies within a distance of the point: in metres on the ground, along the ellipsoid of WGS
    /// 84. Of pixels that are equally near, to a millimetre, the one with the smallest row is taken, then the one with the
    /// smallest column. The table has a column `distance`, which is 0 where the point's own pixel is taken.
    #[must_use]
    pub fn with_nearest(mut self, metres: f64) -> Self {
        self.nearest = Some(metres);
        self
    }

    /// Sets what happens when a file cannot be read: an error that names item and asset, or a missing input that the
    /// report lists. A missing band has no rows; with a missing mask no band of the item has rows.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the names and scales of the product's bands.
    #[must_use]
    pub fn with_manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Takes headers that are known, such as those of an [`Index`](crate::index::Index). A file that is no longer the one
    /// whose header is known is [`ErrorKind::Changed`] when it is read.
    #[must_use]
    pub fn with_headers(mut self, headers: Arc<dyn KnownHeaders>) -> Self {
        self.headers = Some(headers);
        self
    }

    /// Sets a callback for each image that is done.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(SampleProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// Returns the options of a cube with one time step per item, which selects the same items and files.
    fn of_cube(&self) -> ImageCubeOptions {
        let mut options = ImageCubeOptions::new()
            .with_grouping(Grouping::Item)
            .with_duplicates(self.duplicates)
            .with_on_failure(self.on_failure);
        options.values = self.values;
        options.mask = self.mask.clone();
        options.cleanup = self.cleanup;
        options.manifest = self.manifest.clone();
        options.headers = self.headers.clone();
        options
    }
}

/// The report of sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleReport {
    /// Items that were sampled.
    pub images: usize,
    /// Files that are missing, in the order of items and bands.
    pub missing_inputs: Vec<MissingInput>,
    /// Items that were left out as duplicates of others, and why.
    pub left_out: Vec<String>,
    /// Where a file states another grid or nodata value than the catalogue, and which of them is taken; bands whose
    /// integers of 64 bits are rounded.
    pub notes: Vec<String>,
    /// The ids of geometries outside of all images.
    pub nowhere: Vec<String>,
    /// The ids of zones that lie on an image, and to which no pixel belongs: no centre lies in them.
    pub between: Vec<String>,
    /// Where the table comes from, as JSON: `software`, `items` with times and addresses (without query strings, which may
    /// hold signatures), `time`, `bands`, `values`, `mask`, and what is `computed`. Parquet and Arrow files hold it as
    /// `rss:provenance`.
    pub provenance: Value,
}

/// Samples each band of each item at each point: the value of the pixel that holds the point.
///
/// A pixel owns its edges towards row 0 and column 0. A row's number is `value`, which is none for a nodata or
/// masked pixel; with [`SampleOptions::with_nearest`] also `distance`. 64-bit integers past 2^53 are rounded,
/// and a note names their band.
///
/// Costs a header of each file, and the tiles that hold points, each once: adjacent ones in one request, as
/// far as [`fetch_bytes`](crate::SessionBuilder::fetch_bytes) allows. The table is held in memory. Dropping the
/// future cancels the work.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if nothing was found, an item has no date, a mask
/// class or a scale is not known, an image does not fit the budget, or the distance of the nearest pixel is not positive
/// or above 1000 km; errors of the files' stores, with item
/// and asset, if [`OnFailure::Fail`] is chosen.
pub async fn points(
    found: &QueryResult,
    points: Points,
    options: &SampleOptions,
) -> Result<(Table, SampleReport)> {
    let names: Arc<[Named]> = points.named().into();
    let mut columns = vec![Column::new("value", false)];
    let how = json!({"computed": "values at points", "nearest_m": options.nearest});
    let sampled = match options.nearest {
        None => run::sample(found, points, options).await?,
        Some(metres) => {
            columns.push(Column::new("distance", false));
            run::sample(found, Nearest::new(points, metres)?, options).await?
        }
    };
    Ok(made(sampled, names, columns, options, how))
}

/// Computes statistics of the pixels of each zone in each band of each item.
///
/// A zone's pixels are those of [`Coverage`]; a zone that lies on an image has a row there, with count 0 where no pixel
/// belongs to it ([`SampleReport::between`]), and one that lies on no image a row of count 0 for each image and band
/// (up to 1,048,576 of those; [`SampleReport::nowhere`] lists all). A row has `pixels`
/// (all of the zone within the image), `nodata` (those without data), `masked` (those of the others that are
/// masked), then the requested statistics of the remaining pixels, then the bins of a histogram as `bin_LOW_HIGH`.
/// Without samples the count is 0, and the other statistics are none.
///
/// With [`Coverage::Fraction`] each pixel counts by the fraction of it that the zone covers, as in exactextract: counts
/// and bins are sums of fractions, `mean` and `std` are weighted, `min` and `max` are of all pixels that are covered at
/// all, and medians and percentiles interpolate between weighted samples.
///
/// Costs and errors are those of [`points`]. Zones may be larger than memory: statistics are
/// merged tile by tile. Medians and percentiles buffer the samples: at most 65536 distinct ones of a zone and
/// band if they have 16 bits or less, else all of them, at 64 bytes each.
///
/// # Errors
///
/// As of [`points`]; [`ErrorKind::InvalidInput`] if a distance of the nearest pixel is set, which points have;
/// [`ErrorKind::Unsupported`] if a part of a zone cannot be
/// projected to the CRS of an image that it may overlap.
pub async fn zones(
    found: &QueryResult,
    zones: Zones,
    statistics: &Statistics,
    options: &SampleOptions,
) -> Result<(Table, SampleReport)> {
    if options.nearest.is_some() {
        let message = "the nearest pixel is of points: zones have all of theirs";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let names: Arc<[Named]> = zones.named().into();
    let always = ["pixels", "nodata", "masked"].map(|name| (name.to_owned(), true));
    let wanted = statistics.columns().into_iter();
    let how = json!({
        "computed": "statistics of zones",
        "coverage": format!("{:?}", zones.coverage()).to_lowercase(),
    });
    let is_whole = zones.coverage() != Coverage::Fraction;
    let columns: Vec<Column> = always
        .into_iter()
        .chain(wanted)
        .map(|(name, is_count)| match is_count {
            true => Column::counting(name, is_whole),
            false => Column::new(name, false),
        })
        .collect();
    let counted = Counted {
        zones,
        statistics: statistics.clone(),
    };
    let sampled = run::sample(found, counted, options).await?;
    let (table, mut report) = made(sampled, names, columns, options, how);
    report.between = table.without_pixels(&report.nowhere);
    Ok((table, report))
}

/// The first integer past which `f64` does not hold each one.
const FIRST_ROUNDED: f64 = 9_007_199_254_740_992.0;

/// Returns a note for each band of integers of 64 bits with a value that a float may have rounded.
fn rounded<'a>(sampled: &'a Sampled, columns: &'a [Column]) -> impl Iterator<Item = String> + 'a {
    // Sums of small integers are large, and a count is none.
    let is_sample = |column: &Column| !column.is_count && column.name != "sum";
    let kept: Vec<bool> = columns.iter().map(is_sample).collect();
    let has_large = move |band: usize| {
        let rows = sampled
            .rows
            .iter()
            .filter_map(move |bands| bands.get(band)?.as_ref());
        rows.flat_map(|rows| rows.numbers.chunks(kept.len().max(1)))
            .any(|row| {
                let mut numbers = row.iter().zip(&kept);
                numbers.any(|(number, &is_sample)| is_sample && number.abs() >= FIRST_ROUNDED)
            })
    };
    let named = sampled.wide.iter().filter(move |&&band| has_large(band));
    named
        .filter_map(|&band| sampled.bands.get(band))
        .map(|band| {
            format!(
                "band {}: integers past 2^53 are rounded, as numbers of the table are float64",
                band.name
            )
        })
}

fn made(
    sampled: Sampled,
    names: Arc<[Named]>,
    columns: Vec<Column>,
    options: &SampleOptions,
    how: Value,
) -> (Table, SampleReport) {
    let provenance = provenance(&sampled, options, how);
    let notes: Vec<String> = rounded(&sampled, &columns).collect();
    let notes = [sampled.notes.clone(), notes].concat();
    let (table, nowhere) = Table::of(
        table::Parts {
            geometries: names,
            images: sampled.images,
            bands: sampled.bands.into_iter().map(|band| band.name).collect(),
            rows: sampled.rows,
            columns,
        },
        options.outside,
    );
    let table = table.with_metadata("rss:provenance", provenance.to_string());
    let report = SampleReport {
        images: table.images(),
        missing_inputs: sampled.missing_inputs,
        left_out: sampled.left_out,
        notes,
        nowhere,
        between: Vec::new(),
        provenance,
    };
    (table, report)
}

/// Returns where a table comes from, as JSON.
fn provenance(sampled: &Sampled, options: &SampleOptions, how: Value) -> Value {
    let bands = sampled.bands.iter();
    let bands = bands.map(|band| json!({"name": band.name, "asset": band.asset}));
    let mask = options.mask.as_ref();
    let manifest = options.manifest.as_ref();
    let mut all = json!({
        "software": SOFTWARE,
        "time": time_json(&sampled.sources),
        "bands": bands.collect::<Value>(),
        "items": sources_json(&sampled.sources),
        "values": values_json(options.values),
        "mask": mask.map(|classes| mask_json(classes, &options.cleanup)),
        "duplicates": options.duplicates.name(),
        "manifest": manifest.map(|one| format!("{} {}", one.source, one.collection)),
    });
    if !sampled.left_out.is_empty() {
        all["left_out"] = json!(sampled.left_out);
    }
    if let (Some(all), Value::Object(how)) = (all.as_object_mut(), how) {
        all.extend(how);
    }
    all
}
