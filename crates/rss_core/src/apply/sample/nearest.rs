//! Points whose value is that of the nearest valid pixel within a distance, where their own pixel has none.

use super::{
    cells::{Cell, Needs, Tiles, shared},
    points::{Pixel, Points},
    shapes::{Samples, ShapeRows, Shapes},
};
use crate::{
    apply::footprint::Area,
    error::{Error, ErrorKind, Result},
    geo::{Crs, Ground, GroundPlane, GroundPoint, Window, WorldToPixel},
};

/// Pixels whose distances differ by less, in metres, are equally near: of them the one with the smaller row is taken, then
/// the one with the smaller column.
const TIE: f64 = 1e-3;
/// The largest distance, in metres.
const FARTHEST: f64 = 1e6;

/// Points, and the distance within which a pixel stands in for theirs.
#[derive(Clone, Debug)]
pub(super) struct Nearest {
    points: Points,
    metres: f64,
}

impl Nearest {
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a distance that is not positive or above 1000 km.
    pub(super) fn new(points: Points, metres: f64) -> Result<Self> {
        if metres > 0.0 && metres <= FARTHEST {
            return Ok(Self { points, metres });
        }
        let message =
            format!("nearest within {metres} m: expected more than 0 and at most {FARTHEST} m");
        Err(Error::new(ErrorKind::InvalidInput, message))
    }
}

/// The points on one image.
#[derive(Debug)]
pub(super) struct Sites {
    ground: Ground,
    metres: f64,
    /// None where an image has no pixel of a point, nor one near enough.
    sites: Vec<Option<Site>>,
}

#[derive(Debug)]
struct Site {
    at: GroundPoint,
    /// The pixel that holds the point.
    own: Option<Pixel>,
    /// Windows with all pixels near enough: two where the image goes around the globe and the point lies at its seam.
    windows: Vec<Around>,
}

/// The pixels about a position of a point.
#[derive(Debug)]
struct Around {
    window: Window,
    plane: Option<GroundPlane>,
}

/// A valid pixel for a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    value: f64,
    /// Metres; 0 of the pixel that holds the point.
    distance: f64,
    is_own: bool,
    pixel: Pixel,
}

impl Sites {
    fn site(&self, world_to_pixel: &WorldToPixel, place: [f64; 2]) -> Option<Site> {
        let own = world_to_pixel.pixel(place).map(Pixel::of);
        let mut at = None;
        let mut windows: Vec<Around> = Vec::new();
        for position in world_to_pixel.positions(place) {
            at = at.or_else(|| self.ground.at(position));
            if let Some(window) = self.ground.window(position, self.metres)
                && windows.iter().all(|other| other.window != window)
            {
                let plane = self.ground.plane(position, &window);
                windows.push(Around { window, plane });
            }
        }
        let site = Site {
            at: at?,
            own,
            windows,
        };
        let is_near = |pixel: Pixel| {
            let Pixel { col, row } = pixel;
            let distance = self.ground.to_centre(&site.at, col, row);
            distance.is_some_and(|distance| distance <= self.metres)
        };
        // A window is a little larger than what is near enough.
        let mut pixels = site.windows.iter().flat_map(|one| pixels_of(&one.window));
        (own.is_some() || pixels.any(is_near)).then_some(site)
    }

    /// Returns the nearest valid pixels of a cell: all that may be the nearest, as far as a tie goes.
    fn search(&self, site: &Site, cell: &Cell, samples: &Samples) -> Vec<Found> {
        let valid = |Pixel { col, row }| {
            let (value, is_out) = samples.at(col, row)?;
            (!is_out && !value.is_nan()).then_some(value)
        };
        if let Some(own) = site.own
            && let Some(value) = valid(own)
        {
            return vec![Found {
                value,
                distance: 0.0,
                is_own: true,
                pixel: own,
            }];
        }
        let mut nearest: Vec<Found> = Vec::new();
        let mut least = self.metres;
        for Around { window, plane } in &site.windows {
            let Some(shared) = shared(window, &cell.window) else {
                continue;
            };
            for pixel in pixels_of(&shared) {
                let at_least = plane.map_or(0.0, |plane| plane.at_least(pixel.col, pixel.row));
                if at_least > least + TIE {
                    continue;
                }
                let Some(value) = valid(pixel) else { continue };
                let Some(distance) = self.ground.to_centre(&site.at, pixel.col, pixel.row) else {
                    continue;
                };
                if distance <= self.metres.min(least + TIE) {
                    least = least.min(distance);
                    nearest.push(Found {
                        value,
                        distance,
                        is_own: false,
                        pixel,
                    });
                }
            }
        }
        nearest.retain(|one| one.distance <= least + TIE);
        nearest
    }
}

