//! Constructors of grids: from bounds, from a bbox in degrees, from other grids.

use std::fmt;

use super::{
    Bbox, Crs, GeoBox, GeoTransform, Size,
    footprint::Grid,
    lattice::{Lattice, SLACK},
    outline::{Cover, Reach, TURNS},
    projection::Projection,
    turn::within,
};
use crate::error::{Error, ErrorKind, Result};

/// The size of a pixel in the units of its CRS.
///
/// ```
/// use rss_raster::Resolution;
///
/// assert_eq!(Resolution::from(10.0), Resolution { x: 10.0, y: 10.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolution {
    /// The distance from one column to the next.
    pub x: f64,
    /// The distance from one row to the next.
    pub y: f64,
}

impl From<f64> for Resolution {
    fn from(side: f64) -> Self {
        Self { x: side, y: side }
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.x == self.y {
            true => write!(f, "{}", self.x),
            false => write!(f, "{} x {}", self.x, self.y),
        }
    }
}

impl Resolution {
    pub(super) fn check(self) -> Result<Self> {
        let is_size = |side: f64| side > 0.0 && side.is_finite();
        if is_size(self.x) && is_size(self.y) {
            return Ok(self);
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("resolution {self} is not a pixel size; expected a finite number above 0"),
        ))
    }
}

/// Constructors. The grids are north-up, and pixel edges lie at integer multiples of the resolution, as with gdalwarp's
/// `-tap`, so that grids created apart share their pixels.
impl GeoBox {
    /// Creates the smallest grid that covers bounds: xmin, ymin, xmax, ymax, in the units of `crs`. It may be smaller
    /// than the bounds by a thousandth of a pixel, so that rounding errors of the bounds add no pixel.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, Size};
    ///
    /// let grid = GeoBox::of_bounds(Crs::Epsg(3577), [1_500_003.0, -3_950_000.0, 1_500_100.0, -3_949_990.0], 10.0)?;
    /// assert_eq!(grid.size, Size { width: 10, height: 1 });
    /// assert_eq!(grid.bounds(), Some([1_500_000.0, -3_950_000.0, 1_500_100.0, -3_949_990.0]));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the bounds are empty or not finite, the resolution is not above 0, or the grid
    /// would have more than 4294967295 columns or rows.
    pub fn of_bounds(
        crs: Crs,
        bounds: [f64; 4],
        resolution: impl Into<Resolution>,
    ) -> Result<Self> {
        snapped(Some(crs), bounds, resolution.into(), [0.0; 2])
    }

    /// Creates a grid as [`of_bounds`](Self::of_bounds) does, with a corner of four pixels at `anchor`, x then y, in
    /// place of the origin of the CRS.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox};
    ///
    /// // Landsat's edges lie at 15 mod 30.
    /// let bounds = [495_285.0, 6_954_315.0, 501_285.0, 6_960_315.0];
    /// let grid = GeoBox::of_bounds_at(Crs::Epsg(32756), bounds, 30.0, [15.0, 15.0])?;
    /// assert_eq!(grid.bounds(), Some(bounds));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`of_bounds`](Self::of_bounds); also [`ErrorKind::InvalidInput`] if the anchor is not finite.
    pub fn of_bounds_at(
        crs: Crs,
        bounds: [f64; 4],
        resolution: impl Into<Resolution>,
        anchor: [f64; 2],
    ) -> Result<Self> {
        snapped(Some(crs), bounds, resolution.into(), anchor)
    }

