//! Physical values of samples: scale, offset and nodata of a band.
//!
//! Providers deliver the same reflectance with different scales and offsets, and some document them only in prose.
//! This module has the one rule that combines the metadata of manifest and item, and gives the reason for the result.
//! The scale that the file itself states is not considered: it is known only after the file is opened.

use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use stac::Item;

use super::{BandDef, Kind, Manifest};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number, Sample, nodata_sample},
    stac as facts,
};

/// The conversion of samples to physical values: value = sample x `scale` + `offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// The factor of a sample; finite, not 0.
    pub scale: f64,
    /// The offset, added after scaling; finite.
    pub offset: f64,
}

impl Scaling {
    /// The identity: samples are physical values.
    pub const IDENTITY: Self = Self {
        scale: 1.0,
        offset: 0.0,
    };

    /// Returns the value of a sample.
    ///
    /// ```
    /// use rss_core::Scaling;
    ///
    /// let landsat = Scaling { scale: 2.75e-5, offset: -0.2 };
    /// assert!((landsat.apply(20_000.0) - 0.35).abs() < 1e-12);
    /// ```
    pub fn apply(self, sample: f64) -> f64 {
        sample * self.scale + self.offset
    }

    /// Returns true if samples are physical values.
    pub fn is_identity(self) -> bool {
        self == Self::IDENTITY
    }

    /// Returns the values of (y, x) samples; NaN where a sample is NaN or equal to `nodata`.
    ///
    /// The arithmetic is in `f64`; only the result is rounded.
    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    pub fn values<T: Sample>(
        self,
        samples: ArrayView2<'_, T>,
        nodata: Option<Number>,
    ) -> Array2<f32> {
        self.each(samples, nodata, |value| value as f32)
    }

    /// Like [`values`](Self::values), but not rounded.
    pub(crate) fn exact_values<T: Sample>(
        self,
        samples: ArrayView2<'_, T>,
        nodata: Option<Number>,
    ) -> Array2<f64> {
        self.each(samples, nodata, |value| value)
    }

    fn each<T: Sample, V>(
        self,
        samples: ArrayView2<'_, T>,
        nodata: Option<Number>,
        make: impl Fn(f64) -> V,
    ) -> Array2<V> {
        let value = self.value_of::<T>(nodata);
        samples.map(|&sample| make(value(sample)))
    }

    /// Writes the values of samples into an array of the same shape, converted by `make`; nodata becomes `make(NaN)`.
    /// Returns the number of valid values.
    pub(crate) fn put<T: Sample, V: Copy + PartialEq>(
        self,
        samples: ArrayView2<'_, T>,
        nodata: Option<Number>,
        make: impl Fn(f64) -> V,
        out: ArrayViewMut2<'_, V>,
    ) -> usize {
        let is_small = size_of::<T>() <= 2;
        let nodata_sample = nodata.and_then(T::exact);
        match nodata_sample.filter(|_| is_small && self.is_identity()) {
            // Floats represent 8- and 16-bit integers exactly, so nodata can be compared after the conversion.
            Some(nodata) => {
                let (gap, missing) = (make(f64::NAN), make(nodata.number()));
                put_each(samples, out, |sample: T| {
                    let made = make(sample.number());
                    (if made == missing { gap } else { made }, made != missing)
                })
            }
            None => {
                let value = self.value_of::<T>(nodata);
                put_each(samples, out, |sample| {
                    let value = value(sample);
                    (make(value), !value.is_nan())
                })
            }
        }
    }

    /// Returns the conversion of a sample to its value: NaN for NaN and for `nodata`.
    fn value_of<T: Sample>(self, nodata: Option<Number>) -> impl Fn(T) -> f64 {
        let nodata = nodata_sample::<T>(nodata);
        move |sample| match sample.is_data(nodata) {
            true => self.apply(sample.number()),
            false => f64::NAN,
        }
    }
}