/// Returns the pixels of a window, row by row.
fn pixels_of(window: &Window) -> impl Iterator<Item = Pixel> + use<> {
    let Window {
        col,
        row,
        width,
        height,
    } = *window;
    (row..row.saturating_add(height))
        .flat_map(move |row| (col..col.saturating_add(width)).map(move |col| Pixel { col, row }))
}

/// Returns the best of what the cells have for a point.
fn best(found: &[Found]) -> Option<&Found> {
    if let Some(own) = found.iter().find(|one| one.is_own) {
        return Some(own);
    }
    let least = found
        .iter()
        .map(|one| one.distance)
        .min_by(f64::total_cmp)?;
    let as_near = found.iter().filter(|one| one.distance <= least + TIE);
    as_near.min_by_key(|one| (one.pixel.row, one.pixel.col))
}

impl Shapes for Nearest {
    type Layout = Sites;
    type Part = Vec<(u32, Found)>;
    type Whole = Vec<(u32, Found)>;

    fn crs(&self) -> &Crs {
        self.points.crs()
    }

    fn area(&self) -> Area {
        Area::around(self.points.bbox().ok(), self.metres)
    }

    fn lay_out(
        &self,
        world_to_pixel: &WorldToPixel,
        tiles: Tiles,
    ) -> Result<(Self::Layout, Vec<Cell>)> {
        let mut needs = Needs::of(tiles);
        let mut laid = Sites {
            ground: Ground::new(world_to_pixel.grid())?,
            metres: self.metres,
            sites: Vec::new(),
        };
        for (place, number) in self.points.places().iter().zip(0_u32..) {
            let site = laid.site(world_to_pixel, *place);
            if let Some(site) = &site {
                let own = site.own.map(|Pixel { col, row }| Window {
                    col,
                    row,
                    width: 1,
                    height: 1,
                });
                for window in site.windows.iter().map(|one| one.window).chain(own) {
                    needs.add_window(window, number);
                }
            }
            laid.sites.push(site);
        }
        Ok((laid, needs.cells()))
    }

    fn bytes(&self, layout: &Self::Layout, _: usize) -> u64 {
        let each = size_of::<Option<Site>>() + size_of::<Around>() + size_of::<(u32, Found)>();
        (layout.sites.len() * each) as u64
    }

    fn bytes_per_pixel(&self) -> u64 {
        size_of::<(u32, Found)>() as u64
    }

    fn take(&self, layout: &Self::Layout, cell: &Cell, samples: &Samples) -> Self::Part {
        let mut taken = Vec::new();
        for &number in &cell.members {
            if let Some(Some(site)) = layout.sites.get(number as usize) {
                let found = layout.search(site, cell, samples);
                taken.extend(found.into_iter().map(|one| (number, one)));
            }
        }
        taken
    }

    fn add(&self, whole: &mut Self::Whole, part: Self::Part) {
        whole.extend(part);
    }

    fn rows(&self, layout: &Self::Layout, mut whole: Self::Whole) -> ShapeRows {
        // Stable: the pixels of a point stay in the order of the cells.
        whole.sort_by_key(|(number, _)| *number);
        let mut rows = ShapeRows::default();
        let mut rest = whole.as_slice();
        for (site, number) in layout.sites.iter().zip(0_u32..) {
            if site.is_none() {
                continue;
            }
            let count = rest.partition_point(|(of, _)| *of <= number);
            let (of_point, after) = rest.split_at(count);
            rest = after;
            let found: Vec<Found> = of_point.iter().map(|(_, one)| *one).collect();
            let (value, distance) = match best(&found) {
                Some(found) => (found.value, found.distance),
                None => (f64::NAN, f64::NAN),
            };
            rows.shapes.push(number);
            rows.numbers.extend([value, distance]);
        }
        rows
    }
}