    /// Creates a grid that covers a bbox in degrees. The sides of the bbox are curves in most projections; they are
    /// densified to within a twentieth of a pixel. On a map that goes round the globe, the grid of a bbox across its end goes
    /// past it: in degrees past 180.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox};
    ///
    /// let bbox = "149,-36,149.2,-35.8".parse()?;
    /// let grid = GeoBox::of_bbox(&bbox, Crs::utm_of(&bbox)?, 10.0)?;
    /// assert_eq!(grid.to_string(), "EPSG:32755, 10 m, 1854 x 2258");
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`of_bounds`](Self::of_bounds); also [`ErrorKind::Unsupported`] naming a CRS that cannot be converted from
    /// degrees, or if the bbox extends beyond the domain of the projection.
    pub fn of_bbox(bbox: &Bbox, crs: Crs, resolution: impl Into<Resolution>) -> Result<Self> {
        Self::of_bbox_at(bbox, crs, resolution, [0.0; 2])
    }

    /// Creates a grid as [`of_bbox`](Self::of_bbox) does, with a corner of four pixels at `anchor`, x then y in the units
    /// of the CRS.
    ///
    /// # Errors
    ///
    /// Those of [`of_bbox`](Self::of_bbox); also [`ErrorKind::InvalidInput`] if the anchor is not finite.
    pub fn of_bbox_at(
        bbox: &Bbox,
        crs: Crs,
        resolution: impl Into<Resolution>,
        anchor: [f64; 2],
    ) -> Result<Self> {
        let resolution = resolution.into().check()?;
        // A one-pixel grid with the pixels of the result, counted from the origin of the CRS.
        let lattice = Self {
            size: Size {
                width: 1,
                height: 1,
            },
            crs: Some(crs),
            transform: Some(GeoTransform([
                0.0,
                resolution.x,
                0.0,
                0.0,
                0.0,
                -resolution.y,
            ])),
        };
        let grid = Grid::of(&lattice)?;
        let mut cover: Option<Cover> = None;
        for region in regions(bbox, &grid.projection) {
            let part = grid.cover(&region)?;
            cover = Some(cover.map_or(part, |known| known.with(&part)));
        }
        let Some([left, top, right, bottom]) = cover.map(|cover| cover.edges()) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("bbox {bbox} is empty"),
            ));
        };
        let Resolution { x, y } = resolution;
        snapped(
            lattice.crs,
            // Rows of the lattice count southwards, y northwards.
            [left * x, -bottom * y, right * x, -top * y],
            resolution,
            anchor,
        )
    }

    /// Returns a grid of the same extent with another pixel size. Where the extent is not a multiple of it, the new
    /// grid is larger.
    ///
    /// # Errors
    ///
    /// Those of [`of_bounds`](Self::of_bounds); also [`ErrorKind::InvalidInput`] if this grid has no geotransform.
    pub fn with_resolution(&self, resolution: impl Into<Resolution>) -> Result<Self> {
        let Some(bounds) = self.bounds() else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the grid has no geotransform, so it has no extent",
            ));
        };
        snapped(self.crs.clone(), bounds, resolution.into(), [0.0; 2])
    }

    /// Returns the grid with rows from north to south and columns from west to east, which is this one unless its rows
    /// or columns run the other way; none if it is rotated or has no geotransform. The pixels stay where they are.
    pub fn north_up(&self) -> Option<Self> {
        let GeoTransform([x, width, turn_x, y, turn_y, height]) = self.transform?;
        if turn_x != 0.0 || turn_y != 0.0 {
            return None;
        }
        let (cols, rows) = (f64::from(self.size.width), f64::from(self.size.height));
        let left = if width < 0.0 { x + cols * width } else { x };
        let top = if height > 0.0 { y + rows * height } else { y };
        let transform = [left, width.abs(), 0.0, top, 0.0, -height.abs()];
        Some(Self {
            transform: Some(GeoTransform(transform)),
            ..self.clone()
        })
    }

    /// Returns the bounds of the grid: xmin, ymin, xmax, ymax, in the units of its CRS; none without a geotransform.
    pub fn bounds(&self) -> Option<[f64; 4]> {
        let transform = self.transform?;
        let (right, bottom) = (f64::from(self.size.width), f64::from(self.size.height));
        let corners =
            [[0.0, 0.0], [right, 0.0], [0.0, bottom], [right, bottom]].map(|[col, row]| {
                let [x, y] = transform.apply(col, row);
                [x, y, x, y]
            });
        corners.into_iter().reduce(|a, b| {
            [
                a[0].min(b[0]),
                a[1].min(b[1]),
                a[2].max(b[2]),
                a[3].max(b[3]),
            ]
        })
    }

    /// Returns the size of a pixel along its row and its column, in the units of the CRS; none without a
    /// geotransform.
    pub fn resolution(&self) -> Option<Resolution> {
        let [_, a, b, _, c, d] = self.transform?.0;
        Some(Resolution {
            x: a.hypot(c),
            y: b.hypot(d),
        })
    }

    /// Returns the union of grids that share CRS and pixels, so that nothing has to be resampled onto it; none if
    /// they do not share them, or one is rotated or has no CRS or geotransform. Grids either side of the end of a map of
    /// the globe are taken together, if a turn of longitude is a whole number of pixels: in degrees the union goes past 180.
    ///
    /// ```
    /// use rss_raster::{Crs, GeoBox, Size};
    ///
    /// let tile = |x| GeoBox::of_bounds(Crs::Epsg(32755), [x, 0.0, x + 100.0, 100.0], 10.0);
    /// let both = GeoBox::united(&[tile(0.0)?, tile(150.0)?])?;
    /// assert_eq!(both.map(|grid| grid.size), Some(Size { width: 25, height: 10 }));
    /// assert_eq!(GeoBox::united(&[tile(0.0)?, tile(0.0)?.with_resolution(20.0)?])?, None);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the union has more than 2147483647 columns or rows.
    pub fn united(grids: &[Self]) -> Result<Option<Self>> {
        if let Some(moved) = Self::side_by_side(grids)
            && let Some(all) = Self::union(&moved)?
        {
            return Ok(Some(all));
        }
        Self::union(grids)
    }

    /// Returns the union of grids where they lie.
    fn union(grids: &[Self]) -> Result<Option<Self>> {
        let Some((first, others)) = grids.split_first() else {
            return Ok(None);
        };
        // A grid that cannot be aligned means no union, not an error.
        let Ok(lattice) = Lattice::of(first) else {
            return Ok(None);
        };
        let mut all = lattice.extent(first)?;
        for other in others {
            let Ok(extent) = lattice.extent(other) else {
                return Ok(None);
            };
            all = all.and(&extent)?;
        }
        Ok(Some(lattice.grid(&all)))
    }
}

