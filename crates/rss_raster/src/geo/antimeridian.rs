//! Splits shapes at longitude 180, as [RFC 7946 section
//! 3.1.9](https://www.rfc-editor.org/rfc/rfc7946#section-3.1.9) requires.
//!
//! A shape that crosses the antimeridian is first unwrapped: written with longitudes beyond 180, in one piece. The
//! split returns pieces that all lie within -180 to 180.

use ::geo::{Coord, LineString, MultiPolygon, Polygon};

/// Returns the same area as polygons that all lie within longitudes -180 to 180. Longitudes from -540 to 540 are
/// accepted; a polygon that needs no split is returned unchanged.
pub fn split(shape: &MultiPolygon<f64>) -> MultiPolygon<f64> {
    let mut pieces = Vec::new();
    for polygon in shape {
        let inside = |coord: &Coord<f64>| (-180.0..=180.0).contains(&coord.x);
        if polygon.exterior().coords().all(inside) {
            pieces.push(polygon.clone());
            continue;
        }
        for shift in [-360.0, 0.0, 360.0] {
            pieces.extend(clip(polygon, shift - 180.0, shift + 180.0, shift));
        }
    }
    MultiPolygon::new(pieces)
}

/// Unwraps polygons so that no side is 180 degrees or longer: a ring that jumps from 179 to -179 continues at
/// 181. A side of 360 degrees is left unchanged.
pub fn unwrap(shape: &MultiPolygon<f64>) -> MultiPolygon<f64> {
    shape
        .iter()
        .map(|polygon| {
            let exterior = unwrap_ring(polygon.exterior(), None);
            let start = exterior.coords().next().map(|coord| coord.x);
            let interiors = polygon
                .interiors()
                .iter()
                .map(|ring| unwrap_ring(ring, start))
                .collect();
            Polygon::new(exterior, interiors)
        })
        .collect()
}

/// Unwraps one ring, starting near the longitude `from`. A ring that is not closed after that (it encloses a
/// pole) is left unchanged.
fn unwrap_ring(ring: &LineString<f64>, from: Option<f64>) -> LineString<f64> {
    let mut before = from;
    let mut shift = 0.0;
    let mut unwrapped = Vec::with_capacity(ring.0.len());
    for coord in ring.coords() {
        // A side from -180 to 180 is the edge of a global map, not a jump.
        if let Some(before) = before
            && (180.0..360.0).contains(&(coord.x - before).abs())
        {
            shift += if coord.x < before { 360.0 } else { -360.0 };
        }
        unwrapped.push(Coord {
            x: coord.x + shift,
            y: coord.y,
        });
        before = Some(coord.x);
    }
    match (unwrapped.first(), unwrapped.last()) {
        (Some(first), Some(last)) if (first.x - last.x).abs() < 1.0 => LineString::new(unwrapped),
        _ => ring.clone(),
    }
}

/// Returns the part of a polygon between two longitudes, shifted by `-shift` degrees.
fn clip(polygon: &Polygon<f64>, west: f64, east: f64, shift: f64) -> Option<Polygon<f64>> {
    let part = |ring: &LineString<f64>| -> Option<LineString<f64>> {
        let mut points: Vec<Coord<f64>> = ring.coords().copied().collect();
        points.pop();
        let points = clip_line(&points, |x| x - west, west);
        let mut points = clip_line(&points, |x| east - x, east);
        for point in &mut points {
            point.x = (point.x - shift).clamp(-180.0, 180.0);
        }
        // A shape that only touches the clip line leaves a sliver without area, which is dropped.
        let wide = points
            .iter()
            .any(|a| points.iter().any(|b| (a.x - b.x).abs() > 1e-9));
        points.extend(points.first().copied());
        (wide && points.len() >= 4).then(|| LineString::new(points))
    };
    let exterior = part(polygon.exterior())?;
    let interiors = polygon.interiors().iter().filter_map(part).collect();
    Some(Polygon::new(exterior, interiors))
}

/// Clips a ring by one line (Sutherland and Hodgman): the part remains where `inside` of the longitude is not
/// negative.
fn clip_line(ring: &[Coord<f64>], inside: impl Fn(f64) -> f64, line: f64) -> Vec<Coord<f64>> {
    let mut clipped = Vec::with_capacity(ring.len() + 2);
    let mut before = match ring.last() {
        Some(last) => *last,
        None => return clipped,
    };
    for &point in ring {
        let (a, b) = (inside(before.x), inside(point.x));
        if (a < 0.0) != (b < 0.0) {
            let along = a / (a - b);
            clipped.push(Coord {
                x: line,
                y: before.y + (point.y - before.y) * along,
            });
        }
        if b >= 0.0 {
            clipped.push(point);
        }
        before = point;
    }
    clipped
}

#[cfg(test)]
mod tests {
    use ::geo::{Area, BoundingRect};
    use proptest::prelude::*;

    use super::*;

    fn rectangle(west: f64, south: f64, east: f64, north: f64) -> MultiPolygon<f64> {
        MultiPolygon::new(vec![
            ::geo::Rect::new((west, south), (east, north)).to_polygon(),
        ])
    }

    #[test]
    fn a_shape_that_does_not_cross_is_left_alone() {
        let shape = rectangle(170.0, -10.0, 180.0, 10.0);
        assert_eq!(split(&shape), shape);
    }

    #[test]
    fn a_jump_across_the_antimeridian_is_a_short_step() {
        let jump = ::geo::Rect::new((-179.0, -18.0), (179.0, -17.0)).to_polygon();
        let world = ::geo::Rect::new((-180.0, -90.0), (180.0, 90.0)).to_polygon();
        let area = |polygon: Polygon<f64>| {
            split(&unwrap(&MultiPolygon::new(vec![polygon]))).unsigned_area()
        };
        assert!((area(jump) - 2.0).abs() < 1e-9);
        assert!((area(world) - 360.0 * 180.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_pieces_have_the_area_of_the_whole_and_lie_on_the_globe(
            west in -540.0..400.0_f64,
            width in 0.1..100.0_f64,
            south in -90.0..80.0_f64,
            height in 0.1..10.0_f64,
        ) {
            let whole = rectangle(west, south, west + width, south + height);
            let pieces = split(&whole);
            prop_assert!((pieces.unsigned_area() - whole.unsigned_area()).abs() < 1e-6);
            let bounds = pieces.bounding_rect().unwrap();
            prop_assert!(bounds.min().x >= -180.0 && bounds.max().x <= 180.0);
        }
    }
}
