//! The footprint of a grid in degrees, and the pixels of points and bounding boxes in degrees.
//!
//! The sides of a grid are curves in degrees, and the sides of a bbox are curves on a grid. Both are densified:
//! split in halves until each piece is straight to a fraction of a pixel.

use ::geo::MultiPolygon;

use super::{
    Bbox, GeoBox, GeoTransform, Size, Window,
    outline::{Cover, Outline, Reach, TURNS, near},
    projection::Projection,
    utm::LonLat,
};
use crate::error::{Error, ErrorKind, Result};

/// The bound on the distance of a densified footprint from the true outline, in pixels.
const FOOTPRINT_BEND: f64 = 0.25;
/// The bound on the distance of a densified side of a bbox from the true one, in pixels.
const WINDOW_BEND: f64 = 0.05;
/// The pieces a side is split into before any is checked (a curve may cross its chord at the middle), and the
/// number of times each may be halved.
const PIECES: u8 = 4;
const HALVINGS: u8 = 10;
/// How close to the outline a pole may lie before the outline shrinks by twice that distance, in pixels: at a pole the
/// longitude is undefined, so a side through it cannot be densified.
const POLE: f64 = 0.01;

/// Conversions between grids and degrees. All need a geotransform and a CRS: an EPSG code (UTM, Web Mercator, polar and
/// national projections, degrees; about 4900 codes, all but those whose datum needs a grid shift file (NAD27) or is
/// unknown), or well-known text, PROJJSON or a PROJ string of a projection that is known here. With PROJ at hand
/// ([`set_projection_engine`](super::set_projection_engine)) all that it knows.
///
/// Degrees are those of WGS 84. NAD83, ETRS89, GDA94, GDA2020 and similar datums are taken to be equal to it, which
/// is wrong by up to 2 m (5 m in the far north of Canada); older datums (OSGB36, Amersfoort, CH1903+, ..) are
/// shifted by at most seven parameters, which is wrong by up to 10 m.
impl GeoBox {
    /// Returns the pixel that contains a point in degrees, as a window of one pixel; none if the point lies outside
    /// the grid, or outside the domain of its projection.
    ///
    /// A point on the edge between two pixels belongs to the one with the larger column or row.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, GeoTransform, Size};
    ///
    /// let grid = GeoBox {
    ///     size: Size { width: 10_980, height: 10_980 },
    ///     crs: Some(Crs::Epsg(32756)),
    ///     transform: Some(GeoTransform([499_980.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0])),
    /// };
    /// let brisbane = grid.pixel_at(153.025, -27.47)?;
    /// assert_eq!(brisbane, Some("248,3849,1,1".parse()?));
    /// assert_eq!(grid.pixel_at(-27.47, 53.025)?, None);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the point is not on the globe (-180 to 180, -90 to 90), or the grid has no CRS,
    /// no pixels, or no invertible geotransform; [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to
    /// degrees.
    pub fn pixel_at(&self, lon: f64, lat: f64) -> Result<Option<Window>> {
        if !(-180.0..=180.0).contains(&lon) || !(-90.0..=90.0).contains(&lat) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "point {lon},{lat} is not a longitude and a latitude in degrees; longitude comes first"
                ),
            ));
        }
        let grid = Grid::of(self)?;
        Ok(TURNS
            .into_iter()
            // Other projections wrap, and return the same pixel for each multiple of 360 degrees.
            .filter(|turn| *turn == 0.0 || grid.projection.is_endless())
            .filter_map(|turn| {
                let lon = lon + turn;
                grid.pixel(LonLat { lon, lat })
            })
            .find_map(|place| Cover::of(place).window(self.size)))
    }

    /// Returns the window of all pixels that a bbox in degrees intersects, clipped to the grid; none if there are
    /// none. Pixels that share no more than an edge with the bbox may be left out.
    ///
    /// The window can be larger than the bbox, whose sides are curves in most projections. Where the parts of a bbox
    /// lie at both ends of a grid, as those of one across the antimeridian do on a global grid, the window spans
    /// everything between: call this for each part of [`Bbox::split`] instead, or [`crop`](Self::crop), whose result goes
    /// past an end of the grid.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, GeoTransform, Size, Window};
    ///
    /// let grid = GeoBox {
    ///     size: Size { width: 360, height: 180 },
    ///     crs: Some(Crs::Epsg(4326)),
    ///     transform: Some(GeoTransform([-180.0, 1.0, 0.0, 90.0, 0.0, -1.0])),
    /// };
    /// let window = grid.window_of(&"150,-30,152.5,-27".parse()?)?;
    /// assert_eq!(window, Some(Window { col: 330, row: 117, width: 3, height: 3 }));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`pixel_at`](Self::pixel_at); also [`ErrorKind::Unsupported`] if both the grid and the bbox extend
    /// beyond the domain of the projection.
    pub fn window_of(&self, bbox: &Bbox) -> Result<Option<Window>> {
        let covers = self.covers(bbox)?.into_iter();
        let all = covers.reduce(|known, cover| known.with(&cover));
        Ok(all.and_then(|cover| cover.window(self.size)))
    }

    /// Returns the part of the grid with all pixels that a bbox in degrees intersects, as [`window_of`](Self::window_of)
    /// does; none if there are none. Where the parts of the bbox lie at both ends of a map of the globe, which meet, the
    /// part goes past an end: in degrees past 180.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, GeoTransform, Size};
    ///
    /// let globe = GeoBox {
    ///     size: Size { width: 360, height: 180 },
    ///     crs: Some(Crs::Epsg(4326)),
    ///     transform: Some(GeoTransform([-180.0, 1.0, 0.0, 90.0, 0.0, -1.0])),
    /// };
    /// let fiji = globe.crop(&"177,-19,-178,-16".parse()?)?;
    /// assert_eq!(fiji.and_then(|fiji| fiji.bounds()), Some([177.0, -19.0, 182.0, -16.0]));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`window_of`](Self::window_of).
    pub fn crop(&self, bbox: &Bbox) -> Result<Option<Self>> {
        let covers = self.covers(bbox)?;
        let windows = covers.iter().filter_map(|cover| cover.window(self.size));
        Ok(self.around(&windows.collect::<Vec<_>>()))
    }

    /// Returns what the parts of a bbox in degrees that touch the grid cover of it.
    fn covers(&self, bbox: &Bbox) -> Result<Vec<Cover>> {
        let grid = Grid::of(self)?;
        // Points far from the grid may be outside the domain of its projection, so the bbox is clipped to the
        // neighbourhood of the grid before it is projected.
        let reach = match grid.outline() {
            Ok(outline) => outline.reach(),
            // A grid larger than the domain has no outline, but the bbox may still be inside the domain.
            Err(err) if err.kind() == ErrorKind::Unsupported => Reach::GLOBE,
            Err(err) => return Err(err),
        };
        let mut found = Vec::new();
        for part in bbox.split() {
            for region in reach.parts(&part, &grid.projection) {
                let cover = grid.cover(&region)?;
                if cover.window(self.size).is_some() {
                    found.push(cover);
                }
            }
        }
        Ok(found)
    }

    /// Returns the footprint of the grid in degrees: a GeoJSON polygon, or a multipolygon where it is split at the
    /// antimeridian, after [RFC 7946](https://www.rfc-editor.org/rfc/rfc7946#section-3.1.9). Its sides are densified
    /// to within a quarter of a pixel.
    ///
    /// The footprint of a grid that contains a pole extends to latitude 90 at all longitudes. A grid in degrees that
    /// extends past a pole by up to a pixel, or around the globe by up to two, is clipped.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, GeoTransform, Size};
    ///
    /// let grid = GeoBox {
    ///     size: Size { width: 20, height: 10 },
    ///     crs: Some(Crs::Epsg(4326)),
    ///     transform: Some(GeoTransform([150.0, 0.1, 0.0, -27.0, 0.0, -0.1])),
    /// };
    /// assert_eq!(
    ///     grid.footprint()?.to_string(),
    ///     r#"{"type":"Polygon","coordinates":[[[150.0,-27.0],[150.0,-28.0],[152.0,-28.0],[152.0,-27.0],[150.0,-27.0]]]}"#
    /// );
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the grid has no CRS, no pixels, or no invertible geotransform, or its CRS is in
    /// degrees and it extends beyond the globe; [`ErrorKind::Unsupported`] naming a CRS that cannot be converted to
    /// degrees, or if a corner lies outside the domain of the projection.
    pub fn footprint(&self) -> Result<geojson::Geometry> {
        let polygons = Grid::of(self)?.outline()?.polygons();
        Ok(match <[_; 1]>::try_from(polygons.0) {
            Ok([polygon]) => geojson::Geometry::from(&polygon),
            Err(polygons) => geojson::Geometry::from(&MultiPolygon::new(polygons)),
        })
    }

    /// Returns the bounding box of the grid in degrees, to within a quarter of a pixel. It crosses the antimeridian
    /// (`west` is larger than `east`) if the grid does.
    ///
    /// # Errors
    ///
    /// Those of [`footprint`](Self::footprint).
    pub fn bbox(&self) -> Result<Bbox> {
        Grid::of(self)?.outline()?.bbox()
    }
}