/// CRS, size of a pixel, and size: `EPSG:32755, 10 m, 10980 x 10980`.
impl fmt::Display for GeoBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.crs {
            Some(Crs::Epsg(code)) => write!(f, "EPSG:{code}")?,
            Some(Crs::Wkt(_)) => f.write_str("a CRS without EPSG code")?,
            None => f.write_str("no CRS")?,
        }
        match (self.resolution(), self.transform) {
            (Some(resolution), Some(transform)) => {
                write!(f, ", {resolution}")?;
                let projection = self.crs.as_ref().map(Projection::of);
                if let Some(Ok(projection)) = projection {
                    write!(f, " {}", projection.unit())?;
                }
                if !transform.is_axis_aligned() {
                    f.write_str(" rotated")?;
                }
            }
            _ => f.write_str(", no geotransform")?,
        }
        write!(f, ", {} x {}", self.size.width, self.size.height)
    }
}

pub(super) fn snapped(
    crs: Option<Crs>,
    bounds: [f64; 4],
    resolution: Resolution,
    anchor: [f64; 2],
) -> Result<GeoBox> {
    let Resolution { x, y } = resolution.check()?;
    let [left, bottom, right, top] = bounds;
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    if !bounds.iter().all(|edge| edge.is_finite()) || left >= right || bottom >= top {
        return Err(invalid(format!(
            "bounds {left},{bottom},{right},{top} are empty; the order is xmin, ymin, \
             xmax, ymax"
        )));
    }
    if !anchor.iter().all(|part| part.is_finite()) {
        return Err(invalid(format!(
            "anchor {},{} is not finite",
            anchor[0], anchor[1]
        )));
    }
    // Within a pixel of the origin, so that no digits are lost.
    let [from_x, from_y] = [anchor[0].rem_euclid(x), anchor[1].rem_euclid(y)];
    let cols = Cells::of(left - from_x, right - from_x, x);
    let rows = Cells::of(bottom - from_y, top - from_y, y);
    let (Some(width), Some(height)) = (cols.count(), rows.count()) else {
        return Err(invalid(format!(
            "bounds {left},{bottom},{right},{top} are {} x {} pixels of {resolution}; expected at \
             most {} per axis",
            cols.end - cols.first,
            rows.end - rows.first,
            u32::MAX
        )));
    };
    Ok(GeoBox {
        size: Size { width, height },
        crs,
        transform: Some(GeoTransform([
            cols.first * x + from_x,
            x,
            0.0,
            rows.end * y + from_y,
            0.0,
            -y,
        ])),
    })
}

/// A range of integer multiples of a resolution.
struct Cells {
    first: f64,
    end: f64,
}

impl Cells {
    fn of(low: f64, high: f64, step: f64) -> Self {
        // Without a tolerance, bounds a rounding error beyond a pixel edge would add a pixel.
        let first = (low / step + SLACK).floor();
        // At least one pixel, also for bounds narrower than the tolerance.
        let end = (high / step - SLACK).ceil().max(first + 1.0);
        Self { first, end }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an integer within the range"
    )]
    fn count(&self) -> Option<u32> {
        let count = self.end - self.first;
        // From 2^53 (9.007e15) on `f64` does not represent every integer.
        let is_exact = self.first.abs() < 9e15 && self.end.abs() < 9e15;
        (is_exact && (1.0..=f64::from(u32::MAX)).contains(&count)).then_some(count as u32)
    }
}

