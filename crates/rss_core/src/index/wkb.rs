//! Geometries as well-known binary, the encoding of GeoParquet. No IO.
//!
//! See [OGC 06-103r4](https://www.ogc.org/standards/sfa/), section 8. Numbers are little-endian; the
//! third coordinate is written if every position has one, since WKB has one dimension for all.

use serde_json::{Value, json};

/// Names of geometries by their code, from 1.
const NAMES: [&str; 7] = [
    "Point",
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
    "GeometryCollection",
];
/// The offset of the code of a geometry with a third coordinate (ISO WKB).
const WITH_Z: u32 = 1000;
/// The deepest nesting of collections: recursion on data from a catalogue must be bounded.
const DEEPEST: usize = 16;
/// Positions of a ring: the first one is the last, too.
const SHORTEST_RING: usize = 4;

/// Returns a GeoJSON geometry as WKB; none if it is invalid or empty. Rings that are open or have fewer than four positions,
/// and lines of one, are invalid: readers of GeoParquet refuse the whole file for one of them.
pub(super) fn encode(geometry: &Value) -> Option<Vec<u8>> {
    let dimensions = if has_z(geometry, DEEPEST)? { 3 } else { 2 };
    let mut out = Vec::new();
    put(geometry, dimensions, DEEPEST, &mut out)?;
    Some(out)
}

/// Returns the GeoParquet name of a geometry's type, such as `Polygon Z`.
pub(super) fn name(wkb: &[u8]) -> Option<String> {
    let (order, rest) = wkb.split_first()?;
    let code = <[u8; 4]>::try_from(rest.get(..4)?).ok()?;
    let code = match order {
        0 => u32::from_be_bytes(code),
        _ => u32::from_le_bytes(code),
    };
    let number = usize::try_from(code % WITH_Z).ok()?;
    let name = NAMES.get(number.checked_sub(1)?)?;
    match code / WITH_Z {
        0 => Some((*name).to_owned()),
        1 => Some(format!("{name} Z")),
        _ => None,
    }
}

/// Returns WKB as a GeoJSON geometry; none if it is no geometry, is nested too deeply, or is cut off. Of PostGIS' extended
/// form the dimensions are understood; measures are left out.
pub(super) fn decode(wkb: &[u8]) -> Option<Value> {
    Reader(wkb).geometry(DEEPEST)
}

/// What is left of a geometry to decode.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self, is_big: bool) -> Option<u32> {
        let bytes = self.take::<4>()?;
        Some(match is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    fn geometry(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        let is_big = self.take::<1>()? == [0];
        let code = self.number(is_big)?;
        // ISO adds thousands, PostGIS sets the highest bits.
        let (thousands, base) = ((code & 0xffff) / WITH_Z, (code & 0xffff) % WITH_Z);
        let has_z = matches!(thousands, 1 | 3) || code & 0x8000_0000 != 0;
        let has_m = matches!(thousands, 2 | 3) || code & 0x4000_0000 != 0;
        if code & 0x2000_0000 != 0 {
            self.number(is_big)?;
        }
        let form = Form {
            is_big,
            kept: 2 + usize::from(has_z),
            left_out: usize::from(has_m),
        };
        let name = *NAMES.get(usize::try_from(base).ok()?.checked_sub(1)?)?;
        let coordinates = match base {
            1 => self.position(form)?,
            2 => self.line(form)?,
            3 => {
                let rings = self.number(is_big)?;
                (0..rings)
                    .map(|_| self.line(form))
                    .collect::<Option<Value>>()?
            }
            4..=6 => {
                let parts = self.number(is_big)?;
                let part = |_| Some(self.geometry(depth)?.get_mut("coordinates")?.take());
                (0..parts).map(part).collect::<Option<Value>>()?
            }
            _ => {
                let parts = self.number(is_big)?;
                let parts = (0..parts).map(|_| self.geometry(depth));
                let parts = parts.collect::<Option<Value>>()?;
                return Some(json!({"type": name, "geometries": parts}));
            }
        };
        Some(json!({"type": name, "coordinates": coordinates}))
    }

    fn line(&mut self, form: Form) -> Option<Value> {
        let points = self.number(form.is_big)?;
        (0..points).map(|_| self.position(form)).collect()
    }

    fn position(&mut self, form: Form) -> Option<Value> {
        let mut all = Vec::with_capacity(form.kept);
        for number in 0..form.kept + form.left_out {
            let bytes = self.take::<8>()?;
            let value = match form.is_big {
                true => f64::from_be_bytes(bytes),
                false => f64::from_le_bytes(bytes),
            };
            // An empty point is NaN.
            if number < form.kept {
                all.push(value.is_finite().then(|| value.into())?);
            }
        }
        Some(Value::Array(all))
    }
}