/// Converts each sample, and returns the number of valid ones.
fn put_each<T: Copy, V>(
    samples: ArrayView2<'_, T>,
    mut out: ArrayViewMut2<'_, V>,
    make: impl Fn(T) -> (V, bool),
) -> usize {
    let mut valid = 0;
    for (samples, mut out) in samples.rows().into_iter().zip(out.rows_mut()) {
        let mut of_row: u32 = 0;
        // A select for each sample and no branch, so that the loop is vectorised.
        let mut put = |(out, &sample): (&mut V, &T)| {
            let (made, is_valid) = make(sample);
            *out = made;
            of_row += u32::from(is_valid);
        };
        match (samples.to_slice(), out.as_slice_mut()) {
            (Some(samples), Some(out)) => out.iter_mut().zip(samples).for_each(put),
            _ => out.iter_mut().zip(samples).for_each(&mut put),
        }
        valid += of_row as usize;
    }
    valid
}

/// The origin of scale and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScalingOrigin {
    /// The item.
    Item,
    /// The manifest, for all items of the collection.
    Manifest,
    /// The manifest, by the processing baseline that the item states.
    Baseline,
    /// None is needed: classes, flags and angles are not scaled.
    NotScaled,
    /// None is stated: samples are taken as values. The file may state a scale of its own.
    Unknown,
}

/// The scaling, nodata and unit of one band of one item.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BandValues {
    /// The scaling from samples to values: reflectance from 0 to 1, kelvin, or the quantity that the band measures.
    pub scaling: Scaling,
    /// The nodata value: that of the item, else of the manifest. May be NaN.
    pub nodata: Option<Number>,
    /// The dtype of the samples that the item states; that of the file may be another.
    pub dtype: Option<DataType>,
    /// The unit of the values, if it is known: `1` for reflectance, `K` for temperature.
    pub unit: Option<&'static str>,
    /// The origin of the scaling.
    pub origin: ScalingOrigin,
    /// The reason, as a short sentence for reports.
    pub why: String,
}

impl BandValues {
    /// Returns the scaling, nodata and unit of an asset's band, counted from 0.
    ///
    /// The item takes precedence over the manifest, with three exceptions:
    ///
    /// - The offset of a reflectance band is 0 if the item states that it is already applied to the samples
    ///   (`earthsearch:boa_offset_applied`), whatever offset its `raster:bands` state. If the item states that it is
    ///   not applied, the stated offset is added; Earth Search has
    ///   [items with the wrong flag](https://github.com/Element84/earth-search/issues/71), which no rule can detect.
    /// - If neither states the offset of Sentinel-2, it follows from the
    ///   [processing baseline](https://sentiwiki.copernicus.eu/web/s2-processing): from 04.00 on,
    ///   reflectance is (sample - 1000) / 10000, before that sample / 10000. Before 04.00 an offset that the item
    ///   states is ignored.
    /// - Classes, flags and angles of a manifest are not scaled unless the manifest states a scale.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the item does not have the asset; [`ErrorKind::InvalidInput`] if the offset depends
    /// on a baseline that the item does not state: an error is better than reflectance off by 0.1.
    pub fn of(item: &Item, key: &str, band: usize, manifest: Option<&Manifest>) -> Result<Self> {
        let asset = item.assets.get(key).ok_or_else(|| {
            let message = format!("item {} has no asset `{key}`", item.id);
            Error::new(ErrorKind::NotFound, message)
        })?;
        let mut facts_of_item = facts::band_facts_of(asset, band);
        // A scale of 0, NaN or infinity is an error of the catalogue, and treated as absent.
        facts_of_item.scale = facts_of_item.scale.filter(|scale| scale.is_normal());
        facts_of_item.offset = facts_of_item.offset.filter(|offset| offset.is_finite());
        let names = facts::band_names(item, asset);
        let def = manifest
            .and_then(|manifest| manifest.band_at(key, band.saturating_add(1), names.get(band)));
        let kind = def.map(|def| def.kind);
        let of = |scaling: Scaling, origin, why: String| Self {
            scaling,
            nodata: facts_of_item
                .nodata
                .or_else(|| def.and_then(|def| def.nodata)),
            dtype: facts_of_item.dtype,
            unit: match kind {
                Some(Kind::Reflectance) => Some("1"),
                Some(Kind::Temperature) => Some("K"),
                _ => None,
            },
            origin,
            why,
        };
        if def.is_some_and(|def| def.scale.is_none()) {
            let what = match kind {
                Some(Kind::Qa) => Some("classes and flags are not scaled"),
                Some(Kind::Angle) => Some("angles are stored as they are"),
                _ => None,
            };
            if let Some(what) = what {
                let why = what.to_owned();
                return Ok(of(Scaling::IDENTITY, ScalingOrigin::NotScaled, why));
            }
        }
        let offset = Offset::of(item, key, &facts_of_item, def, manifest)?;
        let stated = def.and_then(|def| def.scale);
        let (scale, who) = match (facts_of_item.scale, stated) {
            (Some(scale), _) => (scale, Some(ScalingOrigin::Item)),
            (None, Some(scale)) => (scale, Some(ScalingOrigin::Manifest)),
            (None, None) => (1.0, None),
        };
        let scaling = Scaling {
            scale,
            offset: offset.value,
        };
        let origin = match (offset.origin, who) {
            (Some(ScalingOrigin::Baseline), _) => ScalingOrigin::Baseline,
            (Some(ScalingOrigin::Item), _) | (_, Some(ScalingOrigin::Item)) => ScalingOrigin::Item,
            (Some(_), _) | (_, Some(_)) => ScalingOrigin::Manifest,
            (None, None) => {
                let why = "neither the item nor a manifest states a scale".to_owned();
                return Ok(of(scaling, ScalingOrigin::Unknown, why));
            }
        };
        let says = match who {
            Some(ScalingOrigin::Item) => "by the item",
            Some(_) => "by the manifest",
            None => "by default",
        };
        let why = format!("scale {scale} {says}; {}", offset.why);
        Ok(of(scaling, origin, why))
    }
}

