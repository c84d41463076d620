//! The grid of a CRS that covers other grids: their outlines, projected straight into it.
//!
//! A box in degrees between the two would be larger than the outline, since its sides are curves, and does not know on
//! which side of the globe two grids either side of the antimeridian meet.

use super::{
    Bbox, Crs, GeoBox, GeoTransform, Resolution, Size, Transformer,
    footprint::{Grid, between, distance, follow},
    grid::snapped,
    outline::near,
    projection::Projection,
    turn::within,
    utm::LonLat,
};
use crate::error::{Error, ErrorKind, Result};

/// The bound on the distance of a densified side of a grid from the true one, in pixels of the new grid.
const BEND: f64 = 0.05;

impl GeoBox {
    /// Creates the smallest grid of a CRS and a pixel size that covers other grids, with a corner of four pixels at
    /// `anchor`, x then y. Grids either side of the antimeridian are taken together: in degrees the new grid goes past
    /// 180.
    ///
    /// # Errors
    ///
    /// Those of [`of_bounds_at`](Self::of_bounds_at); also [`ErrorKind::InvalidInput`] if there is no grid, or one has
    /// no CRS or no geotransform; [`ErrorKind::Unsupported`] naming a CRS that cannot be converted, or if a grid extends
    /// beyond the domain of a projection.
    pub fn covering(
        grids: &[Self],
        crs: &Crs,
        resolution: impl Into<Resolution>,
        anchor: [f64; 2],
    ) -> Result<Self> {
        let resolution = resolution.into().check()?;
        let moved = Self::side_by_side(grids);
        let grids = moved.as_deref().unwrap_or(grids);
        let mut all: Option<[f64; 4]> = None;
        let projection = grids
            .iter()
            .any(|grid| grid.crs.as_ref().is_none_or(|own| !own.is_same(crs)))
            .then(|| Projection::of(crs))
            .transpose()?;
        for grid in grids {
            let is_same = grid.crs.as_ref().is_some_and(|own| own.is_same(crs));
            let bounds = match (&projection, is_same) {
                (Some(projection), false) => match projection.is_endless() {
                    true => on_endless(grid, projection, all)?,
                    false => on_map(grid, crs, resolution)?,
                },
                _ => {
                    let bounds = grid.bounds().ok_or_else(|| {
                        let message = "a grid has no geotransform, so it has no extent";
                        Error::new(ErrorKind::InvalidInput, message)
                    })?;
                    let turn = projection.as_ref().and_then(Projection::turn);
                    beside(bounds, all, turn)
                }
            };
            all = Some(match all {
                Some(all) => union(all, bounds),
                None => bounds,
            });
        }
        let bounds =
            all.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "there is no grid to cover"))?;
        snapped(Some(crs.clone()), bounds, resolution, anchor)
    }
}

impl Bbox {
    /// Returns the bounding box of boxes, on the side of the globe where it is the narrowest; none without boxes.
    pub fn around(boxes: &[Self]) -> Option<Self> {
        let first = boxes.first()?;
        let south = boxes.iter().map(Self::south).fold(first.south(), f64::min);
        let north = boxes.iter().map(Self::north).fold(first.north(), f64::max);
        // Each as a start and a width; the box around them begins at one of the starts.
        let mut arcs: Vec<[f64; 2]> = boxes
            .iter()
            .map(|bbox| match bbox.crosses_antimeridian() {
                true => [bbox.west(), bbox.east() + 360.0 - bbox.west()],
                false => [bbox.west(), bbox.east() - bbox.west()],
            })
            .collect();
        arcs.sort_by(|a, b| a[0].total_cmp(&b[0]));
        // The furthest end of an arc and those after it.
        let mut last = f64::NEG_INFINITY;
        let mut ends: Vec<f64> = Vec::with_capacity(arcs.len());
        for [west, width] in arcs.iter().rev() {
            last = last.max(west + width);
            ends.push(last);
        }
        // And of those before it, which are a turn further.
        let mut before = f64::NEG_INFINITY;
        let mut best: Option<(f64, f64)> = None;
        for ([west, width], end) in arcs.iter().zip(ends.iter().rev()) {
            let all = end.max(before) - west;
            if best.is_none_or(|(_, narrowest)| all < narrowest) {
                best = Some((*west, all));
            }
            before = before.max(west + width + 360.0);
        }
        let (west, width) = best?;
        let east = west + width;
        let (west, east) = match (width < 360.0, east > 180.0) {
            (false, _) => (-180.0, 180.0),
            (true, true) => (west, east - 360.0),
            (true, false) => (west, east),
        };
        Self::new(west, south, east, north).ok()
    }
}

