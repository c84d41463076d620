//! Where a result comes from: images with their times, grid, mask, computation and software. It is written into COGs and
//! cubes, so that a file says by itself what it is of.

use std::collections::BTreeMap;

use ::stac::Item;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};

use super::{
    axes::Step,
    cube::ImageCube,
    options::{Overviews, Values},
    run::Apply,
};
use crate::{
    geo::GeoBox,
    mask::{Cleanup, MaskClasses},
    query::{packed, without_secrets},
    raster::Sample,
    stac,
};

/// The software, as files state it.
pub(crate) const SOFTWARE: &str = concat!("rss_core ", env!("CARGO_PKG_VERSION"));
/// Bytes of JSON that a file holds as they are; longer lists are compressed.
const PLAIN_BYTES: usize = 64 << 10;

/// An item that a cube is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceItem {
    pub(crate) id: String,
    pub(crate) collection: Option<String>,
    pub(crate) start: Option<DateTime<Utc>>,
    pub(crate) end: Option<DateTime<Utc>>,
    /// The addresses of its assets by key, without query strings: they may hold signatures.
    pub(crate) assets: BTreeMap<String, String>,
    /// The versions of its open files by key of the asset, where they are not on this machine.
    pub(crate) versions: BTreeMap<String, Value>,
    /// The address of the item itself.
    pub(crate) href: Option<String>,
}

impl SourceItem {
    /// Describes an item by the assets of these keys.
    pub(crate) fn of<'a>(item: &Item, keys: impl IntoIterator<Item = &'a str>) -> Self {
        let times = stac::interval(item);
        let start = times.map(|(start, _)| start).or(stac::datetime(item));
        let end = times.map(|(_, end)| end).or(stac::datetime(item));
        let href = |key: &str| Some((key.to_owned(), without_secrets(&item.assets.get(key)?.href)));
        Self {
            id: item.id.clone(),
            collection: stac::collection(item),
            start,
            end,
            assets: keys.into_iter().filter_map(href).collect(),
            versions: BTreeMap::new(),
            href: item
                .links
                .iter()
                .find(|link| link.rel == "self")
                .map(|link| without_secrets(&link.href.to_string())),
        }
    }

    /// Describes an image by its id, its time, and the addresses and versions of its files.
    #[cfg(feature = "zarr")]
    pub(crate) fn at(
        id: &str,
        time: DateTime<Utc>,
        assets: BTreeMap<String, String>,
        versions: BTreeMap<String, Value>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            collection: None,
            start: Some(time),
            end: Some(time),
            assets,
            versions,
            href: None,
        }
    }

    fn to_json(&self) -> Value {
        let mut all = json!({"id": self.id, "collection": self.collection, "assets": self.assets});
        if !self.versions.is_empty() {
            all["versions"] = json!(self.versions);
        }
        if let Some(href) = &self.href {
            all["href"] = json!(href);
        }
        match (self.start, self.end) {
            (Some(start), Some(end)) if start == end => all["datetime"] = json!(instant(start)),
            (start, end) => {
                all["start_datetime"] = json!(start.map(instant));
                all["end_datetime"] = json!(end.map(instant));
            }
        }
        all
    }
}

/// Returns an instant as STAC writes it.
fn instant(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Returns items as JSON; a long list as its length and the list compressed.
pub(crate) fn sources_json(sources: &[SourceItem]) -> Value {
    shortened(sources.iter().map(SourceItem::to_json).collect())
}

fn shortened(all: Vec<Value>) -> Value {
    let (count, all) = (all.len(), Value::Array(all));
    match all.to_string() {
        text if text.len() > PLAIN_BYTES => json!({"count": count, "packed": packed(&text)}),
        _ => all,
    }
}

fn steps_json(steps: &[Step]) -> Value {
    let step =
        |step: &Step| json!({"label": step.label, "time": instant(step.time), "items": step.items});
    shortened(steps.iter().map(step).collect())
}

/// Returns the first and the last instant of items.
pub(crate) fn time_json(sources: &[SourceItem]) -> Value {
    let start = sources.iter().filter_map(|source| source.start).min();
    let end = sources.iter().filter_map(|source| source.end).max();
    json!({"start": start.map(instant), "end": end.map(instant)})
}

/// Returns which values samples are.
pub(crate) fn values_json(values: Values) -> &'static str {
    match values {
        Values::Raw => "raw",
        Values::Physical => "physical",
    }
}

/// Returns a mask as JSON: its classes, and the morphology applied to it.
pub(crate) fn mask_json(classes: &MaskClasses, cleanup: &Cleanup) -> Value {
    json!({
        "classes": classes.to_string(),
        "opening": cleanup.opening,
        "dilation": cleanup.dilation,
        "element": format!("{:?}", cleanup.element).to_lowercase(),
    })
}

/// Returns a grid as JSON: CRS, geotransform in GDAL's order, columns and rows.
pub(crate) fn grid_json(grid: &GeoBox) -> Value {
    json!({
        "crs": grid.crs.as_ref().map(ToString::to_string),
        "transform": grid.transform.map(|transform| transform.0),
        "width": grid.size.width,
        "height": grid.size.height,
    })
}