/// The offset, and the reason for it.
struct Offset {
    value: f64,
    origin: Option<ScalingOrigin>,
    why: String,
}

impl Offset {
    fn of(
        item: &Item,
        key: &str,
        facts_of_item: &facts::BandFacts,
        def: Option<&BandDef>,
        manifest: Option<&Manifest>,
    ) -> Result<Self> {
        // Without a manifest any band with an offset may be reflectance.
        let is_reflectance = def.is_none_or(|def| def.kind == Kind::Reflectance);
        let applied = facts::boa_offset_applied(item).filter(|_| is_reflectance);
        if applied == Some(true) && (def.is_some() || facts_of_item.offset.is_some()) {
            return Ok(Self {
                value: 0.0,
                origin: Some(ScalingOrigin::Item),
                why: "offset 0: the item states that it is already applied to the samples"
                    .to_owned(),
            });
        }
        let stated = def.and_then(|def| def.offset);
        let by_baseline = manifest
            .and_then(|manifest| manifest.baseline_offset)
            .filter(|_| def.is_some() && is_reflectance);
        let baseline = facts::processing_baseline(item);
        let is_before =
            by_baseline.is_some_and(|rule| baseline.is_some_and(|baseline| baseline < rule.from));
        // Before that baseline the samples have no offset, whatever the item states.
        if let Some(value) = facts_of_item
            .offset
            .filter(|&offset| offset == 0.0 || !is_before)
        {
            let not_yet = match applied {
                Some(false) if value != 0.0 => {
                    ", which states that it is not yet applied to the samples"
                }
                _ => "",
            };
            return Ok(Self {
                value,
                origin: Some(ScalingOrigin::Item),
                why: format!("offset {value} by the item{not_yet}"),
            });
        }
        if let Some(rule) = by_baseline {
            let baseline = baseline.ok_or_else(|| {
                let message = format!(
                    "item {}, asset `{key}`: its processing baseline is not stated, and the offset \
                     depends on it; expected the property s2:processing_baseline",
                    item.id
                );
                Error::new(ErrorKind::InvalidInput, message)
            })?;
            let (value, when) = match baseline >= rule.from {
                true => (rule.offset, "not before"),
                false => (stated.unwrap_or(0.0), "before"),
            };
            return Ok(Self {
                value,
                origin: Some(ScalingOrigin::Baseline),
                why: format!(
                    "offset {value}: processing baseline {baseline:05.2} is {when} {:05.2}",
                    rule.from
                ),
            });
        }
        Ok(match stated {
            Some(value) => Self {
                value,
                origin: Some(ScalingOrigin::Manifest),
                why: format!("offset {value} by the manifest"),
            },
            None => Self {
                value: 0.0,
                origin: None,
                why: "no offset".to_owned(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;
    use serde_json::{Value, json};

    use super::*;
    use crate::products::{Collection, DEA, ELEMENT84, PLANETARY_COMPUTER, Source};

    fn item(properties: Value, asset: &str, fields: Value) -> Item {
        let mut asset_json = json!({"href": "x"});
        for (name, value) in fields.as_object().unwrap() {
            asset_json[name] = value.clone();
        }
        let mut all = json!({"datetime": "2022-03-01T00:00:00Z"});
        for (name, value) in properties.as_object().unwrap() {
            all[name] = value.clone();
        }
        let page = json!({"type": "Feature", "id": "a", "geometry": null, "properties": all,
            "assets": {asset: asset_json}});
        match facts::read(page.to_string().as_bytes()).unwrap() {
            facts::Document::Item(item, _) => *item,
            other => panic!("{other:?}"),
        }
    }

    fn manifest(source: &Source) -> Manifest {
        Manifest::builtin(source, &Collection::Sentinel2).unwrap()
    }

    fn offset(properties: Value) -> Result<f64> {
        let item = item(properties, "B04", json!({}));
        let values = BandValues::of(&item, "B04", 0, Some(&manifest(&PLANETARY_COMPUTER)))?;
        assert_eq!(values.scaling.scale, 0.0001);
        assert_eq!(values.nodata, Some(Number::from(0.0)));
        Ok(values.scaling.offset)
    }

    #[test]
    fn the_offset_follows_the_baseline_in_any_spelling() {
        for (baseline, expected) in [
            (json!("02.12"), 0.0),
            (json!("03.01"), 0.0),
            (json!("04.00"), -0.1),
            (json!("N0400"), -0.1),
            (json!("0511"), -0.1),
            (json!(4), -0.1),
            (json!(5.1), -0.1),
            (json!(3.01), 0.0),
            (json!(400), -0.1),
        ] {
            let found = offset(json!({"s2:processing_baseline": baseline})).unwrap();
            assert_eq!(found, expected, "{baseline}");
        }
        let by_name = "S2B_MSIL2A_20220301T000001_N0400_R030_T55HFV_20220301T021055.SAFE";
        let found = offset(json!({"s2:product_uri": by_name})).unwrap();
        assert_eq!(found, -0.1);
    }

    #[test]
    fn without_a_baseline_there_is_no_reflectance() {
        for properties in [json!({}), json!({"s2:processing_baseline": "NaN"})] {
            let err = offset(properties).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert_eq!(
                err.message(),
                "item a, asset `B04`: its processing baseline is not stated, and the offset depends \
                 on it; expected the property s2:processing_baseline"
            );
        }
    }

    #[test]
    fn an_offset_is_never_added_twice() {
        let bands = json!({"raster:bands": [{"scale": 0.0001, "offset": -0.1, "nodata": 0}]});
        let manifest = manifest(&ELEMENT84);
        for (properties, expected) in [
            (json!({"earthsearch:boa_offset_applied": true}), 0.0),
            (json!({"earthsearch:boa_offset_applied": "true"}), 0.0),
            (json!({"sentinel:boa_offset_applied": true}), 0.0),
            (json!({"earthsearch:boa_offset_applied": false}), -0.1),
            (json!({}), -0.1),
        ] {
            let item = item(properties.clone(), "red", bands.clone());
            for manifest in [Some(&manifest), None] {
                let values = BandValues::of(&item, "red", 0, manifest).unwrap();
                assert_eq!(values.scaling.offset, expected, "{properties}");
                assert_eq!(values.scaling.scale, 0.0001);
                assert_eq!(values.origin, ScalingOrigin::Item);
            }
        }
        // Before baseline 04.00 the samples have no offset, and one that an item states is wrong.
        for (baseline, expected) in [("02.14", 0.0), ("04.00", -0.1)] {
            let properties = json!({"earthsearch:boa_offset_applied": false,
                "s2:processing_baseline": baseline});
            let old = item(properties, "red", bands.clone());
            let values = BandValues::of(&old, "red", 0, Some(&manifest)).unwrap();
            assert_eq!(values.scaling.offset, expected, "{baseline}");
        }
        // Where the item states no offset, the baseline decides.
        let silent = item(
            json!({"earthsearch:boa_offset_applied": false, "s2:processing_baseline": "05.00"}),
            "red",
            json!({}),
        );
        let values = BandValues::of(&silent, "red", 0, Some(&manifest)).unwrap();
        assert_eq!(values.scaling.offset, -0.1);
        assert_eq!(
            values.why,
            "scale 0.0001 by the manifest; offset -0.1: processing baseline 05.00 is not before 04.00"
        );
    }

    #[test]
    fn classes_and_angles_are_not_scaled_whatever_an_item_says() {
        let odd = json!({"raster:bands": [{"scale": 0.5, "offset": 3}]});
        let dea = manifest(&DEA);
        for key in ["oa_fmask", "oa_satellite_view"] {
            let values = BandValues::of(&item(json!({}), key, odd.clone()), key, 0, Some(&dea));
            let values = values.unwrap();
            assert!(values.scaling.is_identity());
            assert_eq!(values.origin, ScalingOrigin::NotScaled);
        }
    }

    #[test]
    fn what_cannot_be_a_scale_is_left_to_the_manifest() {
        let dea = manifest(&DEA);
        for scale in [json!(0), json!("NaN"), json!("much"), json!(null)] {
            let bands = json!({"raster:bands": [{"scale": scale, "offset": "NaN"}]});
            let item = item(json!({}), "nbart_red", bands);
            let values = BandValues::of(&item, "nbart_red", 0, Some(&dea)).unwrap();
            assert_eq!(values.scaling.scale, 0.0001, "{scale}");
            assert_eq!(values.scaling.offset, 0.0);
            assert_eq!(values.origin, ScalingOrigin::Manifest);
            assert_eq!(values.nodata, Some(Number::from(-999.0)));
            assert_eq!(values.unit, Some("1"));
        }
    }

    #[test]
    fn each_band_of_an_asset_has_its_own_scale() {
        let bands = json!({"raster:bands": [{"scale": 2.0}, {"scale": 3.0, "nodata": 7}]});
        let item = item(json!({}), "all", bands);
        let second = BandValues::of(&item, "all", 1, None).unwrap();
        assert_eq!((second.scaling.scale, second.nodata), (3.0, Some(7.into())));
        let third = BandValues::of(&item, "all", 2, None).unwrap();
        assert_eq!(third.origin, ScalingOrigin::Unknown);
        assert!(third.scaling.is_identity());
        let err = BandValues::of(&item, "none", 0, None).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
        assert_eq!(err.message(), "item a has no asset `none`");
    }

    #[test]
    fn negative_samples_are_values_and_nodata_is_nan() {
        let dea = Scaling {
            scale: 0.0001,
            offset: 0.0,
        };
        let values = dea.values(
            array![[-999_i16, -998, -12, 10_000]].view(),
            Some((-999.0).into()),
        );
        assert!(values[(0, 0)].is_nan());
        assert_eq!(values.as_slice().unwrap()[1..], [-0.0998, -0.0012, 1.0]);
        // A nodata value that the dtype cannot represent masks nothing.
        let bytes = dea.values(array![[0_u8, 255]].view(), Some((-999.0).into()));
        assert_eq!(bytes, array![[0.0, 0.0255]]);
        let floats = Scaling::IDENTITY.values(array![[f32::NAN, 0.1]].view(), Some(0.1_f32.into()));
        assert!(floats.iter().all(|value| value.is_nan()));
    }
}