/// How positions are written.
#[derive(Clone, Copy)]
struct Form {
    is_big: bool,
    /// Numbers of a position that GeoJSON has, and those that it has not.
    kept: usize,
    left_out: usize,
}

fn code(geometry: &Value) -> Option<u32> {
    let name = geometry.get("type")?.as_str()?;
    let index = NAMES.iter().position(|known| *known == name)?;
    u32::try_from(index + 1).ok()
}

/// Returns true if every position has a third coordinate; none if there is no position at all.
fn has_z(geometry: &Value, depth: usize) -> Option<bool> {
    fn positions(value: &Value) -> Option<bool> {
        let list = value.as_array()?;
        if list.first()?.is_number() {
            return Some(list.len() >= 3);
        }
        let mut all = None;
        for part in list {
            all = Some(all.unwrap_or(true) & positions(part)?);
        }
        all
    }
    let depth = depth.checked_sub(1)?;
    match geometry.get("geometries") {
        Some(list) => {
            let mut all = None;
            for part in list.as_array()? {
                all = Some(all.unwrap_or(true) & has_z(part, depth)?);
            }
            all
        }
        None => positions(geometry.get("coordinates")?),
    }
}

fn put(geometry: &Value, dimensions: usize, depth: usize, out: &mut Vec<u8>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let code = code(geometry)?;
    head(code, dimensions, out);
    let coordinates = || geometry.get("coordinates")?.as_array();
    match code {
        1 => position(geometry.get("coordinates")?, dimensions, out),
        2 => line(coordinates()?, dimensions, out),
        3 => rings(coordinates()?, dimensions, out),
        4..=6 => {
            let parts = coordinates()?;
            count(parts, out)?;
            for part in parts {
                head(code - 3, dimensions, out);
                match code {
                    4 => position(part, dimensions, out)?,
                    5 => line(part.as_array()?, dimensions, out)?,
                    _ => rings(part.as_array()?, dimensions, out)?,
                }
            }
            Some(())
        }
        _ => {
            let parts = geometry.get("geometries")?.as_array()?;
            count(parts, out)?;
            parts
                .iter()
                .try_for_each(|part| put(part, dimensions, depth, out))
        }
    }
}

fn head(code: u32, dimensions: usize, out: &mut Vec<u8>) {
    let code = if dimensions == 3 { code + WITH_Z } else { code };
    out.push(1);
    out.extend_from_slice(&code.to_le_bytes());
}

fn count(list: &[Value], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(&u32::try_from(list.len()).ok()?.to_le_bytes());
    Some(())
}

fn rings(rings: &[Value], dimensions: usize, out: &mut Vec<u8>) -> Option<()> {
    count(rings, out)?;
    rings.iter().try_for_each(|ring| {
        let ring = ring.as_array()?;
        // Closed in the plane: a height at its end may be another one.
        let start = |point: &Value| Some([point.get(0)?.as_f64()?, point.get(1)?.as_f64()?]);
        let is_closed = start(ring.first()?)? == start(ring.last()?)?;
        (ring.len() >= SHORTEST_RING && is_closed).then_some(())?;
        line(ring, dimensions, out)
    })
}

fn line(points: &[Value], dimensions: usize, out: &mut Vec<u8>) -> Option<()> {
    (points.len() >= 2).then_some(())?;
    count(points, out)?;
    points
        .iter()
        .try_for_each(|point| position(point, dimensions, out))
}

