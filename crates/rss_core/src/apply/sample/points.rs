//! Points to sample.

use geojson::GeometryValue;

use super::{
    cells::{Cell, Needs, Tiles},
    features::{self, GeoJsonOptions, Named, named},
    shapes::{Samples, ShapeRows, Shapes},
};
use crate::{
    apply::footprint::Area,
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Crs, Window, WorldToPixel, degrees_round},
};

/// Points, in the order of their rows.
#[derive(Clone, Debug)]
pub struct Points {
    named: Vec<Named>,
    places: Vec<[f64; 2]>,
    crs: Crs,
}

impl Points {
    /// Creates points from coordinates, x then y, or `Point`s of [`geo_types`](crate::geo_types), in a CRS:
    /// longitude, then latitude in degrees. Their ids are their indices, from 0.
    ///
    /// ```
    /// use rss_core::{Crs, apply::sample::Points};
    ///
    /// let plots = Points::new([[153.02, -25.33], [153.05, -25.35]], Crs::Epsg(4326))?;
    /// assert_eq!(plots.named()[1].id, "1");
    /// assert!(Points::new([[-25.33, 153.02]], Crs::Epsg(4326)).is_err());
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no point, or one has invalid coordinates.
    pub fn new(places: impl IntoIterator<Item = impl Into<[f64; 2]>>, crs: Crs) -> Result<Self> {
        let mut made = Self::none(crs);
        for (number, place) in places.into_iter().enumerate() {
            let id = number.to_string();
            made.push(
                id.clone(),
                None,
                features::checked(&id, &made.crs, place.into())?,
            );
        }
        match made.places.is_empty() {
            true => Err(Error::new(ErrorKind::InvalidInput, "no points")),
            false => Ok(made),
        }
    }

    /// Reads the Points and MultiPoints of a GeoJSON FeatureCollection, Feature or geometry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the text is not GeoJSON, names a CRS without an EPSG code, or a feature has
    /// another geometry, invalid coordinates, or the id of another feature.
    pub fn from_geojson(text: &str, options: &GeoJsonOptions) -> Result<Self> {
        let (read, crs) = features::read(text, options)?;
        let mut made = Self::none(crs);
        for one in read {
            let positions = match &one.geometry {
                GeometryValue::Point { coordinates } => std::slice::from_ref(coordinates),
                GeometryValue::MultiPoint { coordinates } => coordinates.as_slice(),
                other => {
                    let what =
                        format!("is a {}, expected a Point or MultiPoint", other.type_name());
                    return Err(named(&one.id, &what));
                }
            };
            for position in positions {
                let place = features::place(&one.id, &made.crs, position)?;
                made.push(one.id.clone(), one.name.clone(), place);
            }
        }
        match made.places.is_empty() {
            true => Err(Error::new(
                ErrorKind::InvalidInput,
                "GeoJSON without points",
            )),
            false => Ok(made),
        }
    }

    pub(super) fn none(crs: Crs) -> Self {
        Self {
            named: Vec::new(),
            places: Vec::new(),
            crs,
        }
    }

    pub(super) fn push(&mut self, id: String, name: Option<String>, place: [f64; 2]) {
        self.named.push(Named {
            id,
            name,
            place: Some(place),
        });
        self.places.push(place);
    }

    /// Returns the ids and names of the points.
    pub fn named(&self) -> &[Named] {
        &self.named
    }

    /// Returns the coordinates of the points.
    pub(super) fn places(&self) -> &[[f64; 2]] {
        &self.places
    }

    /// Returns the CRS of the points.
    pub fn crs(&self) -> &Crs {
        &self.crs
    }

    /// Returns the bounding box of all points in degrees, slightly enlarged, for a search.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming a CRS that cannot be transformed to degrees; [`ErrorKind::InvalidInput`]
    /// if a point is outside of its domain.
    pub fn bbox(&self) -> Result<Bbox> {
        let places = self.places.iter().copied();
        let bbox = degrees_round(&self.crs, places.map(std::iter::once))?;
        bbox.ok_or_else(|| {
            let message = format!("a point is outside of the domain of {}", self.crs);
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// A point's pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pixel {
    pub(super) col: u32,
    pub(super) row: u32,
}

impl Pixel {
    /// Returns the first pixel of a window.
    pub(super) fn of(Window { col, row, .. }: Window) -> Self {
        Self { col, row }
    }
}

impl Shapes for Points {
    /// The pixel of each point, if the image has it.
    type Layout = Vec<Option<Pixel>>;
    type Part = Vec<(u32, f64)>;
    type Whole = Vec<(u32, f64)>;

    fn crs(&self) -> &Crs {
        &self.crs
    }

    fn area(&self) -> Area {
        Area::around(self.bbox().ok(), 0.0)
    }

    fn lay_out(
        &self,
        world_to_pixel: &WorldToPixel,
        tiles: Tiles,
    ) -> Result<(Self::Layout, Vec<Cell>)> {
        let mut needs = Needs::of(tiles);
        let mut layout = Vec::with_capacity(self.places.len());
        for (place, number) in self.places.iter().zip(0_u32..) {
            let pixel = world_to_pixel.pixel(*place).map(Pixel::of);
            if let Some(Pixel { col, row }) = pixel {
                needs.add_row(row, col, col.saturating_add(1), number);
            }
            layout.push(pixel);
        }
        Ok((layout, needs.cells()))
    }

    fn bytes(&self, layout: &Self::Layout, _: usize) -> u64 {
        let found = layout.iter().flatten().count() * size_of::<(u32, f64)>();
        (size_of_val(layout.as_slice()) + found) as u64
    }

    fn bytes_per_pixel(&self) -> u64 {
        size_of::<(u32, f64)>() as u64
    }

    fn take(&self, layout: &Self::Layout, cell: &Cell, samples: &Samples) -> Self::Part {
        let members = cell.members.iter();
        let found = members.filter_map(|&number| {
            let Pixel { col, row } = (*layout.get(number as usize)?)?;
            let (value, is_out) = samples.at(col, row)?;
            Some((number, if is_out { f64::NAN } else { value }))
        });
        found.collect()
    }

    fn add(&self, whole: &mut Self::Whole, part: Self::Part) {
        whole.extend(part);
    }

    fn rows(&self, _: &Self::Layout, mut whole: Self::Whole) -> ShapeRows {
        whole.sort_unstable_by_key(|(number, _)| *number);
        let (shapes, numbers) = whole.into_iter().unzip();
        ShapeRows { shapes, numbers }
    }
}
