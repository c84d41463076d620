//! Conversion of points and polygons of any CRS to the pixels of a grid.
//!
//! A polygon is clipped to the neighbourhood of the grid before it is projected: far away it may be outside the
//! domain of the grid's projection, or be projected to the wrong side of the grid.

use ::geo::Polygon;

use super::{
    Bbox, Crs, GeoBox, GeoTransform, Size, Transformer, Window,
    footprint::{between, distance, follow},
    outline::{Cover, TURNS, near as near_to},
    projection::Projection,
};
use crate::error::{Error, ErrorKind, Result};

/// The bound on the distance of a densified side of a polygon from the true one, in pixels.
const BEND: f64 = 1e-5;
/// Sides shorter than this, in pixels, are not densified: they are straight enough in any projection.
const SHORT: f64 = 4.0;
/// The number of intervals along each axis of a grid at which its pixels are projected to find its bounds.
const POINTS: u8 = 32;
/// The margin around a grid that polygons are clipped to, as a fraction of its size.
const ROOM: f64 = 0.05;

/// A closed line in pixels: columns and rows, fractional, on the grid or not.
pub type Ring = Vec<[f64; 2]>;

/// Converts coordinates of a CRS, x then y, to pixel positions of a grid.
#[derive(Clone, Debug)]
pub struct WorldToPixel {
    to_pixels: Transformer,
    grid: GeoBox,
    size: Size,
    /// True if the two have the same CRS: lines stay straight.
    is_same: bool,
    /// True if x and x + 360 are the same point.
    turns: bool,
    /// The bounds of the grid with a margin, in the coordinates' CRS: xmin, ymin, xmax, ymax; none where part of the
    /// grid cannot be projected to that CRS, or the bounds span more than half of the globe.
    near: Option<[f64; 4]>,
}

impl WorldToPixel {
    /// Creates a converter from a CRS to a grid.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the grid has no CRS, no pixels, or no invertible geotransform;
    /// [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to degrees, unless the two CRSs are the same.
    pub fn new(crs: &Crs, grid: &GeoBox) -> Result<Self> {
        let lacks = |what: &str| {
            let message = format!("it has no {what}, which georeferencing needs");
            Error::new(ErrorKind::InvalidInput, message)
        };
        let own = grid.crs.as_ref().ok_or_else(|| lacks("CRS"))?;
        grid.transform.ok_or_else(|| lacks("geotransform"))?;
        let plane = plane_of(crs);
        let to_pixels = Transformer::new(&plane, grid)?;
        let is_same = own.is_same(crs);
        let turns = is_degrees(crs);
        let near = match is_same {
            // In the same CRS nothing is projected, so nothing needs to be clipped.
            true => None,
            false => near(&Transformer::new(grid, &plane)?, grid.size, turns),
        };
        Ok(Self {
            to_pixels,
            grid: grid.clone(),
            size: grid.size,
            is_same,
            turns,
            near,
        })
    }

    /// Returns the pixel that contains a point, as a window of one pixel; none if the point lies outside the grid.
    /// A point on an edge belongs to the pixel with the larger column or row, as in [`GeoBox::pixel_at`].
    pub fn pixel(&self, [x, y]: [f64; 2]) -> Option<Window> {
        self.turns().iter().find_map(|turn| {
            let place = self.to_pixels.place([x + turn, y])?;
            Cover::of(place).window(self.size)
        })
    }

    /// Returns the positions of a point, column then row, on the grid or beside it: of degrees also those of the same
    /// point a turn to the west and to the east.
    pub fn positions(&self, [x, y]: [f64; 2]) -> impl Iterator<Item = [f64; 2]> {
        let turns = self.turns().iter();
        turns.filter_map(move |turn| self.to_pixels.place([x + turn, y]))
    }

    /// Returns the grid.
    pub fn grid(&self) -> &GeoBox {
        &self.grid
    }