/// A grid that has what georeferencing needs.
pub(super) struct Grid<'a> {
    geobox: &'a GeoBox,
    pub(super) transform: GeoTransform,
    pub(super) projection: Projection,
}

impl<'a> Grid<'a> {
    pub(super) fn of(geobox: &'a GeoBox) -> Result<Self> {
        let invalid = |why: &str| Err(Error::new(ErrorKind::InvalidInput, why));
        if geobox.size.width == 0 || geobox.size.height == 0 {
            return invalid("the grid has no pixels");
        }
        let Some(crs) = &geobox.crs else {
            return invalid("the grid has no CRS, so its location on the globe is unknown");
        };
        let Some(transform) = geobox.transform else {
            return invalid(
                "the grid has no geotransform, so its location on the globe is unknown",
            );
        };
        if transform.pixel_of(transform.apply(1.0, 1.0)).is_none() {
            return invalid("the geotransform of the grid is not invertible");
        }
        Ok(Self {
            geobox,
            transform,
            projection: Projection::of(crs)?,
        })
    }

    /// Returns the position of a point in pixels, inside the grid or not.
    fn pixel(&self, point: LonLat) -> Option<[f64; 2]> {
        self.transform.pixel_of(self.projection.to_crs(point)?)
    }

    fn point(&self, [col, row]: [f64; 2]) -> Option<LonLat> {
        self.projection.to_lon_lat(self.transform.apply(col, row))
    }