/// Returns the parts of a bbox (west, south, east, north) in longitudes of the projection, none of which crosses the
/// projection's edge, unless its map goes on there.
fn regions(bbox: &Bbox, projection: &Projection) -> Vec<[f64; 4]> {
    if !projection.is_endless() {
        // The projection wraps: both parts are found on one continuous map.
        let parts = bbox.split();
        let parts = parts
            .iter()
            .flat_map(|part| Reach::GLOBE.parts(part, projection));
        return parts.collect();
    }
    let [west, south, east, north] = bbox.edges();
    let east = if bbox.crosses_antimeridian() {
        east + 360.0
    } else {
        east
    };
    let middle = projection.middle();
    let fits = |turn: &f64| {
        let slack = 1e-9;
        west + turn >= middle - 180.0 - slack && east + turn <= middle + 180.0 + slack
    };
    // One that fits nowhere begins on the map and goes past its east edge.
    let turn = TURNS
        .into_iter()
        .find(fits)
        .unwrap_or_else(|| within(west, middle, 360.0) - west);
    vec![[west + turn, south, east + turn, north]]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(bounds: [f64; 4], resolution: f64) -> Result<GeoBox> {
        GeoBox::of_bounds(Crs::Epsg(32755), bounds, resolution)
    }

    #[test]
    fn bounds_snap_outwards_and_noise_adds_no_pixel() {
        let exact = of([300_000.0, 6_000_000.0, 409_800.0, 6_109_800.0], 10.0).unwrap();
        assert_eq!(exact.size.width, 10_980);
        let noise = 1e-9;
        let noisy = [
            300_000.0 - noise,
            6_000_000.0 + noise,
            409_800.0 + noise,
            6_109_800.0 + noise,
        ];
        assert_eq!(of(noisy, 10.0).unwrap(), exact);
        let wider = of([299_999.0, 6_000_000.0, 409_801.0, 6_109_800.0], 10.0).unwrap();
        assert_eq!(wider.size.width, 10_982);
        assert_eq!(wider.transform.unwrap().0[0], 299_990.0);
        let degrees = of([0.1 + 0.2, -0.7, 0.6, -0.1 - 0.2], 0.1).unwrap();
        assert_eq!((degrees.size.width, degrees.size.height), (3, 4));
    }

    #[test]
    fn bounds_of_no_grid_are_refused_by_what_is_wrong() {
        for (bounds, resolution, said) in [
            ([1.0, 0.0, 1.0, 1.0], 1.0, "bounds 1,0,1,1 are empty"),
            ([0.0, 1.0, 1.0, 0.0], 1.0, "are empty"),
            ([f64::NAN, 0.0, 1.0, 1.0], 1.0, "are empty"),
            ([0.0, 0.0, f64::INFINITY, 1.0], 1.0, "are empty"),
            (
                [0.0, 0.0, 1.0, 1.0],
                0.0,
                "resolution 0 is not a pixel size",
            ),
            (
                [0.0, 0.0, 1.0, 1.0],
                -1.0,
                "resolution -1 is not a pixel size",
            ),
            ([0.0, 0.0, 1.0, 1.0], f64::NAN, "is not a pixel size"),
            (
                [0.0, 0.0, 5e9, 1.0],
                1.0,
                "are 5000000000 x 1 pixels of 1; expected at most 4294967295",
            ),
            ([0.0, 0.0, 1e300, 1.0], 1e-300, "expected at most"),
            ([1e17, 0.0, 1e17 + 64.0, 1.0], 1.0, "expected at most"),
        ] {
            let err = of(bounds, resolution).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().contains(said), "{err}");
        }
        assert_eq!(
            of([0.0, 0.0, 4_294_967_295.0, 1.0], 1.0)
                .unwrap()
                .size
                .width,
            u32::MAX
        );
    }

    #[test]
    fn a_bbox_across_the_end_of_a_map_goes_past_it_and_elsewhere_fits() {
        let fiji: Bbox = "177,-19,-178,-16".parse().unwrap();
        let grid = GeoBox::of_bbox(&fiji, Crs::Epsg(4326), 0.5).unwrap();
        assert_eq!(grid.bounds(), Some([177.0, -19.0, 182.0, -16.0]));
        let half = 20_037_508.342_789_244;
        let grid = GeoBox::of_bbox(&fiji, Crs::Epsg(3857), 1000.0).unwrap();
        let [left, _, right, _] = grid.bounds().unwrap();
        assert!((left - half / 180.0 * 177.0).abs() < 1001.0, "{grid}");
        assert!((right - half / 180.0 * 182.0).abs() < 1001.0, "{grid}");
        // A projection centred on the Pacific, a UTM zone and a polar one have no edge there.
        for (crs, resolution) in [(3832, 1000.0), (32760, 1000.0), (3031, 5000.0)] {
            let grid = GeoBox::of_bbox(&fiji, Crs::Epsg(crs), resolution).unwrap();
            assert!(
                grid.size.width < 700 && grid.size.height < 700,
                "{crs}: {grid}"
            );
            let found = grid.window_of(&fiji).unwrap().unwrap();
            assert!(
                found.width + 2 >= grid.size.width && found.height + 2 >= grid.size.height,
                "{crs}: {found} of {grid}"
            );
        }
    }

    #[test]
    fn a_grid_is_described() {
        let grid = of([300_000.0, 6_000_000.0, 409_800.0, 6_109_800.0], 10.0).unwrap();
        assert_eq!(grid.to_string(), "EPSG:32755, 10 m, 10980 x 10980");
        let degrees = GeoBox::of_bounds(
            Crs::Epsg(4326),
            [0.0, 0.0, 1.0, 1.0],
            Resolution { x: 0.5, y: 0.25 },
        );
        assert_eq!(
            degrees.unwrap().to_string(),
            "EPSG:4326, 0.5 x 0.25 degrees, 2 x 4"
        );
        let bare = GeoBox {
            size: grid.size,
            crs: None,
            transform: None,
        };
        assert_eq!(bare.to_string(), "no CRS, no geotransform, 10980 x 10980");
        let rotated = GeoBox {
            transform: Some(GeoTransform([0.0, 3.0, 4.0, 0.0, 4.0, -3.0])),
            ..grid
        };
        assert_eq!(
            rotated.to_string(),
            "EPSG:32755, 5 m rotated, 10980 x 10980"
        );
        assert_eq!(bare.bounds(), None);
        assert!(bare.with_resolution(10.0).is_err());
    }

    #[test]
    fn only_grids_of_one_lattice_are_united() {
        let grid = |x: f64| of([x, 0.0, x + 100.0, 100.0], 10.0).unwrap();
        let all = GeoBox::united(&[grid(100.0), grid(0.0), grid(500.0)]);
        assert_eq!(
            all.unwrap(),
            Some(of([0.0, 0.0, 600.0, 100.0], 10.0).unwrap())
        );
        assert_eq!(GeoBox::united(&[]).unwrap(), None);
        let mut beside = grid(0.0);
        beside.transform = Some(GeoTransform([5.0, 10.0, 0.0, 100.0, 0.0, -10.0]));
        let mut nowhere = grid(0.0);
        nowhere.crs = None;
        for other in [beside, nowhere, grid(0.0).with_resolution(5.0).unwrap()] {
            assert_eq!(GeoBox::united(&[grid(0.0), other.clone()]).unwrap(), None);
            assert_eq!(GeoBox::united(&[other, grid(0.0)]).unwrap(), None);
        }
    }

    proptest! {
        #[test]
        fn a_grid_of_a_bbox_covers_all_of_it(
            code in prop::sample::select(vec![32755_u32, 3577, 4326, 3857, 28355, 3031]),
            west in 142.0..150.0_f64,
            south in -44.0..-12.0_f64,
            width in 0.01..4.0_f64,
            height in 0.01..4.0_f64,
            pixels in 5.0..500.0_f64,
            across in 0.0..1.0_f64,
            along in 0.0..1.0_f64,
        ) {
            let bbox = Bbox::new(west, south, west + width, south + height).unwrap();
            let metres = 111_000.0 * width.min(height) / pixels;
            let resolution = if code == 4326 { metres / 111_000.0 } else { metres };
            let grid = GeoBox::of_bbox(&bbox, Crs::Epsg(code), resolution).unwrap();
            let whole = grid.of_window(&crate::geo::Window::whole(grid.size));
            let place = Grid::of(&whole).unwrap();
            // Each point of the outline lies on the grid, to the thousandth of a pixel that snapping ignores.
            for (lon, lat) in [
                (west + width * across, south),
                (west + width * across, south + height),
                (west, south + height * along),
                (west + width, south + height * along),
                (west + width * across, south + height * along),
            ] {
                let at = place.projection.to_crs(crate::geo::utm::LonLat { lon, lat }).unwrap();
                let [col, row] = place.transform.pixel_of(at).unwrap();
                let slack = 2.0 * SLACK;
                prop_assert!(col >= -slack && col <= f64::from(grid.size.width) + slack, "{}", col);
                prop_assert!(row >= -slack && row <= f64::from(grid.size.height) + slack, "{}", row);
            }
            // The edges are integer multiples of the resolution.
            let [left, .., top] = grid.bounds().unwrap();
            for edge in [left, top] {
                let cells = edge / resolution;
                prop_assert!((cells - cells.round()).abs() < 1e-6);
            }
        }
    }
}