    /// Returns the part of a polygon near the grid as polygons in pixels, each a list of rings; none if it is far
    /// away. Its sides are straight in its own CRS, and densified to within a hundred-thousandth of a pixel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if a part of it lies outside the domain of the grid's projection.
    pub fn polygons(&self, polygon: &Polygon<f64>) -> Result<Vec<Vec<Ring>>> {
        let mut found = Vec::new();
        for turn in self.turns() {
            let rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
            let mut placed = Vec::new();
            for ring in rings {
                let points = ring.coords().map(|point| [point.x + turn, point.y]);
                let ring = self.cut(points.collect());
                if ring.len() >= 3 {
                    placed.extend(self.placed(&ring)?);
                }
            }
            if !placed.is_empty() {
                found.push(placed);
            }
        }
        Ok(found)
    }

    fn turns(&self) -> &'static [f64] {
        match self.turns {
            true => &TURNS,
            false => &[0.0],
        }
    }

    /// Clips a ring to the neighbourhood of the grid.
    fn cut(&self, mut ring: Ring) -> Ring {
        // The clip treats the ring as closed, so its repeated first point is removed.
        if ring.len() > 1 && ring.first() == ring.last() {
            ring.pop();
        }
        let Some([left, bottom, right, top]) = self.near else {
            return ring;
        };
        for (axis, limit, sign) in [
            (0, left, 1.0),
            (0, right, -1.0),
            (1, bottom, 1.0),
            (1, top, -1.0),
        ] {
            ring = clip_line(&ring, axis, limit, sign);
        }
        ring
    }

    /// Returns a ring in pixels; none if none of its points can be projected.
    fn placed(&self, ring: &[[f64; 2]]) -> Result<Option<Ring>> {
        let place = |point: &[f64; 2]| self.to_pixels.place(*point);
        if ring.iter().all(|point| place(point).is_none()) {
            return Ok(None);
        }
        let beyond = || {
            let message = "a polygon extends beyond the domain of the projection of the image";
            Error::new(ErrorKind::Unsupported, message)
        };
        let mut made = Vec::with_capacity(ring.len());
        let next = ring.iter().skip(1).chain(ring.first());
        for (from, to) in ring.iter().zip(next) {
            let (start, end) = (
                place(from).ok_or_else(beyond)?,
                place(to).ok_or_else(beyond)?,
            );
            if self.is_same || distance(start, end) < SHORT {
                made.push(start);
                continue;
            }
            let at = |along: f64| place(&between(*from, *to, along));
            let bend = |a, b, c| distance(between(a, c, 0.5), b);
            follow(&at, &bend, BEND, &mut made).ok_or_else(beyond)?;
        }
        Ok(Some(made))
    }
}

/// Returns the bounding box in degrees of shapes, each the points of one in a CRS, slightly enlarged, on the side of the globe
/// where it is the narrowest; none without points, or if one of them cannot be unprojected.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to degrees.
pub fn degrees_round(
    crs: &Crs,
    shapes: impl Iterator<Item = impl Iterator<Item = [f64; 2]>>,
) -> Result<Option<Bbox>> {
    let to_degrees = Transformer::new(&plane_of(crs), &plane_of(&Crs::Epsg(DEGREES)))?;
    let is_given = is_degrees(crs);
    let mut boxes = Vec::new();
    for shape in shapes {
        // As they are, and from 0 to 360: a map across the antimeridian has both of its sides.
        let mut found: [Option<[f64; 4]>; 2] = [None; 2];
        for place in shape {
            let Some([lon, lat]) = to_degrees.place(place) else {
                return Ok(None);
            };
            for (all, lon) in found.iter_mut().zip([lon, lon.rem_euclid(360.0)]) {
                *all = Some(with(*all, [lon, lat]));
            }
        }
        let [Some(own), Some(turned)] = found else {
            continue;
        };
        let is_narrower = turned[2] - turned[0] < own[2] - own[0];
        // Degrees say by themselves which way a shape goes round.
        boxes.push(enlarged(if is_narrower && !is_given {
            turned
        } else {
            own
        })?);
    }
    Ok(Bbox::around(&boxes))
}

