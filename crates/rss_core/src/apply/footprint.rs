//! Which images may lie in a part of a grid, by what their items state: a file that touches nothing is not opened.
//!
//! Items are wrong now and then, so an image is passed over only if two statements agree that it lies elsewhere: the
//! bbox of the item, and the grids of all of its files (`proj:shape`, `proj:transform` and a CRS). Both are enlarged, as
//! bboxes are rounded, or of the valid pixels only.

use std::sync::OnceLock;

use stac::Item;

use crate::geo::{Bbox, GeoBox, Window};

/// How far all boxes are enlarged on each side: degrees, and a share of their own side.
const MARGIN_DEGREES: f64 = 0.01;
const MARGIN_SHARE: f64 = 0.02;
/// How far a part of a grid is enlarged, in its pixels: kernels reach beyond a pixel.
const REACH_PIXELS: f64 = 8.0;

/// Whether an image may have pixels in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touches {
    /// All that its item states says that it lies elsewhere.
    No,
    /// The item's bbox says so, but not where its files lie: only their headers tell.
    Doubtful,
    Yes,
}

/// A part of the globe; none where it cannot be told in degrees, which everything may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area(Option<Bbox>);

impl Area {
    /// Returns the area of a window of a grid.
    pub(super) fn of_window(grid: &GeoBox, window: &Window) -> Self {
        let bbox = grid.of_window(window).bbox().ok();
        let pixels = f64::from(window.width.min(window.height).max(1));
        Self(bbox.and_then(|bbox| grown(&bbox, REACH_PIXELS / pixels)))
    }

    /// Returns a bbox with what lies within so many metres of it.
    pub(super) fn around(bbox: Option<Bbox>, metres: f64) -> Self {
        // A degree of latitude has at least 110.5 km; one of longitude less by the cosine of the latitude.
        let reach = |bbox: &Bbox| {
            let [west, south, east, north] = bbox.edges();
            let degrees = metres / 110_500.0;
            let lat = (south.abs().max(north.abs()) + degrees).min(90.0);
            let across = degrees / lat.to_radians().cos().max(1e-6);
            widened([west, south, east, north], across, degrees)
        };
        Self(bbox.as_ref().and_then(reach))
    }
}

/// Where an item says that it and its files lie.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    /// That of the item, enlarged.
    bbox: Option<Bbox>,
    /// The distinct grids that its files have by the catalogue; none if it does not state all of them.
    grids: Option<Vec<GeoBox>>,
    /// Their boxes, enlarged; none if one cannot be told.
    boxes: OnceLock<Option<Vec<Bbox>>>,
}

impl Footprint {
    pub(super) fn of<'a>(item: &Item, stated: impl Iterator<Item = Option<&'a GeoBox>>) -> Self {
        let mut grids = Some(Vec::new());
        for one in stated {
            match (one, &mut grids) {
                (None, _) => grids = None,
                (Some(grid), Some(all)) if !all.contains(grid) => all.push(grid.clone()),
                (Some(_), _) => {}
            }
        }
        Self {
            bbox: bbox_of(item).and_then(|bbox| grown(&bbox, MARGIN_SHARE)),
            grids,
            boxes: OnceLock::new(),
        }
    }

    pub(super) fn touches(&self, area: &Area) -> Touches {
        let (Some(area), Some(bbox)) = (&area.0, &self.bbox) else {
            return Touches::Yes;
        };
        if bbox.intersects(area) {
            return Touches::Yes;
        }
        let Some(grids) = &self.grids else {
            return Touches::Doubtful;
        };
        let boxes = self.boxes.get_or_init(|| {
            let boxes = grids.iter().map(|grid| {
                let bbox = grid.bbox().ok()?;
                grown(&bbox, MARGIN_SHARE)
            });
            boxes.collect()
        });
        match boxes {
            Some(boxes) if !boxes.iter().any(|bbox| bbox.intersects(area)) => Touches::No,
            _ => Touches::Yes,
        }
    }
}

fn bbox_of(item: &Item) -> Option<Bbox> {
    let [west, south, east, north] = match item.bbox? {
        stac::Bbox::TwoDimensional(edges) => edges,
        stac::Bbox::ThreeDimensional([west, south, _, east, north, _]) => {
            [west, south, east, north]
        }
    };
    Bbox::new(west, south, east, north).ok()
}

