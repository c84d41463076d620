//! Mask classes by name, and the boolean masks computed from QA samples.

use std::{fmt, ops::BitOr, str::FromStr, sync::Arc};

use ndarray::{Array2, Axis, Zip};

use super::{Cleanup, QaTable, table::Test};
use crate::{
    error::{Error, ErrorKind, Result},
    products::{BandDef, Manifest},
    raster::{Number, Pixels, nodata_sample},
};

/// Names of classes to mask, such as `clouds,snow`.
///
/// [`QaTable`] lists the names. A name alone is looked up in the bands of a manifest in this order: `fmask`,
/// `scl`, `qa_pixel`, `s2cloudless_mask`, `contiguity`, `qa_radsat`. A prefix with a band's canonical name or asset key
/// selects the band: `s2cloudless_mask:cloud`. Nodata pixels are always masked.
///
/// ```
/// use rss_core::{Collection, DEA, Manifest, mask::MaskClasses};
///
/// let classes = "clouds,snow".parse::<MaskClasses>()? | "non_contiguous".parse()?;
/// assert_eq!(classes.to_string(), "clouds,snow,non_contiguous");
/// let manifest = Manifest::builtin(&DEA, &Collection::Sentinel2).unwrap();
/// let masks = classes.of_manifest(&manifest)?;
/// assert_eq!(masks[0].asset(), "oa_fmask");
/// assert_eq!(masks[1].asset(), "oa_nbart_contiguity");
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskClasses {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    band: Option<String>,
    class: String,
}

/// Canonical names of the bands with classes, the most specific first.
const QA_BANDS: [&str; 6] = [
    "fmask",
    "scl",
    "qa_pixel",
    "s2cloudless_mask",
    "contiguity",
    "qa_radsat",
];

impl MaskClasses {
    /// Resolves the classes to the QA bands of a product: one mask for each band, in the order in which they are first
    /// named.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a class or band that the product lacks, and what it has.
    pub fn of_manifest(&self, manifest: &Manifest) -> Result<Vec<BandMask>> {
        self.of_platform(manifest, manifest.platform.as_deref())
    }

    /// Like [`of_manifest`](Self::of_manifest), for items of one `platform` if a manifest covers several.
    ///
    /// # Errors
    ///
    /// Those of [`of_manifest`](Self::of_manifest).
    pub fn of_platform(
        &self,
        manifest: &Manifest,
        platform: Option<&str>,
    ) -> Result<Vec<BandMask>> {
        let tables = QA_BANDS.iter().filter_map(|canonical| {
            let is_it = |band: &&BandDef| band.canonical.as_deref() == Some(canonical);
            let band = manifest.bands.iter().find(is_it)?;
            Some((band, QaTable::of_canonical(canonical, platform)?))
        });
        let tables: Vec<(&BandDef, QaTable)> = tables.collect();
        let product = format!("{} {}", manifest.source, manifest.collection);
        let mut found: Vec<(&BandDef, &QaTable, Vec<&str>)> = Vec::new();
        for term in &self.terms {
            let mut fitting = tables.iter().filter(|(band, _)| match &term.band {
                Some(name) => band.asset == *name || band.canonical.as_ref() == Some(name),
                None => true,
            });
            // The tables are in the order of QA_BANDS: the first band that has the class is used.
            let holder = fitting.find(|(_, table)| table.tests(&term.class).is_some());
            let (band, table) = holder.ok_or_else(|| term.unknown(&product, &tables))?;
            match found.iter_mut().find(|known| known.0.asset == band.asset) {
                // One mask for each band, so that each QA asset is read once.
                Some((.., classes)) => classes.push(&term.class),
                None => found.push((band, table, vec![&term.class])),
            }
        }
        found
            .into_iter()
            .map(|(band, table, classes)| {
                let classes = Self::of_names(classes.into_iter());
                BandMask::new(&band.asset, table, &classes)
            })
            .collect()
    }

    fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let term = |class: &str| Term {
            band: None,
            class: class.to_owned(),
        };
        Self {
            terms: names.map(term).collect(),
        }
    }
}

impl Term {
    fn unknown(&self, product: &str, tables: &[(&BandDef, QaTable)]) -> Error {
        let has: Vec<String> = tables
            .iter()
            .map(|(band, table)| {
                let classes: Vec<&str> = table.classes().collect();
                format!("{} has {}", band.asset, classes.join(", "))
            })
            .collect();
        let has = match has.is_empty() {
            true => "it has no QA band".to_owned(),
            false => has.join("; "),
        };
        Error::new(
            ErrorKind::InvalidInput,
            format!("mask class `{self}` is unknown in {product}: {has}"),
        )
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.band {
            Some(band) => write!(f, "{band}:{}", self.class),
            None => f.write_str(&self.class),
        }
    }
}