/// Returns the bbox of a shape's bounds in degrees, with room around it.
fn enlarged([west, south, east, north]: [f64; 4]) -> Result<Bbox> {
    // Straight lines of another CRS are curves in degrees and may bulge past their ends; and servers expect a
    // bbox that is not a point.
    let room = |low: f64, high: f64| (high - low) * 1e-2 + 1e-5;
    let (wide, high) = (room(west, east), room(south, north));
    let (west, east) = (west - wide, east + wide);
    let (west, east) = match east - west < 360.0 {
        true => (on_globe(west), on_globe(east)),
        false => (-180.0, 180.0),
    };
    Bbox::new(
        west,
        (south - high).max(-90.0),
        east,
        (north + high).min(90.0),
    )
}

const DEGREES: u32 = 4326;

/// Wraps a longitude to -180 to 180.
fn on_globe(lon: f64) -> f64 {
    match (-180.0..=180.0).contains(&lon) {
        true => lon,
        false => near_to(lon, 0.0),
    }
}

/// Returns true if coordinates of a CRS are longitudes and latitudes.
pub fn is_degrees(crs: &Crs) -> bool {
    Projection::of(crs).is_ok_and(|projection| projection.unit() == "degrees")
}

/// Returns a grid whose pixel positions equal the coordinates of a CRS.
pub(super) fn plane_of(crs: &Crs) -> GeoBox {
    GeoBox {
        size: Size {
            width: 1,
            height: 1,
        },
        crs: Some(crs.clone()),
        transform: Some(GeoTransform([0.0, 1.0, 0.0, 0.0, 0.0, 1.0])),
    }
}

fn with(all: Option<[f64; 4]>, [x, y]: [f64; 2]) -> [f64; 4] {
    let [left, bottom, right, top] = all.unwrap_or([x, y, x, y]);
    [left.min(x), bottom.min(y), right.max(x), top.max(y)]
}

/// Returns the bounds of a grid with a margin.
fn near(from_pixels: &Transformer, size: Size, is_degrees: bool) -> Option<[f64; 4]> {
    let part = |number: u8, length: u32| f64::from(length) * f64::from(number) / f64::from(POINTS);
    let mut all = None;
    for row in 0..=POINTS {
        for col in 0..=POINTS {
            let place = from_pixels.place([part(col, size.width), part(row, size.height)])?;
            all = Some(with(all, place));
        }
    }
    let [left, bottom, right, top] = all?;
    // The longitudes of a grid across the antimeridian jump from 180 to -180, and their bounds mean nothing.
    if is_degrees && right - left > 180.0 {
        return None;
    }
    let (wide, high) = ((right - left) * ROOM, (top - bottom) * ROOM);
    Some([left - wide, bottom - high, right + wide, top + high])
}

/// Clips a ring by one line (Sutherland and Hodgman): the part remains where x or y is above a limit, or with the
/// sign -1 below it.
fn clip_line(ring: &[[f64; 2]], axis: usize, limit: f64, sign: f64) -> Ring {
    let inside = |point: &[f64; 2]| (point.get(axis).copied().unwrap_or(f64::NAN) - limit) * sign;
    let mut clipped = Vec::with_capacity(ring.len() + 2);
    let Some(mut before) = ring.last() else {
        return clipped;
    };
    for point in ring {
        let (a, b) = (inside(before), inside(point));
        if (a < 0.0) != (b < 0.0) {
            let mut cut = between(*before, *point, a / (a - b));
            // Interpolation may miss the limit by a rounding error.
            if let Some(exact) = cut.get_mut(axis) {
                *exact = limit;
            }
            clipped.push(cut);
        }
        if b >= 0.0 {
            clipped.push(*point);
        }
        before = point;
    }
    clipped
}

#[cfg(test)]
mod tests {
    use ::geo::LineString;

    use super::*;

    fn utm(epsg: u32) -> GeoBox {
        GeoBox {
            size: Size {
                width: 1000,
                height: 1000,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform([
                500_000.0,
                10.0,
                0.0,
                7_000_000.0,
                0.0,
                -10.0,
            ])),
        }
    }

    fn polygon(points: &[[f64; 2]]) -> Polygon<f64> {
        Polygon::new(points.iter().copied().collect::<LineString<f64>>(), vec![])
    }