fn position(point: &Value, dimensions: usize, out: &mut Vec<u8>) -> Option<()> {
    for number in point.as_array()?.get(..dimensions)? {
        out.extend_from_slice(&number.as_f64()?.to_le_bytes());
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        crate::store::hex(bytes)
    }

    #[test]
    fn geometries_are_those_of_the_specification() {
        // As PostGIS' ST_AsBinary writes them.
        let point = encode(&json!({"type": "Point", "coordinates": [1, 2]})).unwrap();
        assert_eq!(hex(&point), "0101000000000000000000f03f0000000000000040");
        let line = json!({"type": "LineString", "coordinates": [[0, 0, 5], [1, 1, 6]]});
        let line = encode(&line).unwrap();
        assert_eq!(
            hex(&line),
            "01ea03000002000000000000000000000000000000000000000000000000001440\
             000000000000f03f000000000000f03f0000000000001840"
                .replace(' ', "")
        );
        let ring = json!([[0, 0], [1, 0], [1, 1], [0, 0]]);
        let polygon = encode(&json!({"type": "Polygon", "coordinates": [ring]})).unwrap();
        assert_eq!(polygon.len(), 5 + 4 + 4 + 4 * 16);
        let many = json!({"type": "MultiPolygon", "coordinates": [[ring], [ring]]});
        let many = encode(&many).unwrap();
        assert_eq!(many.len(), 5 + 4 + 2 * polygon.len());
        for (wkb, expected) in [
            (&point, "Point"),
            (&line, "LineString Z"),
            (&polygon, "Polygon"),
            (&many, "MultiPolygon"),
        ] {
            assert_eq!(name(wkb).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let ring = json!([[0.0, 0.5], [1.0, 0.0], [1.0, 1.0], [0.0, 0.5]]);
        let point = json!({"type": "Point", "coordinates": [1.0, 2.0]});
        for geometry in [
            point.clone(),
            json!({"type": "LineString", "coordinates": [[0.0, 0.0, 5.0], [1.0, 1.0, 6.0]]}),
            json!({"type": "Polygon", "coordinates": [ring, ring]}),
            json!({"type": "MultiPoint", "coordinates": [[1.0, 2.0], [3.0, 4.0]]}),
            json!({"type": "MultiLineString", "coordinates": [[[0.0, 0.0], [1.0, 1.0]]]}),
            json!({"type": "MultiPolygon", "coordinates": [[ring], [ring]]}),
            json!({"type": "GeometryCollection", "geometries": [point, point]}),
        ] {
            let wkb = encode(&geometry).unwrap();
            assert_eq!(decode(&wkb), Some(geometry));
            for end in 0..wkb.len() {
                assert_eq!(decode(&wkb[..end]), None);
            }
        }
        // Big-endian, with a measure (ISO), and with an SRID (PostGIS).
        let mut wkb = vec![0, 0, 0, 0x07, 0xd1];
        [1.0, 2.0, 9.0]
            .iter()
            .for_each(|one: &f64| wkb.extend(one.to_be_bytes()));
        assert_eq!(decode(&wkb), Some(point.clone()));
        let mut wkb = vec![1, 1, 0, 0, 0x20, 0xe6, 0x10, 0, 0];
        [1.0, 2.0]
            .iter()
            .for_each(|one: &f64| wkb.extend(one.to_le_bytes()));
        assert_eq!(decode(&wkb), Some(point));
        // A count that nothing follows takes no memory.
        assert_eq!(decode(&[1, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn what_is_no_geometry_is_none() {
        let mut deep = json!({"type": "Point", "coordinates": [1, 2]});
        for _ in 0..100 {
            deep = json!({"type": "GeometryCollection", "geometries": [deep]});
        }
        for geometry in [
            json!(null),
            json!({}),
            json!({"type": "Point"}),
            json!({"type": "Point", "coordinates": []}),
            json!({"type": "Point", "coordinates": ["x", 1]}),
            json!({"type": "Polygon", "coordinates": [[1, 2]]}),
            json!({"type": "Polygon", "coordinates": []}),
            json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}),
            json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]}),
            json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}),
            json!({"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 1]]]]}),
            json!({"type": "LineString", "coordinates": [[0, 0]]}),
            json!({"type": "Circle", "coordinates": [1, 2]}),
            deep,
        ] {
            assert_eq!(encode(&geometry), None, "{geometry}");
        }
        assert_eq!(name(&[1, 2]), None);
    }
}
