//! What a catalogue states of a file, beside what the file says of itself: which of the two is taken, and the note where
//! they differ.
//!
//! The file is right about its own grid and dtype. Its nodata value comes before the catalogue's, which may be of another
//! version of it; scale and offset of the catalogue come before the file's.

use std::collections::BTreeMap;

use ::stac::{Asset, Item};

use crate::{
    geo::{Crs, GeoBox, GeoTransform, Size},
    products::Scaling,
    raster::{DataType, Number},
    stac,
};

/// Scales and offsets are the same within this, as a share of them: files hold some in 32 bits.
const SAME_SCALING: f64 = 1e-6;

/// Reads the grids that items state. Many of them share a definition of a CRS, which is read once.
#[derive(Debug, Default)]
pub(crate) struct StatedGrids {
    /// None for a definition that cannot be read.
    definitions: BTreeMap<String, Option<Crs>>,
}

impl StatedGrids {
    /// Returns the grid that an item states of an asset, if it has all of the projection extension's shape, CRS and
    /// transform.
    pub(crate) fn of(&mut self, item: &Item, asset: &Asset) -> Option<GeoBox> {
        let projection = stac::projection(item, asset);
        let [rows, cols] = projection.shape?;
        let transform = GeoTransform(projection.transform?);
        let crs = match projection.epsg {
            Some(code) => Crs::Epsg(code),
            None => {
                let text = projection.definition?;
                let known = self.definitions.get(&text).cloned();
                let crs = known.unwrap_or_else(|| Crs::parse(&text).ok());
                self.definitions.insert(text, crs.clone());
                crs?
            }
        };
        Some(GeoBox {
            size: Size {
                width: u32::try_from(cols).ok().filter(|&cols| cols > 0)?,
                height: u32::try_from(rows).ok().filter(|&rows| rows > 0)?,
            },
            crs: Some(crs),
            transform: Some(transform),
        })
    }
}

/// Returns true if two grids are the same within a thousandth of a pixel.
pub(super) fn agree(stated: &GeoBox, real: &GeoBox) -> bool {
    let known = |crs: &Crs| match crs {
        Crs::Wkt(wkt) => Crs::of_wkt(wkt.clone()),
        code @ Crs::Epsg(_) => code.clone(),
    };
    let same_crs = match (stated.crs.as_ref().map(known), real.crs.as_ref().map(known)) {
        (Some(Crs::Epsg(one)), Some(Crs::Epsg(two))) => one == two,
        (Some(one @ Crs::Wkt(_)), Some(two @ Crs::Wkt(_))) => {
            one.is_same(&two) || !one.is_known() || !two.is_known()
        }
        // A definition may be that of the code.
        _ => true,
    };
    let same_place = match (&stated.transform, &real.transform) {
        (Some(one), Some(two)) => {
            let pixel = two.0[1].hypot(two.0[4]).max(two.0[2].hypot(two.0[5]));
            let (width, height) = (f64::from(real.size.width), f64::from(real.size.height));
            let corner = |t: &GeoTransform, col: f64, row: f64| {
                let x = t.0[0] + col * t.0[1] + row * t.0[2];
                let y = t.0[3] + col * t.0[4] + row * t.0[5];
                (x, y)
            };
            [(0.0, 0.0), (width, 0.0), (0.0, height)]
                .into_iter()
                .all(|(col, row)| {
                    let ((x1, y1), (x2, y2)) = (corner(one, col, row), corner(two, col, row));
                    (x1 - x2).hypot(y1 - y2) <= pixel * 1e-3
                })
        }
        _ => true,
    };
    stated.size == real.size && same_crs && same_place
}

/// Returns the text of a grid with its origin, so that shifted grids differ.
fn placed(grid: &GeoBox) -> String {
    match &grid.transform {
        Some(transform) => format!("{grid} from {}, {}", transform.0[0], transform.0[3]),
        None => grid.to_string(),
    }
}