impl fmt::Display for MaskClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, term) in self.terms.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{term}")?;
        }
        Ok(())
    }
}

impl FromStr for MaskClasses {
    type Err = Error;

    /// Parses names separated by commas; `-` is equivalent to `_`. Whether a class exists depends on the product.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a name is empty.
    fn from_str(text: &str) -> Result<Self> {
        let terms = text.split(',').map(|part| {
            // A band of an asset with several is `asset:2`.
            let (band, class) = match part.rsplit_once(':') {
                Some((band, class)) => (Some(band.trim().to_owned()), class),
                None => (None, part),
            };
            let class = class.trim().to_ascii_lowercase().replace('-', "_");
            if class.is_empty() || band.as_ref().is_some_and(String::is_empty) {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "mask `{}` is not a list of classes such as clouds,snow",
                        text.escape_debug()
                    ),
                ));
            }
            Ok(Term { band, class })
        });
        Ok(Self {
            terms: terms.collect::<Result<_>>()?,
        })
    }
}

impl BitOr for MaskClasses {
    type Output = Self;

    /// Returns the union of both lists.
    fn bitor(mut self, other: Self) -> Self {
        for term in other.terms {
            if !self.terms.contains(&term) {
                self.terms.push(term);
            }
        }
        self
    }
}

/// The mask of one QA band: the classes whose pixels are masked.
#[derive(Clone)]
pub struct BandMask {
    asset: String,
    classes: Vec<String>,
    /// The tests of the class `nodata`.
    no_data: Vec<Test>,
    tests: Vec<Test>,
    /// The verdict of each 16-bit value: a lookup is faster than the tests.
    verdict_of: Arc<[Verdict]>,
}

/// The verdict of a QA sample on its pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The pixel is of no masked class.
    Kept,
    /// The pixel is of a masked class.
    LeftOut,
    /// The pixel is nodata.
    NoData,
}

impl Verdict {
    fn of(value: u32, no_data: &[Test], left_out: &[Test]) -> Self {
        let is_one = |tests: &[Test]| tests.iter().any(|test| test.holds(value));
        match (is_one(no_data), is_one(left_out)) {
            // Nodata takes precedence: contiguity's 255 also has the bit of a class.
            (true, _) => Self::NoData,
            (false, true) => Self::LeftOut,
            (false, false) => Self::Kept,
        }
    }
}

/// Combines the verdicts of several masks to the mask of an image. The cleanup applies to the classes alone, so that
/// nodata is not dilated, and a cloud cut by nodata is not eroded from there.
pub(crate) fn left_out(
    shape: (usize, usize),
    verdicts: impl IntoIterator<Item = Result<Array2<Verdict>>>,
    cleanup: Cleanup,
) -> Result<Array2<bool>> {
    let mut left_out = Array2::from_elem(shape, false);
    let mut no_data = left_out.clone();
    for verdicts in verdicts {
        Zip::from(&mut left_out)
            .and(&mut no_data)
            .and(&verdicts?)
            .for_each(|left_out, no_data, &verdict| {
                *left_out |= verdict == Verdict::LeftOut;
                *no_data |= verdict == Verdict::NoData;
            });
    }
    let mut cleaned = cleanup.of_known(left_out.view(), no_data.view());
    cleaned.zip_mut_with(&no_data, |out, &is_missing| *out |= is_missing);
    Ok(cleaned)
}

impl fmt::Debug for BandMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BandMask")
            .field("asset", &self.asset)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

