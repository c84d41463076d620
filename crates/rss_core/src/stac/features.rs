//! The features of a page, read one at a time.
//!
//! A page parsed as a whole takes up to fifty times its bytes: a JSON value is 32 bytes, and `0,` is two. Here a feature
//! becomes an item before the next one is read, and what cannot be read is counted, not kept.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use stac::Item;

use super::lenient::{Skipped, id_of, item};

/// What is kept of the items and assets of one page that could not be read; of the rest the number.
const MOST_SKIPPED: usize = 1000;

/// A JSON text.
pub(super) enum Parsed {
    /// An object without its member `features`, and the items in that. A bare list of items is one too.
    Object(Map<String, Value>, Features),
    /// Other JSON.
    Other,
}

/// The items of a page.
#[derive(Default)]
pub(super) struct Features {
    pub(super) items: Vec<Item>,
    pub(super) skipped: Left,
    /// True if the document has such a member.
    pub(super) is_there: bool,
    /// True if the document is a list of items: that is not STAC, but tools write it.
    pub(super) is_bare: bool,
    /// The limit on the number of items.
    most: usize,
    /// True if there are more.
    pub(super) is_over: bool,
}

/// What could not be read.
#[derive(Default)]
pub(super) struct Left {
    kept: Vec<Skipped>,
    more: usize,
}

impl Extend<Skipped> for Left {
    fn extend<T: IntoIterator<Item = Skipped>>(&mut self, them: T) {
        for one in them {
            match self.kept.len() < MOST_SKIPPED {
                true => self.kept.push(one),
                false => self.more += 1,
            }
        }
    }
}

impl Left {
    /// Returns the list; its last entry is the number of those that are not in it.
    pub(super) fn into_list(mut self) -> Vec<Skipped> {
        if self.more > 0 {
            self.kept.push(Skipped {
                item: String::new(),
                asset: None,
                reason: format!("{} more items or assets that cannot be read", self.more),
            });
        }
        self.kept
    }
}

impl Features {
    fn of(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    fn add(&mut self, feature: Value) {
        if self.items.len() >= self.most {
            self.is_over = true;
            return;
        }
        let read = match feature {
            Value::Object(feature) => {
                let id = id_of(&feature);
                item(feature, &mut self.skipped).map_err(|reason| (id, reason))
            }
            _ => Err((String::new(), "a feature that is not an object".to_owned())),
        };
        match read {
            Ok(item) => self.items.push(item),
            Err((item, reason)) => self.skipped.extend([Skipped {
                item,
                asset: None,
                reason,
            }]),
        }
    }
}

/// Parses a JSON text, and keeps at most so many items of it.
pub(super) fn parse(text: &str, most: usize) -> serde_json::Result<Parsed> {
    let mut from = serde_json::Deserializer::from_str(text);
    let parsed = from.deserialize_any(Root { most })?;
    from.end()?;
    Ok(parsed)
}

struct Root {
    most: usize,
}

impl<'de> Visitor<'de> for Root {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a STAC document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parsed, A::Error> {
        let (mut object, mut features) = (Map::new(), Features::of(self.most));
        while let Some(name) = members.next_key::<String>()? {
            if name == "features" {
                features.is_there = true;
                members.next_value_seed(&mut features)?;
            } else {
                object.insert(name, members.next_value()?);
            }
        }
        Ok(Parsed::Object(object, features))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parsed, A::Error> {
        let mut features = Features::of(self.most);
        while let Some(one) = list.next_element::<Value>()? {
            if one.get("type").and_then(Value::as_str) != Some("Feature") {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Parsed::Other);
            }
            features.is_bare = true;
            features.add(one);
        }
        Ok(match features.is_bare {
            true => Parsed::Object(Map::new(), features),
            false => Parsed::Other,
        })
    }

    fn visit_bool<E>(self, _: bool) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Other)
    }
}

/// Reads the member `features`; one that is no list has none.
impl<'de> DeserializeSeed<'de> for &mut Features {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Features {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(feature) = list.next_element()? {
            self.add(feature);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_counted_not_kept() {
        let text = format!("{{\"features\":[{}0]}}", "0,".repeat(4999));
        let Parsed::Object(_, features) = parse(&text, usize::MAX).unwrap() else {
            panic!("an object");
        };
        let skipped = features.skipped.into_list();
        assert_eq!(skipped.len(), MOST_SKIPPED + 1);
        let last = skipped.last().unwrap();
        assert_eq!(last.reason, "4000 more items or assets that cannot be read");
    }

    #[test]
    fn no_more_items_are_kept_than_asked_for() {
        let text = format!("[{}]", ["{\"type\":\"Feature\",\"id\":1}"; 5].join(","));
        let kept = |most| match parse(&text, most).unwrap() {
            Parsed::Object(_, features) => (features.items.len(), features.is_over),
            Parsed::Other => panic!("a list of items"),
        };
        assert_eq!((kept(5), kept(4)), ((5, false), (4, true)));
    }

    #[test]
    fn features_that_are_no_list_are_none() {
        for odd in ["7", "-7", "0.5", "null", "true", "\"x\"", "{\"a\": [1]}"] {
            let text = format!("{{\"features\": {odd}, \"id\": 1}}");
            let Parsed::Object(object, features) = parse(&text, usize::MAX).unwrap() else {
                panic!("an object");
            };
            assert!(features.is_there && features.items.is_empty(), "{odd}");
            assert_eq!(object.len(), 1);
        }
    }
}
