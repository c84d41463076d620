//! A scene id: a Sentinel-2 tile or a Landsat path and row, and the properties in which items state it.

use std::{fmt, str::FromStr};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind, Result};

/// The id of a scene, parsed from the spelling of any provider.
///
/// ```
/// use rss_core::Scene;
///
/// assert_eq!("T56jns".parse::<Scene>()?.to_string(), "56JNS");
/// assert_eq!("90/84".parse::<Scene>()?, Scene::Wrs { path: 90, row: 84 });
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scene {
    /// A tile of the Military Grid Reference System: UTM zone, latitude band, 100 km square, such as `56JNS`.
    Mgrs(String),
    /// A path and a row of the [WRS-2](https://landsat.gsfc.nasa.gov/about/the-worldwide-reference-system/).
    Wrs {
        /// The path, 1 to 233.
        path: u16,
        /// The row, 1 to 248.
        row: u16,
    },
}

impl FromStr for Scene {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "scene `{text}` is neither a Sentinel-2 tile such as 56JNS nor a Landsat path \
                     and row such as 090084"
                ),
            )
        };
        let upper = text.trim().to_ascii_uppercase();
        let id = upper
            .strip_prefix("MGRS-")
            .or_else(|| upper.strip_prefix("WRS2-"))
            .unwrap_or(&upper);
        if let Some(wrs) = wrs(id) {
            return wrs.ok_or_else(wrong);
        }
        // Tile ids in the names of Sentinel-2 products start with T.
        let id = id.strip_prefix('T').unwrap_or(id);
        let letters = id.trim_start_matches(|c: char| c.is_ascii_digit());
        let zone = id.get(..id.len() - letters.len()).unwrap_or_default();
        let number: u8 = zone.parse().map_err(|_| wrong())?;
        let fits = zone.len() <= 2
            && (1..=60).contains(&number)
            && letters.len() == 3
            && letters
                .chars()
                .all(|c| c.is_ascii_uppercase() && c != 'I' && c != 'O');
        if !fits {
            return Err(wrong());
        }
        Ok(Self::Mgrs(format!("{number:02}{letters}")))
    }
}

/// Parses `090084`, `90/84`, `090_084`, `90,84`. The outer none means another format, the inner none a number out
/// of range.
fn wrs(id: &str) -> Option<Option<Scene>> {
    let (path, row) = match id.split_once(['/', '_', ',', '-']) {
        Some(pair) => pair,
        None if id.len() == 6 && id.is_ascii() => id.split_at(3),
        None => return None,
    };
    let (path, row) = (path.parse().ok()?, row.parse().ok()?);
    let valid = (1..=233).contains(&path) && (1..=248).contains(&row);
    Some(valid.then_some(Scene::Wrs { path, row }))
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mgrs(tile) => f.write_str(tile),
            Self::Wrs { path, row } => write!(f, "{path:03}{row:03}"),
        }
    }
}

/// The grid of a product's scenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Grid {
    Mgrs,
    Wrs,
}

/// The properties in which items of a product state their scene.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SceneRule {
    grid: Grid,
    /// An item of the scene has all of them.
    properties: Vec<SceneProperty>,
}

/// One property and its value, with `{tile}`, `{path}` or `{row}` in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct SceneProperty {
    name: String,
    value: String,
    /// True if the property is a number.
    #[serde(default)]
    number: bool,
}

impl SceneRule {
    /// Returns the properties that items of a scene have, and their values.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the product uses the other grid.
    pub fn properties(&self, scene: &Scene) -> Result<Vec<(String, Value)>> {
        let fill = |template: &str| match (self.grid, scene) {
            (Grid::Mgrs, Scene::Mgrs(tile)) => Some(template.replace("{tile}", tile)),
            (Grid::Wrs, Scene::Wrs { path, row }) => Some(
                template
                    .replace("{path}", &format!("{path:03}"))
                    .replace("{row}", &format!("{row:03}")),
            ),
            _ => None,
        };
        self.properties
            .iter()
            .map(|property| {
                let text = fill(&property.value).ok_or_else(|| self.other_grid(scene))?;
                let value = match text.parse::<u32>() {
                    Ok(number) if property.number => json!(number),
                    _ => json!(text),
                };
                Ok((property.name.clone(), value))
            })
            .collect()
    }

    /// Returns true if an item's properties state this scene; none if they state no scene.
    pub fn matches(&self, scene: &Scene, properties: &Map<String, Value>) -> Option<bool> {
        let wanted = self.properties(scene).ok()?;
        let mut all = true;
        for (name, value) in wanted {
            let stated = properties.get(&name).filter(|value| !value.is_null())?;
            all &= same(stated, &value);
        }
        Some(all)
    }

    fn other_grid(&self, scene: &Scene) -> Error {
        let expected = match self.grid {
            Grid::Mgrs => "a Sentinel-2 tile such as 56JNS",
            Grid::Wrs => "a Landsat path and row such as 090084",
        };
        Error::new(
            ErrorKind::InvalidInput,
            format!("scene `{scene}` does not fit this collection; expected {expected}"),
        )
    }
}

/// Compares values that may be written as a number or as a string with leading zeros.
fn same(stated: &Value, wanted: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => text.to_ascii_uppercase(),
        other => other.to_string(),
    };
    let (stated, wanted) = (text(stated), text(wanted));
    // The numeric comparison ignores leading zeros: `090` and 90 are the same path.
    stated == wanted
        || match (stated.parse::<u64>(), wanted.parse::<u64>()) {
            (Ok(stated), Ok(wanted)) => stated == wanted,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_scene_is_read() {
        for (text, expected) in [
            ("56jns", "56JNS"),
            ("T56JNS", "56JNS"),
            ("MGRS-56JNS", "56JNS"),
            ("4QFJ", "04QFJ"),
            ("090084", "090084"),
            ("90_84", "090084"),
            ("WRS2-033032", "033032"),
        ] {
            assert_eq!(text.parse::<Scene>().unwrap().to_string(), expected);
        }
        for text in [
            "", "56", "99JNS", "56JIS", "56JN", "0/84", "234001", "abc", "56JNSX", "é56",
        ] {
            assert!(text.parse::<Scene>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_scene_of_the_other_grid_is_refused() {
        let rule = SceneRule {
            grid: Grid::Wrs,
            properties: vec![SceneProperty {
                name: "landsat:wrs_path".to_owned(),
                value: "{path}".to_owned(),
                number: false,
            }],
        };
        let err = rule
            .properties(&Scene::Mgrs("56JNS".to_owned()))
            .unwrap_err();
        assert!(err.to_string().contains("path and row"), "{err}");
    }

    #[test]
    fn a_path_is_the_same_as_number_and_as_padded_text() {
        assert!(same(&json!(33), &json!("033")));
        assert!(same(&json!("033"), &json!(33)));
        assert!(!same(&json!("034"), &json!(33)));
    }
}