/// Returns the note on an asset whose file has another grid than the catalogue states: the file's is taken.
pub(crate) fn note_of_grid(asset: &str, stated: &GeoBox, real: &GeoBox) -> Option<String> {
    (!agree(stated, real)).then(|| {
        format!(
            "asset {asset}: the item states {}, the file {}: the file's grid is taken",
            placed(stated),
            placed(real)
        )
    })
}

/// Returns the note on an asset whose file has another dtype than the item states: the file's is taken.
pub(crate) fn note_of_dtype(asset: &str, stated: DataType, real: DataType) -> Option<String> {
    (stated != real).then(|| {
        format!(
            "asset {asset}: the item states samples of {stated}, the file {real}: the file's are taken"
        )
    })
}

/// Returns the note on an asset whose file states another scale or offset than the catalogue, which is taken. A file that
/// states none differs from no catalogue.
pub(crate) fn note_of_scaling(
    asset: &str,
    scale: Option<f64>,
    offset: Option<f64>,
    taken: Scaling,
) -> Option<String> {
    scale.or(offset)?;
    let (scale, offset) = (scale.unwrap_or(1.0), offset.unwrap_or(0.0));
    let is_same = |a: f64, b: f64| (a - b).abs() <= SAME_SCALING * a.abs().max(b.abs());
    (!is_same(scale, taken.scale) || !is_same(offset, taken.offset)).then(|| {
        format!(
            "asset {asset}: the file states values of samples x {scale} + {offset}, the catalogue samples x {} + {}: the \
             catalogue's are taken",
            taken.scale, taken.offset
        )
    })
}

/// Returns the nodata value of an asset's band, and a note where file and catalogue state different ones: the file's is
/// taken, unless the manifest `overrides` it. Catalogues state values such as -9999 for uint8 bands, which no sample can
/// equal: such a value is ignored.
pub(crate) fn nodata_of(
    asset: &str,
    dtype: DataType,
    file: Option<Number>,
    catalogue: Option<Number>,
    overrides: bool,
) -> (Option<Number>, Option<String>) {
    let holds = |nodata: &Number| dtype.holds(*nodata);
    match (file.filter(holds), catalogue.filter(holds)) {
        (Some(own), Some(other)) if own != other && !(own.is_nan() && other.is_nan()) => {
            let (taken, whose) = match overrides {
                true => (other, "the manifest's"),
                false => (own, "the file's"),
            };
            let note = format!(
                "asset {asset}: the file states nodata {own}, the catalogue {other}: {whose} is taken"
            );
            (Some(taken), Some(note))
        }
        (own, other) => (own.or(other), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_of_32_bits_is_that_of_64() {
        let taken = Scaling {
            scale: 1e-4,
            offset: 0.0,
        };
        let note = |scale, offset| note_of_scaling("red", scale, offset, taken);
        for (scale, offset) in [
            (None, None),
            (Some(f64::from(1e-4_f32)), None),
            (Some(1e-4), Some(0.0)),
        ] {
            assert_eq!(note(scale, offset), None, "{scale:?} {offset:?}");
        }
        let expected = "asset red: the file states values of samples x 0.0001 + -0.1, the catalogue samples x 0.0001 + 0: the \
                        catalogue's are taken";
        assert_eq!(note(Some(1e-4), Some(-0.1)).as_deref(), Some(expected));
        assert!(note(None, Some(5.0)).is_some());
    }

    #[test]
    fn a_nodata_value_that_no_sample_has_is_ignored() {
        let of = |file: Option<i64>, catalogue: Option<i64>, overrides| {
            let [file, catalogue] = [file, catalogue].map(|value| value.map(Number::from));
            let (taken, note) = nodata_of("red", DataType::U8, file, catalogue, overrides);
            (taken, note.is_some())
        };
        assert_eq!(of(Some(-9999), Some(0), false), (Some(0.into()), false));
        assert_eq!(of(Some(0), Some(-9999), true), (Some(0.into()), false));
        assert_eq!(of(Some(0), Some(255), false), (Some(0.into()), true));
        assert_eq!(of(Some(0), Some(255), true), (Some(255.into()), true));
        assert_eq!(of(None, None, true), (None, false));
    }
}