/// Returns bounds at the turn of longitude at which they are nearest to what is covered so far.
fn beside(bounds: [f64; 4], known: Option<[f64; 4]>, turn: Option<f64>) -> [f64; 4] {
    let (Some(known), Some(turn)) = (known, turn) else {
        return bounds;
    };
    let middle = (bounds[0] + bounds[2]) / 2.0;
    let along = within(middle, (known[0] + known[2]) / 2.0, turn) - middle;
    [bounds[0] + along, bounds[1], bounds[2] + along, bounds[3]]
}

fn union(a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
    [
        a[0].min(b[0]),
        a[1].min(b[1]),
        a[2].max(b[2]),
        a[3].max(b[3]),
    ]
}

/// Returns the bounds of a grid on a map whose meridians are parallel lines: its outline, in one piece, at the turn of
/// longitude that is nearest to what is covered so far.
fn on_endless(grid: &GeoBox, projection: &Projection, known: Option<[f64; 4]>) -> Result<[f64; 4]> {
    let bbox = grid.bbox()?;
    let [west, south, east, north] = bbox.edges();
    let east = if bbox.crosses_antimeridian() {
        east + 360.0
    } else {
        east
    };
    let middle = (west + east) / 2.0;
    let other = match known {
        None => projection.middle(),
        Some([left, bottom, right, top]) => {
            let centre = [(left + right) / 2.0, (bottom + top) / 2.0];
            projection.to_lon_lat(centre).map_or(0.0, |point| point.lon)
        }
    };
    let turn = near(middle, other) - middle;
    let mut all: Option<[f64; 4]> = None;
    for lon in [west, east] {
        for lat in [south, north] {
            let lon = lon + turn;
            let [x, y] = projection
                .to_crs(LonLat { lon, lat })
                .ok_or_else(|| beyond(grid))?;
            all = Some(union(all.unwrap_or([x, y, x, y]), [x, y, x, y]));
        }
    }
    all.ok_or_else(|| beyond(grid))
}

/// Returns the bounds of a grid on another map: those of its four sides.
fn on_map(grid: &GeoBox, crs: &Crs, resolution: Resolution) -> Result<[f64; 4]> {
    // What georeferencing needs is checked here.
    Grid::of(grid)?;
    let plane = GeoBox {
        size: Size {
            width: 1,
            height: 1,
        },
        crs: Some(crs.clone()),
        transform: Some(GeoTransform([
            0.0,
            resolution.x,
            0.0,
            0.0,
            0.0,
            resolution.y,
        ])),
    };
    let to = Transformer::new(grid, &plane)?;
    let Size { width, height } = grid.size;
    let (right, bottom) = (f64::from(width), f64::from(height));
    let corners = [
        [0.0, 0.0],
        [right, 0.0],
        [right, bottom],
        [0.0, bottom],
        [0.0, 0.0],
    ];
    let mut places = Vec::new();
    let mut widest = 0.0_f64;
    for (from, end) in corners.iter().zip(corners.iter().skip(1)) {
        let at = |along: f64| to.place(between(*from, *end, along));
        let bend = |a, b, c| distance(between(a, c, 0.5), b);
        let bent = follow(&at, &bend, BEND, &mut places).ok_or_else(|| beyond(grid))?;
        widest = widest.max(bent.min(1.0));
    }
    let all = places
        .into_iter()
        .map(|[x, y]| [x, y, x, y])
        .reduce(union)
        .ok_or_else(|| beyond(grid))?;
    // Between two points a curve goes past both by less than its distance from the chord.
    let Resolution { x, y } = resolution;
    Ok([
        (all[0] - widest) * x,
        (all[1] - widest) * y,
        (all[2] + widest) * x,
        (all[3] + widest) * y,
    ])
}