    #[test]
    fn a_point_of_the_grids_own_crs_is_exact_at_the_edges_of_pixels() {
        let world_to_pixel = WorldToPixel::new(&Crs::Epsg(32756), &utm(32756)).unwrap();
        for (point, expected) in [
            ([500_000.0, 7_000_000.0], Some("0,0,1,1")),
            ([500_010.0, 6_999_990.0], Some("1,1,1,1")),
            ([500_009.99, 6_999_990.01], Some("0,0,1,1")),
            ([509_999.99, 6_990_000.01], Some("999,999,1,1")),
            ([510_000.0, 6_995_000.0], None),
            ([505_000.0, 6_990_000.0], None),
            ([499_999.99, 6_995_000.0], None),
            ([f64::NAN, 6_995_000.0], None),
        ] {
            let expected: Option<Window> = expected.map(|text| text.parse().unwrap());
            assert_eq!(world_to_pixel.pixel(point), expected, "{point:?}");
        }
    }

    #[test]
    fn a_point_in_degrees_is_the_one_of_pixel_at() {
        let grid = utm(32756);
        let world_to_pixel = WorldToPixel::new(&Crs::Epsg(4326), &grid).unwrap();
        for (lon, lat) in [
            (153.025, -27.15),
            (153.0, -27.2),
            (152.9, -27.2),
            (10.0, 50.0),
        ] {
            assert_eq!(
                world_to_pixel.pixel([lon, lat]),
                grid.pixel_at(lon, lat).unwrap()
            );
        }
        // 360 degrees further it is the same point.
        let there = world_to_pixel.pixel([153.025 - 360.0, -27.15]);
        assert!(there.is_some() && there == world_to_pixel.pixel([153.025, -27.15]));
    }

    #[test]
    fn a_turn_of_longitude_is_found_on_a_grid_in_degrees() {
        let pacific = GeoBox {
            size: Size {
                width: 40,
                height: 10,
            },
            crs: Some(Crs::Epsg(4326)),
            transform: Some(GeoTransform([170.0, 0.5, 0.0, 0.0, 0.0, -0.5])),
        };
        let world_to_pixel = WorldToPixel::new(&Crs::Epsg(4326), &pacific).unwrap();
        assert_eq!(
            world_to_pixel.pixel([-179.75, -0.25]),
            "20,0,1,1".parse().ok()
        );
        let square = polygon(&[
            [-179.0, -1.0],
            [-178.0, -1.0],
            [-178.0, -2.0],
            [-179.0, -2.0],
        ]);
        let found = world_to_pixel.polygons(&square).unwrap();
        assert!(
            found
                .iter()
                .flatten()
                .flatten()
                .any(|place| *place == [22.0, 2.0]),
            "{found:?}"
        );
    }

    #[test]
    fn a_polygon_is_cut_to_what_is_near() {
        let world_to_pixel = WorldToPixel::new(&Crs::Epsg(4326), &utm(32756)).unwrap();
        // Half of the globe, with corners outside the domain of the UTM zone.
        let vast = polygon(&[[60.0, -80.0], [220.0, -80.0], [220.0, 80.0], [60.0, 80.0]]);
        let found = world_to_pixel.polygons(&vast).unwrap();
        assert_eq!(found.len(), 1);
        let places: Vec<[f64; 2]> = found.into_iter().flatten().flatten().collect();
        let outside = |place: &[f64; 2]| {
            place.iter().any(|at| !(0.0..=1000.0).contains(at))
                && place.iter().all(|at| (-300.0..1300.0).contains(at))
        };
        assert!(
            places.len() >= 4 && places.iter().all(outside),
            "{places:?}"
        );
        // On the other side, and on the other side of the antimeridian.
        for lon in [-27.0, 0.0, -153.0] {
            let far = polygon(&[[lon, -28.0], [lon + 0.2, -28.0], [lon + 0.2, -27.0]]);
            assert_eq!(
                world_to_pixel.polygons(&far).unwrap(),
                Vec::<Vec<Ring>>::new()
            );
        }
    }