/// Returns a bbox enlarged by a share of its sides, and by [`MARGIN_DEGREES`]; none if that goes round the globe.
fn grown(bbox: &Bbox, share: f64) -> Option<Bbox> {
    let [west, south, east, north] = bbox.edges();
    let width = match bbox.crosses_antimeridian() {
        true => east - west + 360.0,
        false => east - west,
    };
    let across = width * share + MARGIN_DEGREES;
    let along = (north - south) * share + MARGIN_DEGREES;
    widened([west, south, east, north], across, along)
}

/// Returns a bbox with so many degrees more on each side; none if that goes round the globe.
fn widened([west, south, east, north]: [f64; 4], across: f64, along: f64) -> Option<Bbox> {
    let width = match west > east {
        true => east - west + 360.0,
        false => east - west,
    };
    if width + 2.0 * across >= 360.0 {
        return None;
    }
    let on_globe = |lon: f64| match (-180.0..=180.0).contains(&lon) {
        true => lon,
        false => (lon + 180.0).rem_euclid(360.0) - 180.0,
    };
    let (south, north) = ((south - along).max(-90.0), (north + along).min(90.0));
    Bbox::new(
        on_globe(west - across),
        south,
        on_globe(east + across),
        north,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Crs, GeoTransform, Size};

    fn item(bbox: [f64; 4]) -> Item {
        let mut item = Item::new("a");
        item.bbox = Some(stac::Bbox::TwoDimensional(bbox));
        item
    }

    fn grid(x: f64, y: f64) -> GeoBox {
        GeoBox {
            size: Size {
                width: 100,
                height: 100,
            },
            crs: Some(Crs::Epsg(32756)),
            transform: Some(GeoTransform([x, 10.0, 0.0, y, 0.0, -10.0])),
        }
    }

    #[test]
    fn an_image_is_passed_over_only_if_its_bbox_and_its_grids_lie_elsewhere() {
        let here = grid(500_000.0, 7_000_000.0);
        let there = grid(684_000.0, 6_672_000.0);
        let area = Area::of_window(&here, &Window::whole(here.size));
        let of = |grid: &GeoBox, stated: &[Option<&GeoBox>]| {
            let footprint =
                Footprint::of(&item(grid.bbox().unwrap().edges()), stated.iter().copied());
            footprint.touches(&area)
        };
        assert_eq!(of(&here, &[Some(&here)]), Touches::Yes);
        assert_eq!(of(&there, &[Some(&there)]), Touches::No);
        assert_eq!(of(&there, &[Some(&there), Some(&here)]), Touches::Yes);
        assert_eq!(of(&there, &[Some(&there), None]), Touches::Doubtful);
        assert_eq!(of(&here, &[Some(&there)]), Touches::Yes);
        let mut bare = item([0.0; 4]);
        bare.bbox = None;
        let footprint = Footprint::of(&bare, [Some(&there)].into_iter());
        assert_eq!(footprint.touches(&area), Touches::Yes);
    }

    #[test]
    fn a_neighbour_touches_and_so_does_what_lies_across_the_antimeridian() {
        let here = grid(500_000.0, 7_000_000.0);
        let area = Area::of_window(&here, &Window::whole(here.size));
        let next = grid(501_000.0, 7_000_000.0);
        let footprint = Footprint::of(
            &item(next.bbox().unwrap().edges()),
            [Some(&next)].into_iter(),
        );
        assert_eq!(footprint.touches(&area), Touches::Yes);

        let across = Bbox::new(179.995, -17.0, -179.9, -16.0).unwrap();
        let area = Area::around(Some(across), 0.0);
        let west = Footprint::of(&item([179.0, -17.0, 179.99, -16.0]), [None].into_iter());
        assert_eq!(west.touches(&area), Touches::Yes);
        let far = Footprint::of(&item([170.0, -17.0, 171.0, -16.0]), [None].into_iter());
        assert_eq!(far.touches(&area), Touches::Doubtful);
        let near = Area::around(Some(across), 1_100_000.0);
        assert_eq!(far.touches(&near), Touches::Yes);
    }
}
