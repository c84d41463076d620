//! Tables of QA bands: the meaning of their values and bits.

use crate::error::{Error, ErrorKind, Result};

/// The classes of a QA band, and the values or bits that encode them.
///
/// Names mean the same in every built-in table:
///
/// | class | DEA fmask | s2cloudless | Sentinel-2 SCL | Landsat QA_PIXEL |
/// |---|---|---|---|---|
/// | `nodata` | 0 | 0 | 0 | bit 0 |
/// | `clear` | 1 | 1 | | bit 6 |
/// | `cloud` | 2 | 2 | 8, 9 | bit 3 |
/// | `shadow` | 3 | | 3 | bit 4 |
/// | `cirrus` | | | 10 | bit 2 |
/// | `dilated_cloud` | | | | bit 1 |
/// | `snow` | 4 | | 11 | bit 5 |
/// | `water` | 5 | | 6 | bit 7 |
/// | `clouds` | 2, 3 | 2 | 3, 8, 9, 10 | bits 1, 2, 3, 4 |
///
/// `clouds` is the union of cloud, shadow, cirrus and dilated cloud, as far as the band has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QaTable {
    name: String,
    classes: Vec<(String, Vec<Test>)>,
}

/// A test of a sample: it is of the class if its bits under `mask` equal `equals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    mask: u32,
    equals: u32,
}

impl Test {
    fn value(value: u32) -> Self {
        Self {
            // All bits must match.
            mask: u32::MAX,
            equals: value,
        }
    }

    pub(super) fn holds(self, sample: u32) -> bool {
        sample & self.mask == self.equals
    }
}

/// Other names of classes.
const ALIASES: [(&str, &str); 9] = [
    ("no_data", "nodata"),
    ("fill", "nodata"),
    ("cloud_shadow", "shadow"),
    ("shadows", "shadow"),
    ("thin_cirrus", "cirrus"),
    ("ice", "snow"),
    ("snow_ice", "snow"),
    ("valid", "clear"),
    ("occlusion", "terrain_occlusion"),
];

impl QaTable {
    /// Creates a table of values: each class by its name and one value.
    ///
    /// A class may occur more than once: each of its values is of the class. The class `nodata` is always masked.
    pub fn of_values<N: Into<String>>(
        name: impl Into<String>,
        classes: impl IntoIterator<Item = (N, u32)>,
    ) -> Self {
        let mut table = Self {
            name: name.into(),
            classes: Vec::new(),
        };
        for (class, value) in classes {
            table.add(&class.into(), &[Test::value(value)]);
        }
        table
    }