    #[test]
    fn a_side_in_degrees_is_followed_on_the_map() {
        // A parallel is a curve in UTM: half a degree of it deviates by about 130 m at 60 degrees north.
        let grid = GeoBox {
            transform: Some(GeoTransform([
                480_000.0,
                60.0,
                0.0,
                6_690_000.0,
                0.0,
                -60.0,
            ])),
            ..utm(32633)
        };
        let world_to_pixel = WorldToPixel::new(&Crs::Epsg(4326), &grid).unwrap();
        let strip = polygon(&[[15.0, 60.0], [15.9, 60.0], [15.9, 60.1], [15.0, 60.1]]);
        let rings = world_to_pixel.polygons(&strip).unwrap().remove(0);
        let middle = Transformer::new(&plane_of(&Crs::Epsg(4326)), &grid).unwrap();
        for along in [0.1, 0.33, 0.5, 0.77] {
            let [col, row] = middle.place([15.0 + 0.9 * along, 60.0]).unwrap();
            let sides = rings[0].iter().zip(rings[0].iter().skip(1));
            let off = sides
                .filter(|(a, b)| a[0] <= col && b[0] >= col && (a[1] - row).abs() < 5.0)
                .map(|(a, b)| {
                    let share = (col - a[0]) / (b[0] - a[0]);
                    (a[1] + (b[1] - a[1]) * share - row).abs()
                })
                .fold(f64::INFINITY, f64::min);
            assert!(off < 1e-4, "{along}: {off}");
        }
    }

    #[test]
    fn a_grid_that_says_nothing_is_refused() {
        let crs = Crs::Epsg(4326);
        let mut grid = utm(32756);
        grid.transform = None;
        let err = WorldToPixel::new(&crs, &grid).unwrap_err();
        assert_eq!(
            err.message(),
            "it has no geotransform, which georeferencing needs"
        );
        let err = WorldToPixel::new(&Crs::Epsg(999_999), &utm(32756)).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn the_box_round_places_takes_the_short_way() {
        let of = |crs: u32, shapes: &[&[[f64; 2]]]| {
            let shapes = shapes.iter().map(|shape| shape.iter().copied());
            let bbox = degrees_round(&Crs::Epsg(crs), shapes).unwrap().unwrap();
            let [west, _, east, _] = bbox.edges();
            [west, east].map(|lon| (lon * 100.0).round() / 100.0)
        };
        // Points either side of longitude 180, and the same as one shape, whose degrees say that it goes round.
        let (a, b) = ([179.5, -17.0], [-179.5, -17.0]);
        assert_eq!(of(4326, &[&[a], &[b]]), [179.5, -179.5]);
        assert_eq!(of(4326, &[&[a, b]])[0], -180.0);
        assert_eq!(of(4326, &[&[a, [180.5, -17.0]]]), [179.49, -179.49]);
        // Metres of UTM zone 60, from 179.5 to 180.5: gdaltransform -t_srs EPSG:32760.
        let zone: &[[f64; 2]] = &[[766_178.6, 8_118_746.4], [872_744.8, 8_117_113.4]];
        assert_eq!(of(32760, &[zone]), [179.49, -179.49]);
        // Three around the globe: the widest gap is left out.
        let three: [&[[f64; 2]]; 3] = [&[[-100.0, 0.0]], &[[10.0, 0.0]], &[[120.0, 0.0]]];
        assert_eq!(of(4326, &three), [-100.0, 120.0]);
        let three: [&[[f64; 2]]; 3] = [&[[-100.0, 0.0]], &[[40.0, 0.0]], &[[120.0, 0.0]]];
        assert_eq!(of(4326, &three), [40.0, -100.0]);
    }

    #[test]
    fn the_box_round_places_is_in_degrees() {
        let places = [[500_000.0, 7_000_000.0], [510_000.0, 6_990_000.0]];
        let bbox = degrees_round(&Crs::Epsg(32756), std::iter::once(places.into_iter()));
        let [west, south, east, north] = bbox.unwrap().unwrap().edges();
        assert!((152.99..153.0).contains(&west) && (153.1..153.11).contains(&east));
        assert!((-27.214..-27.2127).contains(&south) && (-27.1224..-27.121).contains(&north));
        assert_eq!(
            degrees_round(&Crs::Epsg(4326), std::iter::once(std::iter::empty())).unwrap(),
            None
        );
    }
}
