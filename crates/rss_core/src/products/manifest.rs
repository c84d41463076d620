//! A manifest: the bands of one collection of one source, by their asset keys and canonical names.

use std::{fs, path::Path, sync::LazyLock};

use serde::Deserialize;

use super::{Collection, PRODUCTS, SceneRule, Source};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number},
    stac::BandNames,
};

/// The quantity that a band measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Surface reflectance.
    Reflectance,
    /// Surface temperature.
    Temperature,
    /// An angle of sun, satellite or terrain.
    Angle,
    /// Another quantity, such as water vapour.
    Quantity,
    /// Classes, masks and flags: not read by default.
    Qa,
}

/// How bands are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By the keys of their assets.
    Asset,
    Canonical,
}

/// One band of a product.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BandDef {
    /// The asset's key in the items; `key:2` (counted from 1) or `key:red` is one band of an asset with several.
    pub asset: String,
    /// The canonical name, the same for every provider, such as `red` or `swir_1`.
    #[serde(default)]
    pub canonical: Option<String>,
    /// The side of a pixel in metres.
    pub resolution: f64,
    /// The dtype of the samples.
    #[serde(deserialize_with = "dtype")]
    pub dtype: DataType,
    /// The nodata value, for files that state none; may be NaN.
    #[serde(default, deserialize_with = "number")]
    pub nodata: Option<Number>,
    /// True if the nodata value replaces that of the files: for products whose files state a wrong one.
    #[serde(default)]
    pub nodata_overrides: bool,
    /// The factor of a sample.
    #[serde(default)]
    pub scale: Option<f64>,
    /// The offset, added after scaling.
    #[serde(default)]
    pub offset: Option<f64>,
    /// The quantity that the band measures.
    pub kind: Kind,
    /// True if some items lack the band.
    #[serde(default)]
    pub optional: bool,
}

/// The offset of reflectance from one processing baseline on.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaselineOffset {
    /// The first baseline that has it, such as 4.0 for 04.00.
    pub(super) from: f64,
    /// The offset, added after scaling.
    pub(super) offset: f64,
}

fn dtype<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(serde::de::Error::custom)
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Number>, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.map(Number::from))
}

/// The description of one collection of one source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Manifest {
    /// The source's name.
    pub source: String,
    /// The product's name, such as `sentinel2`.
    pub collection: String,
    /// The ids of the collections in the API.
    pub stac_collections: Vec<String>,
    /// The property that states cloud cover in percent.
    #[serde(default)]
    pub cloud_cover: Option<String>,
    /// The properties in which items state their scene.
    #[serde(default)]
    pub scene: Option<SceneRule>,
    /// The value of `platform` that items must have, where one collection holds several satellites.
    #[serde(default)]
    pub platform: Option<String>,
    /// Products that are one satellite of this collection, and its `platform`.
    #[serde(default)]
    satellites: std::collections::BTreeMap<String, String>,
    /// The dependence of the reflectance offset on the item's processing baseline.
    #[serde(default)]
    pub(super) baseline_offset: Option<BaselineOffset>,
    /// The bands, in the order they are read.
    pub bands: Vec<BandDef>,
}

impl Manifest {
    /// Returns the manifest of a product of a source; none if it has no such product.
    pub fn builtin(source: &Source, collection: &Collection) -> Option<Self> {
        let wanted = collection.name();
        let own: Vec<&Self> = Self::all()
            .iter()
            .filter(|manifest| manifest.source == source.name())
            .collect();
        // In this order: the name of a product, a satellite of a product, the union, a collection id.
        let exact = own.iter().find(|manifest| manifest.collection == wanted);
        let satellite = || {
            own.iter().find_map(|manifest| {
                let platform = manifest.satellites.get(wanted)?;
                Some(Self {
                    collection: wanted.to_owned(),
                    platform: Some(platform.clone()),
                    ..(*manifest).clone()
                })
            })
        };
        // A collection id of the API selects the manifest that lists it.
        let by_id = || {
            let mut holders = own
                .iter()
                .filter(|m| m.stac_collections.iter().any(|id| id == wanted));
            holders.next().map(|manifest| Self {
                stac_collections: vec![wanted.to_owned()],
                ..(*manifest).clone()
            })
        };
        exact
            .map(|&manifest| manifest.clone())
            .or_else(satellite)
            .or_else(|| match collection {
                Collection::Landsat => Self::union(wanted, &own),
                _ => None,
            })
            .or_else(by_id)
    }