impl BandMask {
    /// Creates a mask of an asset from a custom table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a class that the table lacks, and those it has; a band prefix of a class must
    /// be the asset.
    pub fn new(asset: &str, table: &QaTable, classes: &MaskClasses) -> Result<Self> {
        let no_data = table.tests("nodata").unwrap_or_default().to_vec();
        let mut tests = Vec::new();
        for term in &classes.terms {
            // A class of another band is an error: the mask reads this asset only.
            let is_here = term.band.as_deref().is_none_or(|band| band == asset);
            let found = table.tests(&term.class).filter(|_| is_here);
            let found = found.ok_or_else(|| {
                let known: Vec<&str> = table.classes().collect();
                Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "mask class `{term}` is unknown in {} ({asset}): it has {}",
                        table.name(),
                        known.join(", ")
                    ),
                )
            })?;
            tests.extend_from_slice(found);
        }
        let verdict_of = |value| Verdict::of(value, &no_data, &tests);
        Ok(Self {
            asset: asset.to_owned(),
            classes: classes
                .terms
                .iter()
                .map(|term| term.class.clone())
                .collect(),
            verdict_of: (0..=u32::from(u16::MAX)).map(verdict_of).collect(),
            no_data,
            tests,
        })
    }

    /// Returns the key of the QA asset.
    pub fn asset(&self) -> &str {
        &self.asset
    }

    /// Returns the masked classes, as they were named.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(String::as_str)
    }

    /// Returns the mask (y, x) of a band of QA samples: true where the pixel is of one of the classes, of the table's
    /// class `nodata`, or equal to `nodata`. The band is counted from 0.
    ///
    /// A value of no class is not masked. Signed samples are read as their bits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the band does not exist; [`ErrorKind::Unsupported`] if the samples are not
    /// integers of at most 32 bits.
    pub fn leave_out(
        &self,
        pixels: &Pixels,
        band: usize,
        nodata: Option<Number>,
    ) -> Result<Array2<bool>> {
        let verdicts = self.verdicts(pixels, band, nodata)?;
        Ok(verdicts.mapv(|verdict| verdict != Verdict::Kept))
    }

    /// Like [`leave_out`](Self::leave_out), but distinguishes nodata from the classes.
    pub(crate) fn verdicts(
        &self,
        pixels: &Pixels,
        band: usize,
        nodata: Option<Number>,
    ) -> Result<Array2<Verdict>> {
        let [bands, ..] = pixels.shape();
        if band >= bands {
            let message = format!(
                "{}: band {band} of {bands}; bands are counted from 0",
                self.asset
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let in_table = |value: u16| {
            let known = self.verdict_of.get(usize::from(value));
            known.copied().unwrap_or(Verdict::Kept)
        };
        // A lookup table of all 32-bit values would be too large.
        let by_tests = |value: u32| Verdict::of(value, &self.no_data, &self.tests);
        macro_rules! each {
            ($samples:expr, $type:ty, $value:expr) => {{
                let nodata: Option<$type> = nodata_sample(nodata);
                let band = $samples.index_axis(Axis(0), band);
                band.map(|&sample| match Some(sample) == nodata {
                    true => Verdict::NoData,
                    false => $value(sample),
                })
            }};
        }
        Ok(match pixels {
            Pixels::U8(samples) => each!(samples, u8, |sample: u8| in_table(sample.into())),
            Pixels::I8(samples) => {
                each!(samples, i8, |sample: i8| in_table(
                    sample.cast_unsigned().into()
                ))
            }
            Pixels::U16(samples) => each!(samples, u16, in_table),
            Pixels::I16(samples) => {
                each!(samples, i16, |sample: i16| in_table(sample.cast_unsigned()))
            }
            Pixels::U32(samples) => each!(samples, u32, by_tests),
            Pixels::I32(samples) => {
                each!(samples, i32, |sample: i32| by_tests(sample.cast_unsigned()))
            }
            other => {
                let message = format!(
                    "{}: classes of {} samples; expected integers of at most 32 bits",
                    self.asset,
                    other.dtype()
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::products::{Collection, DEA, ELEMENT84, PLANETARY_COMPUTER, Source};

    fn masks(source: &Source, collection: &Collection, text: &str) -> Result<Vec<BandMask>> {
        let manifest = Manifest::builtin(source, collection).unwrap();
        text.parse::<MaskClasses>()?.of_manifest(&manifest)
    }

    fn one(source: &Source, collection: &Collection, text: &str) -> BandMask {
        let mut found = masks(source, collection, text).unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn clouds_are_found_at_every_provider() {
        for (source, collection, asset) in [
            (DEA, Collection::Sentinel2, "oa_fmask"),
            (DEA, Collection::Landsat, "oa_fmask"),
            (DEA, Collection::Landsat5, "oa_fmask"),
            (ELEMENT84, Collection::Sentinel2, "scl"),
            (ELEMENT84, Collection::Sentinel2C1, "scl"),
            (ELEMENT84, Collection::Landsat9, "qa_pixel"),
            (PLANETARY_COMPUTER, Collection::Sentinel2, "SCL"),
            (PLANETARY_COMPUTER, Collection::Landsat, "qa_pixel"),
        ] {
            let mask = one(
                &source,
                &collection,
                "clouds,snow,water,nodata,cloud,shadow",
            );
            assert_eq!(mask.asset(), asset, "{source} {collection}");
        }
    }

    #[test]
    fn bands_of_dea_leave_out_their_classes_and_nodata() {
        let clouds = one(&DEA, &Collection::Sentinel2, "clouds");
        let fmask = Pixels::U8(array![[[0, 1, 2], [3, 4, 5]]]);
        let expected = array![[true, false, true], [true, false, false]];
        assert_eq!(
            clouds.leave_out(&fmask, 0, Some(0.0.into())).unwrap(),
            expected
        );
        // Contiguity's nodata value, 255, has the bit of contiguous pixels set.
        let gaps = one(&DEA, &Collection::Landsat8, "non-contiguous");
        assert_eq!(gaps.asset(), "oa_nbart_contiguity");
        let bits = Pixels::U8(array![[[0, 1, 255]]]);
        assert_eq!(
            gaps.leave_out(&bits, 0, None).unwrap(),
            array![[true, false, true]]
        );
        let chosen = one(&DEA, &Collection::Sentinel2, "oa_s2cloudless_mask:cloud");
        assert_eq!(chosen.asset(), "oa_s2cloudless_mask");
        let found = chosen.leave_out(&fmask, 0, Some(5.0.into())).unwrap();
        assert_eq!(found, array![[true, false, true], [false, false, true]]);
    }

    #[test]
    fn the_real_clear_pixel_of_landsat_stays() {
        let mask = one(
            &PLANETARY_COMPUTER,
            &Collection::Landsat,
            "clouds,snow,cloud_confidence_high",
        );
        let samples = array![[[21_824_u16, 22_280, 23_888, 1, 0, 21_952, 2, 4, 32]]];
        let expected = array![[false, true, true, true, false, false, true, true, true]];
        let signed = samples.mapv(u16::cast_signed);
        for pixels in [
            Pixels::U16(samples.clone()),
            Pixels::I16(signed),
            Pixels::U32(samples.mapv(u32::from)),
            Pixels::I32(samples.mapv(i32::from)),
        ] {
            let found = mask.leave_out(&pixels, 0, Some(1.0.into())).unwrap();
            assert_eq!(found, expected, "{}", pixels.dtype());
        }
    }

    #[test]
    fn bands_of_one_mask_are_asked_for_once_each() {
        let found = masks(
            &ELEMENT84,
            &Collection::Landsat8,
            "cloud,saturated,shadow,qa_radsat:terrain_occlusion",
        )
        .unwrap();
        let assets: Vec<_> = found
            .iter()
            .map(|mask| (mask.asset(), mask.classes().collect::<Vec<_>>()))
            .collect();
        assert_eq!(
            assets,
            [
                ("qa_pixel", vec!["cloud", "shadow"]),
                ("qa_radsat", vec!["saturated", "terrain_occlusion"])
            ]
        );
    }

    #[test]
    fn what_is_not_known_says_what_is() {
        let err = masks(&PLANETARY_COMPUTER, &Collection::Sentinel2, "clouds,haze").unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            err.message(),
            "mask class `haze` is unknown in planetary-computer sentinel2: SCL has nodata, saturated, \
             dark, shadow, vegetation, not_vegetated, water, unclassified, cloud_medium, cloud_high, \
             cirrus, snow, cloud, clouds"
        );
        let err = masks(&DEA, &Collection::Sentinel2, "scl:cloud").unwrap_err();
        assert!(err.message().starts_with(
            "mask class `scl:cloud` is unknown in dea sentinel2: oa_fmask has nodata"
        ));
        for text in ["", "cloud,,snow", ":cloud", "scl:"] {
            let err = text.parse::<MaskClasses>().unwrap_err();
            assert_eq!(
                err.message(),
                format!("mask `{text}` is not a list of classes such as clouds,snow")
            );
        }
        let table = QaTable::of_values("ours", [("bad", 3), ("bad", 4)]);
        let err = BandMask::new("m", &table, &"worse".parse().unwrap()).unwrap_err();
        assert_eq!(
            err.message(),
            "mask class `worse` is unknown in ours (m): it has bad"
        );
        let mask = BandMask::new("m", &table, &"bad".parse().unwrap()).unwrap();
        let floats = Pixels::F32(array![[[3.0]]]);
        let err = mask.leave_out(&floats, 0, None).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        let bytes = Pixels::U8(array![[[3, 4, 5]]]);
        let found = mask.leave_out(&bytes, 0, Some(f64::NAN.into())).unwrap();
        assert_eq!(found, array![[true, true, false]]);
        assert!(mask.leave_out(&bytes, 1, None).is_err());
    }
}