impl ImageCube {
    /// Returns the options that, beside grid, time steps and items, determine the samples. An append compares them:
    /// a store must not mix samples that were computed differently.
    pub(crate) fn made(&self) -> Value {
        let options = &self.0.options;
        let manifest = options.manifest.as_ref();
        let mask = options.mask.as_ref().map(|classes| {
            let mut mask = mask_json(classes, &options.cleanup);
            mask["stage"] = json!(options.mask_stage.name());
            mask
        });
        json!({
            "values": values_json(options.values),
            "resampling": options.resampling.name(),
            "band_resampling": options
                .band_resampling
                .iter()
                .map(|(band, resampling)| (band.clone(), resampling.name().into()))
                .collect::<serde_json::Map<_, _>>(),
            "max_error_pixels": options.max_error_pixels,
            "mosaic": options.mosaic.name(),
            "fill": options.fill.name(),
            "mask": mask,
            "clip": options.clip.as_ref().map(|zones| zones.fingerprint()),
            "overviews": match options.overviews {
                Overviews::Auto => "auto",
                Overviews::Never => "never",
            },
            "min_valid": options.min_valid,
            "manifest": manifest.map(|one| format!("{} {}", one.source, one.collection)),
        })
    }

    /// Opens the files of all images, each once, as the first block would: [`provenance`](Self::provenance) then states
    /// their versions. Costs the request for the header of each file, which reading does not repeat. A file that cannot be
    /// opened is an error, or a missing input, of the block that needs it.
    pub async fn open_files(&self) {
        self.0.open_files().await;
    }

    /// Returns the versions of open files by item and key of the asset.
    fn versions(&self) -> BTreeMap<&str, BTreeMap<String, Value>> {
        let mut all: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
        for image in self.0.images.iter().flatten() {
            let masks = image.masks.iter().map(|(source, _)| source);
            for source in image.bands.iter().flatten().map(AsRef::as_ref).chain(masks) {
                if let Some(version) = source.version() {
                    let of_item = all.entry(&source.item).or_default();
                    of_item.insert(source.key.clone(), version.to_json());
                }
            }
        }
        all
    }

    /// Returns where the cube comes from, as JSON: `software`, `grid`, `time` (first and last instant), `bands`,
    /// `steps` with the ids of their items, `items` with times and addresses (without query strings, which may hold
    /// signatures) and the versions of files that are open and not on this machine (ETag, last change, bytes),
    /// `left_out`, and the options that determine samples: `values`, `resampling`, `grouping`, `mosaic`, `mask`.
    pub fn provenance(&self) -> Value {
        let mut all = self.made();
        let inner = &self.0;
        let bands = self.bands().iter();
        let bands = bands.map(|band| json!({"name": band.name, "asset": band.asset}));
        all["software"] = json!(SOFTWARE);
        all["grid"] = grid_json(self.grid());
        all["time"] = time_json(&inner.sources);
        all["bands"] = bands.collect();
        all["steps"] = steps_json(self.steps());
        let mut versions = self.versions();
        let sources = inner.sources.iter().map(|source| SourceItem {
            versions: versions.remove(source.id.as_str()).unwrap_or_default(),
            ..source.clone()
        });
        all["items"] = sources_json(&sources.collect::<Vec<_>>());
        if !self.left_out().is_empty() {
            all["left_out"] = json!(self.left_out());
        }
        all["grouping"] = json!(inner.options.grouping.to_string());
        all
    }
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Returns the options that, beside grid, time steps and items, determine the samples. Two closures cannot be told
    /// apart: both are named `a closure`.
    pub(crate) fn made(&self) -> Value {
        let mut made = self.cube.made();
        made["computed"] = json!(self.how.as_deref().unwrap_or("a closure"));
        made["halo"] = json!(self.options.halo);
        made
    }

    /// Returns where the result comes from, as JSON: that of the [cube](ImageCube::provenance), and `computed`, the
    /// computation in words.
    pub fn provenance(&self) -> Value {
        let mut all = self.cube().provenance();
        if let (Some(all), Some(made)) = (all.as_object_mut(), self.made().as_object()) {
            for (name, value) in made {
                all.entry(name).or_insert_with(|| value.clone());
            }
            if let Some(steps) = self.steps()
                && steps != self.cube().steps()
            {
                all.insert("periods".to_owned(), steps_json(steps));
            }
        }
        all
    }
}

/// Returns the metadata of a file: what a reader wants to see each by itself, and all of it as JSON.
#[cfg(feature = "cog")]
pub(super) fn metadata_of(provenance: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        // XML has no control characters.
        Value::String(text) => text.replace(char::is_control, " "),
        other => other.to_string(),
    };
    let mut all = Vec::new();
    for name in [
        "computed",
        "mask",
        "resampling",
        "grouping",
        "mosaic",
        "fill",
        "band_resampling",
        "min_valid",
        "clip",
        "values",
        "grid",
        "items",
        "steps",
        "periods",
        "left_out",
        "software",
    ] {
        match &provenance[name] {
            Value::Null => {}
            Value::Object(none) if none.is_empty() => {}
            value => all.push((format!("RSS_{}", name.to_uppercase()), text(value))),
        }
    }
    for (name, end) in [("TIME_START", "start"), ("TIME_END", "end")] {
        if let Some(time) = provenance["time"][end].as_str() {
            all.push((format!("RSS_{name}"), time.to_owned()));
        }
    }
    all
}