fn beyond(grid: &GeoBox) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the grid {grid} extends beyond the domain of the projection: choose a box or another CRS"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(epsg: u32, x: f64, y: f64, side: f64, pixels: u32) -> GeoBox {
        GeoBox {
            size: Size {
                width: pixels,
                height: pixels,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform([x, side, 0.0, y, 0.0, -side])),
        }
    }

    #[test]
    fn grids_either_side_of_the_antimeridian_are_neighbours() {
        let west = grid(32760, 798_000.0, 8_070_000.0, 30.0, 600);
        let east = grid(32701, 184_000.0, 8_070_000.0, 30.0, 600);
        let both = [west.clone(), east.clone()];
        // 18 km each, with 5 km between them.
        let made = GeoBox::covering(&both, &Crs::Epsg(32760), 30.0, [0.0; 2]).unwrap();
        assert!((1350..1400).contains(&made.size.width), "{made}");
        assert!((600..640).contains(&made.size.height), "{made}");
        let made = GeoBox::covering(&both, &Crs::Epsg(4326), 0.001, [0.0; 2]).unwrap();
        assert!(made.size.width < 500, "{made}");
        let [left, _, right, _] = made.bounds().unwrap();
        assert!(
            left > 179.0 && right > 180.0 && right < 181.0,
            "{left} {right}"
        );
        let boxes = [west.bbox().unwrap(), east.bbox().unwrap()];
        let around = Bbox::around(&boxes).unwrap();
        assert!(around.crosses_antimeridian(), "{around}");
    }

    #[test]
    fn grids_in_degrees_either_side_of_the_antimeridian_are_neighbours() {
        let side = 1.0 / 60.0;
        let tile = |x: f64| grid(4326, x, -16.0, side, 60);
        let edges = |grid: &GeoBox| {
            grid.bounds()
                .unwrap()
                .map(|edge| (edge * 1e6).round() / 1e6)
        };
        for tiles in [[179.0, -180.0], [-180.0, 179.0]] {
            let tiles = tiles.map(tile);
            let both = GeoBox::united(&tiles).unwrap().unwrap();
            assert_eq!(edges(&both), [179.0, -17.0, 181.0, -16.0]);
            assert_eq!([both.size.width, both.size.height], [120, 60]);
            let coarse = GeoBox::covering(&tiles, &Crs::Epsg(4326), 0.1, [0.0; 2]).unwrap();
            assert_eq!(edges(&coarse), [179.0, -17.0, 181.0, -16.0]);
            // With one in another CRS between them.
            let [a, b] = tiles;
            let mixed = [a, grid(32760, 798_000.0, 8_200_000.0, 100.0, 100), b];
            let mixed = GeoBox::covering(&mixed, &Crs::Epsg(4326), 0.1, [0.0; 2]).unwrap();
            assert!(mixed.size.width <= 31, "{mixed}");
        }
        // Half a pixel more or less than whole pixels to the turn cannot be united.
        let side = 0.7;
        let odd = [
            grid(4326, 178.5, 0.0, side, 2),
            grid(4326, -179.8, 0.0, side, 2),
        ];
        assert_eq!(GeoBox::united(&odd).unwrap(), None);
        // What is spread over more than half the globe stays where it is.
        let spread = [-120.0, 0.0, 120.0].map(tile);
        let all = GeoBox::united(&spread).unwrap().unwrap();
        assert_eq!(edges(&all), [-120.0, -17.0, 121.0, -16.0]);
        let half = 20_037_508.342_789_244;
        let tile = |x: f64| grid(3857, x, 0.0, half / 1000.0, 10);
        let both = GeoBox::united(&[tile(-half), tile(half * 0.99)]).unwrap();
        assert_eq!(both.unwrap().size.width, 20);
    }

    #[test]
    fn its_own_crs_makes_no_larger_grid() {
        let own = grid(32633, 499_980.0, 7_000_020.0, 10.0, 700);
        let made = GeoBox::covering(
            std::slice::from_ref(&own),
            &Crs::Epsg(32633),
            10.0,
            [0.0; 2],
        );
        assert_eq!(made.unwrap(), own);
        // At 63 degrees north a box in degrees would be a sixth wider.
        let other = GeoBox::covering(&[own], &Crs::Epsg(3035), 10.0, [0.0; 2]).unwrap();
        assert!(other.size.width < 760, "{other}");
    }

    #[test]
    fn a_box_around_boxes_takes_the_short_way() {
        let of = |text: &str| text.parse::<Bbox>().unwrap();
        for (boxes, expected) in [
            (
                &["179,-18,180,-17", "-180,-18,-179,-16"][..],
                "179,-18,-179,-16",
            ),
            (&["10,0,11,1", "20,0,21,1"], "10,0,21,1"),
            (&["177,0,-179,1", "175,0,178,1"], "175,0,-179,1"),
            (&["-180,0,180,1", "175,0,178,1"], "-180,0,180,1"),
        ] {
            let boxes: Vec<Bbox> = boxes.iter().map(|text| of(text)).collect();
            assert_eq!(Bbox::around(&boxes), Some(of(expected)));
        }
    }

    #[test]
    fn a_grid_is_turned_north_up_where_it_lies() {
        let mut south_up = grid(32755, 0.0, 0.0, 10.0, 5);
        south_up.transform = Some(GeoTransform([0.0, 10.0, 0.0, 100.0, 0.0, 10.0]));
        let made = south_up.north_up().unwrap();
        assert_eq!(
            made.transform,
            Some(GeoTransform([0.0, 10.0, 0.0, 150.0, 0.0, -10.0]))
        );
        assert_eq!(made.bounds(), south_up.bounds());
    }
}