    /// Returns the outline in degrees.
    fn outline(&self) -> Result<Outline> {
        let inset = if self.poles().any(|(_, depth)| depth.abs() < POLE) {
            2.0 * POLE
        } else {
            0.0
        };
        let Size { width, height } = self.geobox.size;
        let (right, bottom) = (f64::from(width) - inset, f64::from(height) - inset);
        let corners = [
            [inset, inset],
            [inset, bottom],
            [right, bottom],
            [right, inset],
            [inset, inset],
        ];
        let mut ring = Vec::new();
        for (from, to) in corners.iter().zip(corners.iter().skip(1)) {
            let at = |along: f64| self.point(between(*from, *to, along));
            // Sides of a grid in degrees are straight in degrees: the corners suffice.
            let followed = if let Projection::Degrees = self.projection {
                at(0.0).map(|corner| {
                    ring.push(corner);
                    0.0
                })
            } else {
                follow(
                    &at,
                    &|a, b, c| self.bend(a, b, c),
                    FOOTPRINT_BEND,
                    &mut ring,
                )
            };
            followed.ok_or_else(|| self.beyond("the outline of the grid"))?;
        }
        ring.extend(ring.first().copied());
        let mut outline = Outline::of(ring, self.projection.is_endless());
        if let Projection::Degrees = self.projection {
            let [_, a, b, _, c, d] = self.transform.0;
            outline.cut_to_globe(a.hypot(b), c.hypot(d))?;
        }
        outline
            .close(
                self.poles()
                    .find(|(_, depth)| *depth > 0.0)
                    .map(|(lat, _)| lat),
            )
            .ok_or_else(|| self.beyond("the outline of the grid"))?;
        Ok(outline)
    }