    /// Creates a table of bit fields: each class by its name, its lowest bit (0 is the least significant), the number
    /// of bits, and their value.
    ///
    /// ```
    /// use rss_core::mask::QaTable;
    ///
    /// let aerosol = QaTable::of_bits("qa_aerosol", [("nodata", 0, 1, 1), ("high_aerosol", 6, 2, 3)])?;
    /// assert_eq!(aerosol.classes().collect::<Vec<_>>(), ["nodata", "high_aerosol"]);
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a bit field exceeds 32 bits, or the value does not fit it.
    pub fn of_bits<N: Into<String>>(
        name: impl Into<String>,
        classes: impl IntoIterator<Item = (N, u32, u32, u32)>,
    ) -> Result<Self> {
        let mut table = Self {
            name: name.into(),
            classes: Vec::new(),
        };
        for (class, first, count, value) in classes {
            let class = class.into();
            let end = first
                .checked_add(count)
                .filter(|&end| end <= 32 && count > 0);
            // The largest value of the field; none for a field of 0 bits.
            let most = u32::MAX.checked_shr(32_u32.saturating_sub(count));
            let (Some(_), Some(most)) = (end, most.filter(|&most| value <= most)) else {
                let message = format!(
                    "class `{class}` of {}: {count} bits from bit {first} with the value {value} are \
                     not within 32 bits",
                    table.name
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            };
            let test = Test {
                mask: most << first,
                equals: value << first,
            };
            table.add(&class, &[test]);
        }
        Ok(table)
    }

    /// Returns the table of a band by its canonical name in manifests: `fmask`, `s2cloudless_mask`, `contiguity`,
    /// `scl`, `qa_pixel` or `qa_radsat`; none for others. The item's `platform` selects the `qa_radsat`: that of
    /// Landsat 8 and 9 unless it is an older satellite.
    pub fn of_canonical(canonical: &str, platform: Option<&str>) -> Option<Self> {
        // Landsat 4 to 7 assign the bits of QA_RADSAT differently.
        let is_older = platform.is_some_and(|platform| {
            let older = ["landsat-4", "landsat-5", "landsat-7"];
            older.iter().any(|name| platform.eq_ignore_ascii_case(name))
        });
        match canonical {
            "fmask" => Some(Self::fmask()),
            "s2cloudless_mask" => Some(Self::s2cloudless()),
            "contiguity" => Some(Self::contiguity()),
            "scl" => Some(Self::scl()),
            "qa_pixel" => Some(Self::qa_pixel()),
            "qa_radsat" if is_older => Some(Self::qa_radsat_tm()),
            "qa_radsat" => Some(Self::qa_radsat()),
            _ => None,
        }
    }

    /// Returns the classes of
    /// [DEA's fmask](https://knowledge.dea.ga.gov.au/data/product/dea-surface-reflectance-nbart-sentinel-2-msi/).
    pub fn fmask() -> Self {
        let classes = ["nodata", "clear", "cloud", "shadow", "snow", "water"];
        Self::of_values("DEA fmask", classes.into_iter().zip(0..)).with_clouds()
    }

    /// Returns the classes of DEA's s2cloudless mask.
    pub fn s2cloudless() -> Self {
        let classes = ["nodata", "clear", "cloud"];
        Self::of_values("DEA s2cloudless mask", classes.into_iter().zip(0..)).with_clouds()
    }

    /// Returns the classes of DEA's contiguity: `non_contiguous` where a band of the pixel has no valid
    /// sample. Nodata is 255, whose bit 0 would mean contiguous.
    pub fn contiguity() -> Self {
        let mut table = Self::of_values("DEA contiguity", [("nodata", 255)]);
        let bit = |equals| Test { mask: 1, equals };
        table.add("non_contiguous", &[bit(0)]);
        table.add("contiguous", &[bit(1)]);
        table
    }

    /// Returns the classes of [Sentinel-2's scene
    /// classification](https://sentiwiki.copernicus.eu/web/s2-processing#S2Processing-SceneClassification).
    pub fn scl() -> Self {
        let classes = [
            ("nodata", 0),
            ("saturated", 1),
            ("dark", 2),
            ("shadow", 3),
            ("vegetation", 4),
            ("not_vegetated", 5),
            ("water", 6),
            ("unclassified", 7),
            ("cloud_medium", 8),
            ("cloud_high", 9),
            ("cirrus", 10),
            ("snow", 11),
            // `cloud` is the union of medium and high probability.
            ("cloud", 8),
            ("cloud", 9),
        ];
        Self::of_values("Sentinel-2 SCL", classes).with_clouds()
    }

    /// Returns the bits of Landsat Collection 2's QA_PIXEL, from the [data format control
    /// book](https://www.usgs.gov/media/files/landsat-8-9-olitirs-collection-2-level-2-data-format-control-book).
    pub fn qa_pixel() -> Self {
        // Confidence levels are fields of two bits.
        let level = |bit: u32, value: u32| Test {
            mask: 3 << bit,
            equals: value << bit,
        };
        let mut table = Self {
            name: "Landsat QA_PIXEL".to_owned(),
            classes: Vec::new(),
        };
        for (class, test) in [
            ("nodata", flag(0)),
            ("dilated_cloud", flag(1)),
            ("cirrus", flag(2)),
            ("cloud", flag(3)),
            ("shadow", flag(4)),
            ("snow", flag(5)),
            ("clear", flag(6)),
            ("water", flag(7)),
            ("cloud_confidence_low", level(8, 1)),
            ("cloud_confidence_medium", level(8, 2)),
            ("cloud_confidence_high", level(8, 3)),
            ("shadow_confidence_low", level(10, 1)),
            ("shadow_confidence_high", level(10, 3)),
            ("snow_confidence_low", level(12, 1)),
            ("snow_confidence_high", level(12, 3)),
            ("cirrus_confidence_low", level(14, 1)),
            ("cirrus_confidence_high", level(14, 3)),
        ] {
            table.add(class, &[test]);
        }
        table.with_clouds()
    }

    /// Returns the bits of Landsat Collection 2's QA_RADSAT of Landsat 8 and 9, from the same book: saturated
    /// bands, and terrain occlusion.
    pub fn qa_radsat() -> Self {
        let bands = ["1", "2", "3", "4", "5", "6", "7"].into_iter().zip(0..);
        let mut table = Self::radsat("Landsat 8-9 QA_RADSAT", bands.chain([("9", 8)]));
        table.add("terrain_occlusion", &[flag(11)]);
        table
    }

    /// Returns the bits of QA_RADSAT of Landsat 4, 5 and 7, from their [data format control
    /// book](https://www.usgs.gov/media/files/landsat-4-7-collection-2-level-2-data-format-control-book): saturated
    /// bands (`6h` is Landsat 7's thermal band at high gain), and dropped pixels.
    pub fn qa_radsat_tm() -> Self {
        let bands = ["1", "2", "3", "4", "5", "6", "7"].into_iter().zip(0..);
        let mut table = Self::radsat("Landsat 4-7 QA_RADSAT", bands);
        table.add("saturated_band_6h", &[flag(8)]);
        table.add("dropped", &[flag(9)]);
        table
    }

    /// Creates a table of bands and their bits: `saturated` is the union.
    fn radsat(name: &str, bands: impl Iterator<Item = (&'static str, u32)> + Clone) -> Self {
        let mut table = Self {
            name: name.to_owned(),
            classes: Vec::new(),
        };
        for (_, bit) in bands.clone() {
            table.add("saturated", &[flag(bit)]);
        }
        for (band, bit) in bands {
            table.add(&format!("saturated_band_{band}"), &[flag(bit)]);
        }
        table
    }

    /// Returns the name of the table in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the classes.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the tests of a class; none if the table does not have it.
    pub(super) fn tests(&self, class: &str) -> Option<&[Test]> {
        let find = |name: &str| {
            let mut classes = self.classes.iter();
            let found = classes.find(|(known, _)| known == name)?;
            Some(found.1.as_slice())
        };
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == class);
        // An exact name takes precedence over an alias.
        find(class).or_else(|| find(alias()?.1))
    }

    fn add(&mut self, class: &str, tests: &[Test]) {
        match self.classes.iter_mut().find(|(name, _)| name == class) {
            // A class with several tests matches if one of them does.
            Some((_, known)) => known.extend_from_slice(tests),
            None => self.classes.push((class.to_owned(), tests.to_vec())),
        }
    }

    /// Adds `clouds`: the union of the classes that clouds cause.
    fn with_clouds(mut self) -> Self {
        let parts = ["cloud", "shadow", "cirrus", "dilated_cloud"];
        let tests = parts.iter().filter_map(|part| self.tests(part));
        let tests = tests.collect::<Vec<_>>().concat();
        self.add("clouds", &tests);
        self
    }
}

/// Returns the test of a single bit.
fn flag(bit: u32) -> Test {
    Test {
        mask: 1 << bit,
        equals: 1 << bit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(table: &QaTable, class: &str, sample: u32) -> bool {
        let tests = table.tests(class).unwrap();
        tests.iter().any(|test| test.holds(sample))
    }

    fn classes_of(table: &QaTable, sample: u32) -> Vec<&str> {
        table
            .classes()
            .filter(|class| is(table, class, sample))
            .collect()
    }

    #[test]
    fn a_clear_pixel_of_landsat_is_clear() {
        let table = QaTable::qa_pixel();
        assert_eq!(
            classes_of(&table, 21_824),
            [
                "clear",
                "cloud_confidence_low",
                "shadow_confidence_low",
                "snow_confidence_low",
                "cirrus_confidence_low"
            ]
        );
        // Examples from the USGS documentation: water, cloud, cloud shadow.
        assert!(is(&table, "water", 21_952) && is(&table, "clear", 21_952));
        assert!(is(&table, "cloud", 22_280) && is(&table, "cloud_confidence_high", 22_280));
        assert!(is(&table, "shadow", 23_888) && is(&table, "shadow_confidence_high", 23_888));
        assert_eq!(classes_of(&table, 1), ["nodata"]);
    }

    #[test]
    fn each_value_of_scl_is_one_class_and_maybe_a_cloud() {
        let table = QaTable::scl();
        let expected = [
            &["nodata"][..],
            &["saturated"],
            &["dark"],
            &["shadow", "clouds"],
            &["vegetation"],
            &["not_vegetated"],
            &["water"],
            &["unclassified"],
            &["cloud_medium", "cloud", "clouds"],
            &["cloud_high", "cloud", "clouds"],
            &["cirrus", "clouds"],
            &["snow"],
            &[],
        ];
        for (value, classes) in (0..).zip(expected) {
            assert_eq!(classes_of(&table, value), classes, "{value}");
        }
    }

    #[test]
    fn classes_of_dea_are_right() {
        let fmask = QaTable::fmask();
        let expected = [
            &["nodata"][..],
            &["clear"],
            &["cloud", "clouds"],
            &["shadow", "clouds"],
            &["snow"],
            &["water"],
        ];
        for (value, classes) in (0..).zip(expected) {
            assert_eq!(classes_of(&fmask, value), classes, "{value}");
        }
        let contiguity = QaTable::contiguity();
        assert_eq!(classes_of(&contiguity, 0), ["non_contiguous"]);
        assert_eq!(classes_of(&contiguity, 1), ["contiguous"]);
        assert!(is(&contiguity, "nodata", 255));
        assert_eq!(classes_of(&QaTable::s2cloudless(), 2), ["cloud", "clouds"]);
    }

    #[test]
    fn saturation_is_of_eight_bands() {
        let table = QaTable::qa_radsat();
        for bit in 0..16 {
            let saturated = matches!(bit, 0..=6 | 8);
            assert_eq!(is(&table, "saturated", 1 << bit), saturated, "{bit}");
        }
        assert_eq!(
            classes_of(&table, 1 << 8),
            ["saturated", "saturated_band_9"]
        );
        assert_eq!(classes_of(&table, 1 << 11), ["terrain_occlusion"]);
        // Bits 8 and 9 of older satellites: thermal at high gain, and a dropped pixel.
        let older = QaTable::of_canonical("qa_radsat", Some("LANDSAT-7")).unwrap();
        for bit in 0..16 {
            assert_eq!(is(&older, "saturated", 1 << bit), bit <= 6, "{bit}");
        }
        assert_eq!(classes_of(&older, 1 << 8), ["saturated_band_6h"]);
        assert_eq!(classes_of(&older, 1 << 9), ["dropped"]);
        let newer = QaTable::of_canonical("qa_radsat", Some("landsat-8")).unwrap();
        assert_eq!(newer.name(), table.name());
    }

    #[test]
    fn bits_beyond_the_sample_are_refused() {
        for (first, count, value) in [
            (32, 1, 1),
            (31, 2, 0),
            (0, 0, 0),
            (0, 2, 4),
            (u32::MAX, 2, 0),
        ] {
            let err = QaTable::of_bits("qa", [("x", first, count, value)]).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
        }
        let whole = QaTable::of_bits("qa", [("x", 0, 32, 7), ("top", 31, 1, 1)]).unwrap();
        assert_eq!(classes_of(&whole, 7), ["x"]);
        assert_eq!(classes_of(&whole, 1 << 31 | 7), ["top"]);
    }
}