    /// Returns this manifest for a collection that the user names: the product itself, one satellite of it, or one of
    /// the collections of the API that it lists; none if it describes no such collection.
    fn narrowed(&self, wanted: &str) -> Option<Self> {
        if self.collection == wanted {
            return Some(self.clone());
        }
        if let Some(platform) = self.satellites.get(wanted) {
            return Some(Self {
                collection: wanted.to_owned(),
                platform: Some(platform.clone()),
                ..self.clone()
            });
        }
        self.stac_collections
            .iter()
            .any(|id| id == wanted)
            .then(|| Self {
                stac_collections: vec![wanted.to_owned()],
                ..self.clone()
            })
    }

    /// Returns this manifest, a user's, for the collection that is searched, and a note if it does not list that one.
    ///
    /// The collection wins: a manifest describes bands, and does not say what is searched. The name of its product stands
    /// for all collections that it lists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the source has no such product, and the manifest does not describe it.
    pub(crate) fn of_search(
        &self,
        source: &Source,
        collection: &Collection,
    ) -> Result<(Self, Option<String>)> {
        let wanted = collection.name();
        if let Some(own) = self.narrowed(wanted) {
            return Ok((own, None));
        }
        let (ids, platform) = match (Self::builtin(source, collection), collection) {
            (Some(known), _) => (known.stac_collections, known.platform),
            (None, Collection::Id(id)) if !id.is_empty() => (vec![id.clone()], None),
            (None, _) => {
                let message = format!(
                    "neither the source nor the manifest has a collection `{wanted}`: the manifest describes `{}` ({})",
                    self.collection,
                    self.stac_collections.join(", ")
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        };
        let unlisted: Vec<&str> = ids
            .iter()
            .filter(|id| !self.stac_collections.contains(id))
            .map(String::as_str)
            .collect();
        let note = (!unlisted.is_empty()).then(|| {
            format!(
                "{} is searched, which the manifest does not list ({}): its bands, scales and masks are taken all the same",
                unlisted.join(", "),
                self.stac_collections.join(", ")
            )
        });
        let own = Self {
            stac_collections: ids,
            platform: self.platform.clone().or(platform),
            ..self.clone()
        };
        Ok((own, note))
    }

    /// Returns the built-in manifest of an item: among those of its collection, and of its satellite if they name one,
    /// the one with the most of the item's assets.
    pub fn of_item(item: &stac::Item) -> Option<&'static Self> {
        let collection = crate::stac::collection(item)?;
        let platform = crate::stac::text(item, "platform");
        let fits = |manifest: &&Self| {
            let named = manifest.stac_collections.contains(&collection);
            let satellite = match (&manifest.platform, &platform) {
                (Some(wanted), Some(platform)) => wanted.eq_ignore_ascii_case(platform),
                _ => true,
            };
            named && satellite
        };
        let assets = |manifest: &&Self| {
            let has = |band: &&BandDef| item.assets.contains_key(&band.asset);
            manifest.bands.iter().filter(has).count()
        };
        let all = Self::all().iter().filter(fits);
        // Providers use the same collection id with different asset keys, so the assets decide.
        all.filter(|manifest| assets(manifest) > 0)
            .max_by_key(assets)
    }

    /// Returns every built-in manifest.
    #[expect(
        clippy::expect_used,
        reason = "the files are embedded, and a test reads each"
    )]
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Manifest>> = LazyLock::new(|| {
            let texts = PRODUCTS.iter();
            texts
                .map(|text| Manifest::from_yaml(text).expect("an embedded manifest"))
                .collect()
        });
        &ALL
    }

    /// Returns the union of the manifests of single satellites.
    fn union(name: &str, own: &[&Self]) -> Option<Self> {
        let mut parts = own.iter().filter(|manifest| {
            manifest
                .collection
                .strip_prefix(name)
                // `landsat` is the union of `landsat5`, `landsat7`, ..
                .is_some_and(|rest| rest.parse::<u8>().is_ok())
        });
        let mut union = (*parts.next()?).clone();
        name.clone_into(&mut union.collection);
        let mut holders = vec![1; union.bands.len()];
        let mut count = 1;
        for part in parts {
            count += 1;
            union
                .stac_collections
                .extend(part.stac_collections.iter().cloned());
            for band in &part.bands {
                match union
                    .bands
                    .iter()
                    .position(|known| known.asset == band.asset)
                {
                    Some(at) => holders[at] += 1,
                    None => {
                        union.bands.push(band.clone());
                        holders.push(1);
                    }
                }
            }
        }
        for (band, holders) in union.bands.iter_mut().zip(holders) {
            // A band that a satellite lacks is optional in the union.
            band.optional |= holders < count;
        }
        Some(union)
    }

    /// Reads a custom manifest from a YAML file; see `data/products` for examples.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the file does not exist; [`ErrorKind::InvalidInput`] naming the line and what was
    /// expected.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|err| {
            let kind = match err.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::InvalidInput,
            };
            Error::new(kind, "the manifest cannot be read")
                .with_source(err)
                .at(path.display())
        })?;
        Self::from_yaml(&text).map_err(|err| err.at(path.display()))
    }

    /// Reads a manifest from YAML text.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the line and what was expected.
    pub fn from_yaml(text: &str) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
        let manifest: Self = serde_saphyr::from_str(text)
            .map_err(|err| invalid(format!("not a manifest: {}", first_line(&err.to_string()))))?;
        if manifest.stac_collections.is_empty() || manifest.bands.is_empty() {
            return Err(invalid(
                "a manifest must name at least one collection and one band".to_owned(),
            ));
        }
        for (n, band) in manifest.bands.iter().enumerate() {
            // Bands are looked up by either name, so both must be unique.
            let twin = manifest.bands.iter().skip(n + 1).find(|other| {
                other.asset == band.asset
                    || band.canonical.is_some() && other.canonical == band.canonical
            });
            if let Some(twin) = twin {
                return Err(invalid(format!(
                    "bands `{}` and `{}` share a name",
                    band.asset, twin.asset
                )));
            }
        }
        Ok(manifest)
    }

    /// Returns the band of an asset's key.
    pub fn band(&self, asset: &str) -> Option<&BandDef> {
        self.bands.iter().find(|band| band.asset == asset)
    }

    /// Returns the band of an asset's file, counted from 1: the one whose `asset` is `key:2` or `key:red`, else that of
    /// the key, which describes all bands of the asset.
    pub(crate) fn band_at(
        &self,
        key: &str,
        number: usize,
        names: Option<&BandNames>,
    ) -> Option<&BandDef> {
        let names = names.into_iter().flat_map(BandNames::all);
        self.band(&format!("{key}:{number}"))
            .or_else(|| {
                names
                    .map(|name| format!("{key}:{name}"))
                    .find_map(|name| self.band(&name))
            })
            .or_else(|| self.band(key))
    }

    /// Returns the names in a selection of bands by their asset keys, or by their canonical names: `asset`, or
    /// `asset:2` for `name:2`, one band of an asset with several.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] listing every unknown name, and the known ones.
    pub(crate) fn selected(&self, names: &[impl AsRef<str>], by: Naming) -> Result<Vec<String>> {
        let name_of = |band: &BandDef| match by {
            Naming::Asset => Some(band.asset.clone()),
            Naming::Canonical => band.canonical.clone(),
        };
        let holds = |name: &str| {
            self.bands
                .iter()
                .any(|band| name_of(band).as_deref() == Some(name))
        };
        let mut parts = Vec::with_capacity(names.len());
        for name in names.iter().map(AsRef::as_ref) {
            let split = name
                .rsplit_once(':')
                .filter(|(base, band)| !band.is_empty() && holds(base));
            parts.push(match split {
                Some((base, band)) if !holds(name) => (base, Some(band)),
                _ => (name, None),
            });
        }
        let bases: Vec<&str> = parts.iter().map(|(base, _)| *base).collect();
        let found = self.resolve(&bases, |band| match by {
            Naming::Asset => Some(&band.asset),
            Naming::Canonical => band.canonical.as_deref(),
        })?;
        let named = found.into_iter().zip(parts);
        Ok(named
            .map(|(band, (_, of_file))| match of_file {
                Some(of_file) => format!("{}:{of_file}", band.asset),
                None => band.asset.clone(),
            })
            .collect())
    }

    /// Returns the bands that are read when none is named: all but [`Kind::Qa`].
    pub fn default_bands(&self) -> Vec<&BandDef> {
        self.bands
            .iter()
            .filter(|band| band.kind != Kind::Qa)
            .collect()
    }

    /// Returns the bands of canonical names, in the order of `names`.
    ///
    /// ```
    /// use rss_core::{Collection, DEA, Manifest};
    ///
    /// let manifest = Manifest::builtin(&DEA, &Collection::Sentinel2).unwrap();
    /// assert_eq!(manifest.resolve_canonical(&["nir"])?[0].asset, "nbart_nir_1");
    /// let err = manifest.resolve_canonical(&["nri", "red", "grene"]).unwrap_err();
    /// assert!(err.to_string().starts_with("bands nri, grene are not known"));
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] listing every unknown name, and the known ones.
    pub fn resolve_canonical(&self, names: &[impl AsRef<str>]) -> Result<Vec<&BandDef>> {
        self.resolve(names, |band| band.canonical.as_deref())
    }

    /// Returns the bands of asset keys, in the order of `keys`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] listing every unknown key, and the known ones.
    pub fn resolve_assets(&self, keys: &[impl AsRef<str>]) -> Result<Vec<&BandDef>> {
        self.resolve(keys, |band| Some(&band.asset))
    }

    fn resolve(
        &self,
        names: &[impl AsRef<str>],
        name_of: impl Fn(&BandDef) -> Option<&str>,
    ) -> Result<Vec<&BandDef>> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            match self.bands.iter().find(|band| name_of(band) == Some(name)) {
                Some(band) => found.push(band),
                None => missing.push(name),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let known: Vec<&str> = self.bands.iter().filter_map(name_of).collect();
        let (noun, verb) = if missing.len() == 1 {
            ("band", "is")
        } else {
            ("bands", "are")
        };
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{noun} {} {verb} not known in {} {}; known are {}",
                missing.join(", "),
                self.source,
                self.collection,
                known.join(", ")
            ),
        ))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::{DEA, ELEMENT84, PLANETARY_COMPUTER};

    #[test]
    fn every_provider_has_sentinel2_and_landsat() {
        for source in [DEA, ELEMENT84, PLANETARY_COMPUTER] {
            for collection in [
                Collection::Sentinel2,
                Collection::Landsat,
                Collection::Landsat5,
                Collection::Landsat7,
                Collection::Landsat8,
                Collection::Landsat9,
            ] {
                let manifest = Manifest::builtin(&source, &collection);
                let manifest = manifest.unwrap_or_else(|| panic!("{source} {collection}"));
                for name in ["red", "nir", "swir_1"] {
                    assert!(
                        manifest.resolve_canonical(&[name]).is_ok(),
                        "{source} {collection} {name}"
                    );
                }
            }
        }
        assert!(Manifest::builtin(&ELEMENT84, &Collection::Sentinel2C1).is_some());
        assert!(Manifest::builtin(&DEA, &Collection::Sentinel2C1).is_none());
    }

    #[test]
    fn landsat_at_dea_joins_four_satellites() {
        let all = Manifest::builtin(&DEA, &Collection::Landsat).unwrap();
        assert_eq!(all.stac_collections.len(), 4);
        assert!(all.band("nbart_coastal_aerosol").unwrap().optional);
        assert!(!all.band("nbart_red").unwrap().optional);
        assert_eq!(all.platform, None);
    }

    #[test]
    fn one_satellite_of_a_shared_collection_is_a_platform() {
        let eight = Manifest::builtin(&ELEMENT84, &Collection::Landsat8).unwrap();
        assert_eq!(eight.platform.as_deref(), Some("landsat-8"));
        assert_eq!(eight.stac_collections, ["landsat-c2-l2"]);
    }

    #[test]
    fn default_bands_leave_quality_out() {
        let manifest = Manifest::builtin(&DEA, &Collection::Sentinel2).unwrap();
        let names: Vec<_> = manifest
            .default_bands()
            .iter()
            .map(|b| b.asset.as_str())
            .collect();
        assert!(names.contains(&"nbart_red") && !names.contains(&"oa_fmask"));
    }

    #[test]
    fn a_manifest_with_an_unknown_field_is_refused() {
        let err = Manifest::from_yaml("source: x\ncolour: blue\n").unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.to_string().contains("colour"), "{err}");
    }
}