    /// Returns each pole that is a point of the projection, and its distance in pixels from the nearest edge of the
    /// grid; negative if it lies outside.
    fn poles(&self) -> impl Iterator<Item = (f64, f64)> {
        // At a pole all longitudes are one point; the central one is in the domain of the projection.
        let lon = self.projection.middle();
        let Size { width, height } = self.geobox.size;
        [90.0, -90.0].into_iter().filter_map(move |lat| {
            if self.projection.is_endless() {
                return None;
            }
            let [col, row] = self.pixel(LonLat { lon, lat })?;
            let right = f64::from(width) - col;
            let bottom = f64::from(height) - row;
            Some((lat, col.min(row).min(right).min(bottom)))
        })
    }

    /// Returns the distance in pixels from the middle of a straight line in degrees to the middle of a side.
    fn bend(&self, from: LonLat, middle: LonLat, to: LonLat) -> f64 {
        let to_lon = if self.projection.is_endless() {
            to.lon
        } else {
            near(to.lon, from.lon)
        };
        let straight = LonLat {
            lon: (from.lon + to_lon) / 2.0,
            lat: (from.lat + to.lat) / 2.0,
        };
        match (self.pixel(straight), self.pixel(middle)) {
            (Some(a), Some(b)) => distance(a, b),
            // A midpoint outside the domain forces another split.
            _ => f64::INFINITY,
        }
    }

    /// Returns the columns and rows that a box of degrees covers: west, south, east, north.
    pub(super) fn cover(&self, [west, south, east, north]: &[f64; 4]) -> Result<Cover> {
        let corners = [
            [*west, *south],
            [*east, *south],
            [*east, *north],
            [*west, *north],
            [*west, *south],
        ];
        let mut places = Vec::new();
        let mut widest = 0.0_f64;
        for (from, to) in corners.iter().zip(corners.iter().skip(1)) {
            let at = |along: f64| {
                let [lon, lat] = between(*from, *to, along);
                self.pixel(LonLat { lon, lat })
            };
            let bend = |a, b, c| distance(between(a, c, 0.5), b);
            let bent = follow(&at, &bend, WINDOW_BEND, &mut places)
                .ok_or_else(|| self.beyond("a side of the bbox"))?;
            widest = widest.max(bent);
        }
        // Between two points a curve goes past both by less than its distance from the chord.
        places
            .into_iter()
            .map(Cover::of)
            .reduce(|a, b| a.with(&b))
            .map(|cover| cover.grown(widest))
            .ok_or_else(|| self.beyond("the bbox"))
    }

    fn beyond(&self, what: &str) -> Error {
        let crs = self.geobox.crs.as_ref().map(ToString::to_string);
        Error::new(
            ErrorKind::Unsupported,
            format!(
                "{what} extends beyond the domain of the projection of {}",
                crs.unwrap_or_default()
            ),
        )
    }
}

/// Densifies a curve from 0 to 1: adds points, but for the last, between which it is straight to within `limit`.
/// Returns its largest distance from the chords; none if a point cannot be projected.
pub(super) fn follow<P: Copy>(
    at: &impl Fn(f64) -> Option<P>,
    bend: &impl Fn(P, P, P) -> f64,
    limit: f64,
    points: &mut Vec<P>,
) -> Option<f64> {
    let mut max_bend = 0.0_f64;
    let mut from = at(0.0)?;
    let mut start = 0.0;
    // A stack of the pieces to do, the next on top: each with its end and the halvings that remain.
    let mut left = Vec::new();
    for piece in (1..=PIECES).rev() {
        let end = f64::from(piece) / f64::from(PIECES);
        left.push((end, at(end)?, HALVINGS));
    }
    while let Some((end, to, halvings)) = left.pop() {
        let half = (start + end) / 2.0;
        let middle = at(half)?;
        let bent = bend(from, middle, to);
        if bent > limit && halvings > 0 {
            left.push((end, to, halvings - 1));
            left.push((half, middle, halvings - 1));
            continue;
        }
        // The middle is already projected, so adding it costs nothing.
        points.extend([from, middle]);
        max_bend = max_bend.max(bent);
        (start, from) = (end, to);
    }
    Some(max_bend)
}

pub(super) fn between(from: [f64; 2], to: [f64; 2], along: f64) -> [f64; 2] {
    // This form is exact at both ends; `a + (b - a) * along` may not return `b`.
    let part = |a: f64, b: f64| a * (1.0 - along) + b * along;
    [part(from[0], to[0]), part(from[1], to[1])]
}

pub(super) fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

#[cfg(test)]
mod tests {
    use ::geo::{Area, Coord};
    use proptest::prelude::*;

    use super::*;
    use crate::geo::Crs;

    fn grid(epsg: u32, transform: [f64; 6], width: u32, height: u32) -> GeoBox {
        GeoBox {
            size: Size { width, height },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform(transform)),
        }
    }

    fn utm(epsg: u32, west: f64, north: f64) -> GeoBox {
        grid(epsg, [west, 10.0, 0.0, north, 0.0, -10.0], 10_980, 10_980)
    }

    fn polygons(grid: &GeoBox) -> MultiPolygon<f64> {
        match ::geo::Geometry::try_from(grid.footprint().unwrap()).unwrap() {
            ::geo::Geometry::Polygon(polygon) => MultiPolygon::new(vec![polygon]),
            ::geo::Geometry::MultiPolygon(polygons) => polygons,
            other => panic!("{other:?}"),
        }
    }

    /// Grids of all shapes: rotated, south-up, over a pole, near one, across the antimeridian, global.
    fn grids() -> Vec<GeoBox> {
        let (sin, cos) = (10.0 * 0.5_f64.sin(), 10.0 * 0.5_f64.cos());
        let world = 20_037_508.342_789_244;
        vec![
            utm(32756, 499_980.0, 7_000_020.0),
            utm(32760, 799_980.0, 8_200_000.0),
            utm(32601, 299_980.0, 7_000_000.0),
            grid(
                32633,
                [500_000.0, cos, -sin, 5_000_000.0, sin, cos],
                4000,
                3000,
            ),
            grid(
                32633,
                [500_000.0, 10.0, 3.0, 5_000_000.0, 0.0, -7.0],
                4000,
                3000,
            ),
            grid(
                28355,
                [500_000.0, 25.0, 0.0, 5_200_000.0, 0.0, 25.0],
                3000,
                3000,
            ),
            grid(
                3577,
                [-2_000_000.0, 1000.0, 0.0, -900_000.0, 0.0, -1000.0],
                4300,
                4100,
            ),
            grid(
                9473,
                [1_000_000.0, 30.0, 0.0, -4_000_000.0, 0.0, -30.0],
                3200,
                3200,
            ),
            grid(3031, [-3e6, 2000.0, 0.0, 3e6, 0.0, -2000.0], 3000, 3000),
            grid(3031, [0.0, 100.0, 0.0, 1e6, 0.0, -100.0], 10_000, 10_000),
            grid(3413, [-1e6, 100.0, 0.0, 0.0, 0.0, -100.0], 20_000, 10_000),
            grid(32661, [1.5e6, 200.0, 0.0, 2.7e6, 0.0, -200.0], 6000, 6000),
            grid(
                3857,
                [-world, world / 1000.0, 0.0, world, 0.0, -world / 1000.0],
                2000,
                2000,
            ),
            grid(
                3857,
                [19_567_879.0, 152.0, 0.0, -1_600_000.0, 0.0, -152.0],
                8000,
                5000,
            ),
            grid(
                2193,
                [1_500_000.0, 10.0, 0.0, 5_500_000.0, 0.0, -10.0],
                5000,
                5000,
            ),
            grid(
                27700,
                [400_000.0, 10.0, 0.0, 400_000.0, 0.0, -10.0],
                5000,
                5000,
            ),
            grid(
                2056,
                [2_600_000.0, 2.0, 0.0, 1_200_000.0, 0.0, -2.0],
                5000,
                5000,
            ),
            grid(
                3035,
                [2_000_000.0, 1000.0, 0.0, 5_500_000.0, 0.0, -1000.0],
                5000,
                4000,
            ),
            grid(6931, [-9e6, 9000.0, 0.0, 9e6, 0.0, -9000.0], 2000, 2000),
            grid(4326, [-180.0, 0.25, 0.0, 90.0, 0.0, -0.25], 1440, 720),
            grid(4326, [-180.125, 0.25, 0.0, 90.125, 0.0, -0.25], 1440, 721),
            grid(4326, [0.0, 0.25, 0.0, -90.0, 0.0, 0.25], 1440, 720),
            grid(4326, [170.0, 0.1, 0.0, 10.0, 0.0, -0.1], 200, 300),
            grid(4289, [4.0, 0.01, 0.0, 53.0, 0.0, -0.01], 300, 200),
        ]
    }

    fn wrap(lon: f64) -> f64 {
        near(lon, 0.0).clamp(-180.0, 180.0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn a_point_in_a_pixel_is_found_in_it(
            grid in prop::sample::select(grids()),
            [x, y] in [0.0..1.0_f64, 0.0..1.0],
        ) {
            let col = (x * f64::from(grid.size.width)).floor();
            let row = (y * f64::from(grid.size.height)).floor();
            let there = Grid::of(&grid).unwrap().point([col + 0.5, row + 0.5]).unwrap();
            let pixel = Cover::of([col, row]).window(grid.size);
            prop_assume!(there.lat.abs() < 90.0);
            prop_assert_eq!(grid.pixel_at(wrap(there.lon), there.lat).unwrap(), pixel);
        }

        #[test]
        fn the_window_of_a_box_holds_what_lies_in_the_box(
            grid in prop::sample::select(grids()),
            [ax, ay, bx, by] in prop::array::uniform4(0.0..1.0_f64),
            size in prop::sample::select(vec![1.0, 0.1, 0.001]),
            inside in prop::collection::vec((0.001..0.999_f64, 0.001..0.999_f64), 20),
        ) {
            let ground = Grid::of(&grid).unwrap();
            let at = |x: f64, y: f64| {
                let size = grid.size;
                ground.point([x * f64::from(size.width), y * f64::from(size.height)]).unwrap()
            };
            let (a, b) = (at(ax, ay), at(ax + (bx - ax) * size, ay + (by - ay) * size));
            let (south, north) = (a.lat.min(b.lat).max(-90.0), a.lat.max(b.lat).min(90.0));
            // Either order of west and east is a valid bbox.
            let bbox = Bbox::new(wrap(a.lon), south, wrap(b.lon), north).unwrap();
            let width = (bbox.east() - bbox.west()).rem_euclid(360.0);
            let window = grid.window_of(&bbox).unwrap();
            for (x, y) in inside {
                let lon = wrap(bbox.west() + width * x);
                let lat = south + (north - south) * y;
                if let Some(pixel) = grid.pixel_at(lon, lat).unwrap() {
                    let window = window.expect("a pixel lies in the box");
                    prop_assert!(
                        window.col <= pixel.col
                            && pixel.col < window.col + window.width
                            && window.row <= pixel.row
                            && pixel.row < window.row + window.height,
                        "{} is not in {} of {}", pixel, window, bbox
                    );
                }
            }
        }

        #[test]
        fn the_window_of_the_box_round_a_grid_is_the_grid(grid in prop::sample::select(grids())) {
            // The footprint is exact to a quarter of a pixel, and a bbox is not much larger than its window.
            let window = grid.window_of(&grid.bbox().unwrap()).unwrap().unwrap();
            prop_assert!(window.width >= grid.size.width - 2, "{}", window);
            prop_assert!(window.height >= grid.size.height - 2, "{}", window);
        }

        #[test]
        fn the_window_of_a_box_in_a_pixel_is_the_pixel(
            grid in prop::sample::select(grids()),
            [x, y] in [0.01..0.99_f64, 0.01..0.99],
        ) {
            let (width, height) = (f64::from(grid.size.width), f64::from(grid.size.height));
            let (col, row) = ((x * width).floor(), (y * height).floor());
            let there = Grid::of(&grid).unwrap().point([col + 0.5, row + 0.5]).unwrap();
            prop_assume!(there.lat.abs() < 89.9 && there.lon.abs() < 179.9);
            let bbox = Bbox::new(there.lon, there.lat, there.lon + 1e-7, there.lat + 1e-7).unwrap();
            let pixel = Cover::of([col, row]).window(grid.size);
            prop_assert_eq!(grid.window_of(&bbox).unwrap(), pixel);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_grid_panics(
            epsg in prop::sample::select(vec![4326_u32, 3857, 32756, 3577, 3031, 8857, 27700, 4289, 5880]),
            transform in prop::array::uniform6(prop_oneof![
                prop::num::f64::ANY, -1e7..1e7_f64, -100.0..100.0_f64, Just(0.0)
            ]),
            width: u32,
            height: u32,
            [lon, lat] in prop::array::uniform2(prop_oneof![prop::num::f64::ANY, -90.0..90.0_f64]),
        ) {
            let grid = grid(epsg, transform, width, height);
            let _ = (grid.footprint().is_ok(), grid.bbox().is_ok());
            let _ = grid.pixel_at(lon, lat).is_ok();
            if let Ok(bbox) = Bbox::new(lon, lat, -lon, 90.0)
                && let Ok(Some(window)) = grid.window_of(&bbox)
            {
                prop_assert!(window.check_inside(grid.size).is_ok());
            }
        }
    }

    /// Computed with GDAL 3.6.2: `gdaltransform -s_srs EPSG:32756 -t_srs EPSG:4326` of the corners.
    #[test]
    fn the_corners_of_a_footprint_agree_with_gdal() {
        let shape = polygons(&utm(32756, 499_980.0, 7_000_020.0));
        let ring = shape.0[0].exterior();
        for (lon, lat) in [
            (152.99979819921, -27.122289072639),
            (154.107600912809, -27.1179219178761),
            (154.117616343215, -28.1089868957691),
            (152.999796373975, -28.1135410638537),
        ] {
            let apart = |coord: &Coord<f64>| (coord.x - lon).hypot(coord.y - lat);
            let nearest = ring.coords().map(apart).fold(f64::INFINITY, f64::min);
            assert!(nearest < 1e-9, "{lon} {lat} {nearest}");
        }
        assert!(shape.signed_area() > 0.0);
    }

    #[test]
    fn a_grid_across_the_antimeridian_has_two_parts() {
        let grid = utm(32601, 299_980.0, 7_000_000.0);
        assert_eq!(polygons(&grid).0.len(), 2);
        let bbox = grid.bbox().unwrap();
        assert!(bbox.crosses_antimeridian() && bbox.west() > 176.0 && bbox.east() < -176.0);
        let fiji = Bbox::new(177.0, -19.0, -178.0, -16.0).unwrap();
        let degrees = super::tests::grid(4326, [170.0, 0.1, 0.0, 10.0, 0.0, -0.1], 200, 300);
        assert_eq!(
            degrees.window_of(&fiji).unwrap().unwrap().to_string(),
            "70,260,50,30"
        );
        assert_eq!(
            degrees
                .pixel_at(-179.95, 9.95)
                .unwrap()
                .unwrap()
                .to_string(),
            "100,0,1,1"
        );
    }

    #[test]
    fn a_grid_over_a_pole_has_all_longitudes() {
        let south = grid(3031, [-3e6, 2000.0, 0.0, 3e6, 0.0, -2000.0], 3000, 3000);
        assert_eq!(south.bbox().unwrap().edges()[..3], [-180.0, -90.0, 180.0]);
        // The corners are the northernmost.
        let north = south.bbox().unwrap().north();
        assert!((north - -52.3171007992301).abs() < 1e-9, "{north}");
        let window = south.window_of(&Bbox::new(-180.0, -90.0, 180.0, -89.0).unwrap());
        let Window {
            col,
            row,
            width,
            height,
        } = window.unwrap().unwrap();
        assert_eq!(
            [col + width / 2, row + height / 2, width],
            [1500, 1500, height]
        );
        assert_eq!(width, 110);
    }

    #[test]
    fn a_grid_with_a_pole_on_its_edge_has_the_longitudes_of_its_side() {
        let corner = grid(3031, [0.0, 100.0, 0.0, 1e6, 0.0, -100.0], 10_000, 10_000);
        let edges = corner.bbox().unwrap().edges();
        for (edge, expected) in edges.iter().zip([0.0, -90.0, 90.0]) {
            assert!((edge - expected).abs() < 1e-2, "{edges:?}");
        }
        // The side ends at the pole, 45 degrees west, the central longitude of the projection.
        let side = grid(3413, [-1e6, 100.0, 0.0, 0.0, 0.0, -100.0], 20_000, 10_000);
        let [west, _, east, north] = side.bbox().unwrap().edges();
        assert!(
            (west + 135.0).abs() < 1e-2 && (east - 45.0).abs() < 1e-2,
            "{west} {east}"
        );
        assert!(north > 89.99);
        let half = polygons(&side).signed_area();
        assert!((half - 1855.0).abs() < 60.0, "{half}");
    }

    #[test]
    fn a_grid_of_the_world_in_degrees_is_cut_to_the_globe() {
        for grid in [
            grid(4326, [-180.125, 0.25, 0.0, 90.125, 0.0, -0.25], 1440, 721),
            grid(4326, [0.0, 0.25, 0.0, -90.0, 0.0, 0.25], 1440, 720),
            grid(4326, [-180.25, 0.25, 0.0, 90.0, 0.0, -0.25], 1442, 720),
        ] {
            assert_eq!(grid.bbox().unwrap().edges(), [-180.0, -90.0, 180.0, 90.0]);
            assert!((polygons(&grid).signed_area() - 360.0 * 180.0).abs() < 1e-6);
        }
        let metres = grid(4326, [5e5, 10.0, 0.0, 7e6, 0.0, -10.0], 100, 100);
        assert_eq!(
            metres.footprint().unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_box_beside_the_grid_has_no_window() {
        let brisbane = utm(32756, 499_980.0, 7_000_020.0);
        for text in [
            "150,-28,152,-27",
            "152.9,-10,153.1,-9",
            "-30,20,-29,21",
            "-27.1,-28,-26,-27",
        ] {
            assert_eq!(
                brisbane.window_of(&text.parse().unwrap()).unwrap(),
                None,
                "{text}"
            );
        }
        let world = Bbox::new(-180.0, -90.0, 180.0, 90.0).unwrap();
        assert_eq!(
            brisbane.window_of(&world).unwrap(),
            Some(Window::whole(brisbane.size))
        );
        assert_eq!(brisbane.pixel_at(-27.0, 0.0).unwrap(), None);
    }

    #[test]
    fn pixels_of_degrees_are_exact() {
        let grid = grid(4326, [150.0, 0.1, 0.0, -27.0, 0.0, -0.1], 20, 10);
        let window = |text: &str| grid.window_of(&text.parse().unwrap()).unwrap();
        assert_eq!(window("150.3,-27.7,150.9,-27.3"), "3,3,6,4".parse().ok());
        assert_eq!(window("140,-30,150,-20"), None);
        assert_eq!(window("150,-27,150,-27"), "0,0,1,1".parse().ok());
        assert_eq!(window("152,-27,152,-27"), None);
        assert_eq!(grid.pixel_at(150.3, -27.3).unwrap(), "3,3,1,1".parse().ok());
        assert_eq!(grid.pixel_at(152.0, -27.3).unwrap(), None);
    }

    #[test]
    fn what_lies_nowhere_is_an_error_that_says_why() {
        let good = utm(32756, 499_980.0, 7_000_020.0);
        for (lon, lat) in [(f64::NAN, 0.0), (0.0, f64::NAN), (181.0, 0.0), (0.0, -90.5)] {
            assert_eq!(
                good.pixel_at(lon, lat).unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
        }
        let flat = Some(GeoTransform([0.0, 1.0, 2.0, 0.0, 2.0, 4.0]));
        let endless = Some(GeoTransform([f64::NAN, 1.0, 0.0, 0.0, 0.0, 1.0]));
        for bad in [
            GeoBox {
                crs: None,
                ..good.clone()
            },
            GeoBox {
                transform: None,
                ..good.clone()
            },
            GeoBox {
                transform: flat,
                ..good.clone()
            },
            GeoBox {
                transform: endless,
                ..good.clone()
            },
            GeoBox {
                size: Size {
                    width: 0,
                    height: 1,
                },
                ..good.clone()
            },
        ] {
            assert_eq!(bad.footprint().unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(
                bad.pixel_at(0.0, 0.0).unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
        }
        let world = grid(8857, [-18e6, 1e4, 0.0, 9e6, 0.0, -1e4], 3600, 1800);
        let err = world.footprint().unwrap_err();
        assert_eq!(
            err.to_string(),
            "the outline of the grid extends beyond the domain of the projection of EPSG:8857"
        );
        // A bbox inside the domain still has a window.
        let window = world
            .window_of(&"150,-30,151,-29".parse().unwrap())
            .unwrap()
            .unwrap();
        assert!(window.width < 20 && window.height < 20, "{window}");
    }
}
