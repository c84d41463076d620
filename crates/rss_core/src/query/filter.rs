//! Conditions on item properties, and their encoding in each filter language.

use std::{cmp::Ordering, fmt, str::FromStr};

use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorKind, Result};

/// A comparison of a property with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmp {
    /// `<`
    Less,
    /// `<=`
    LessEq,
    /// `>`
    Greater,
    /// `>=`
    GreaterEq,
    /// `=`
    Eq,
}

impl Cmp {
    fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessEq => "<=",
            Self::Greater => ">",
            Self::GreaterEq => ">=",
            Self::Eq => "=",
        }
    }

    /// Returns the operator of the STAC `query` extension.
    fn word(self) -> &'static str {
        match self {
            Self::Less => "lt",
            Self::LessEq => "lte",
            Self::Greater => "gt",
            Self::GreaterEq => "gte",
            Self::Eq => "eq",
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessEq => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterEq => ordering.is_ge(),
            Self::Eq => ordering.is_eq(),
        }
    }
}

impl fmt::Display for Cmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}

impl FromStr for Cmp {
    type Err = Error;

    /// Parses `<`, `<=`, `>`, `>=`, `=`, or `lt`, `lte`, `gt`, `gte`, `eq`.
    fn from_str(text: &str) -> Result<Self> {
        [
            Self::Less,
            Self::LessEq,
            Self::Greater,
            Self::GreaterEq,
            Self::Eq,
        ]
        .into_iter()
        .find(|cmp| cmp.sign() == text || cmp.word() == text)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "comparison `{}` is not one of <, <=, >, >=, =",
                    text.escape_debug()
                ),
            )
        })
    }
}

/// The filter languages of STAC APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// CQL2 as JSON, in `filter`.
    /// See <https://github.com/stac-api-extensions/filter>.
    Cql2,
    /// The `query` extension. See <https://github.com/stac-api-extensions/query>.
    Query,
}

/// One condition: a property compared with a value, or with any of several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    property: String,
    cmp: Cmp,
    /// At least one; several with [`Cmp::Eq`] only.
    values: Vec<Value>,
}

impl Condition {
    pub(super) fn new(property: impl Into<String>, cmp: Cmp, value: Value) -> Self {
        Self {
            property: property.into(),
            cmp,
            values: vec![value],
        }
    }

    /// Creates the condition that the property equals one of the values.
    pub(super) fn any_of(property: impl Into<String>, values: Vec<Value>) -> Self {
        Self {
            property: property.into(),
            cmp: Cmp::Eq,
            values,
        }
    }

    /// Checks that the value can be compared.
    pub(super) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if self.property.is_empty() {
            return invalid("a property without a name".to_owned());
        }
        for value in &self.values {
            match value {
                Value::Number(_) | Value::String(_) => {}
                Value::Bool(_) if self.cmp == Cmp::Eq => {}
                _ => {
                    return invalid(format!(
                        "property {} cannot be compared by {} with {value}; expected a number, a text, or true or false with =",
                        self.property, self.cmp
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) fn property(&self) -> &str {
        &self.property
    }

    /// Returns true if a property of this value meets the condition. Numbers written as text
    /// are compared as numbers; the case of letters is ignored.
    pub(super) fn accepts(&self, found: &Value) -> bool {
        self.values
            .iter()
            .filter_map(|wanted| compare(found, wanted))
            .any(|ordering| self.cmp.holds(ordering))
    }

    fn cql2(&self) -> Value {
        let one = |value: &Value| {
            json!({
                "op": self.cmp.sign(),
                "args": [{ "property": self.property }, value],
            })
        };
        joined("or", self.values.iter().map(one).collect())
    }

    fn query(&self) -> (&'static str, Value) {
        match self.values.as_slice() {
            [value] => (self.cmp.word(), value.clone()),
            // Several values occur with `Cmp::Eq` only.
            values => ("in", values.into()),
        }
    }
}

/// Orders two property values; none if they cannot be compared.
fn compare(found: &Value, wanted: &Value) -> Option<Ordering> {
    match (found, wanted) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(_), _) | (_, Value::Number(_)) => {
            number(found)?.partial_cmp(&number(wanted)?)
        }
        (Value::String(a), Value::String(b)) => Some(a.to_lowercase().cmp(&b.to_lowercase())),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values.as_slice() {
            [value] => write!(f, "{} {} {value}", self.property, self.cmp),
            values => write!(f, "{} in {}", self.property, Value::from(values)),
        }
    }
}

/// Adds the conditions to a search body, in the given language.
pub(super) fn add_to(body: &mut Map<String, Value>, conditions: &[Condition], language: Language) {
    if conditions.is_empty() {
        return;
    }
    match language {
        Language::Cql2 => {
            let all = joined("and", conditions.iter().map(Condition::cql2).collect());
            body.insert("filter".to_owned(), all);
            body.insert("filter-lang".to_owned(), "cql2-json".into());
        }
        Language::Query => {
            let mut query: Map<String, Value> = Map::new();
            for condition in conditions {
                let (word, value) = condition.query();
                // Conditions on one property share an object. Of two with the same operator only the last is sent; the
                // check of the items applies both.
                if let Value::Object(operators) = query
                    .entry(condition.property.clone())
                    .or_insert_with(|| json!({}))
                {
                    operators.insert(word.to_owned(), value);
                }
            }
            body.insert("query".to_owned(), Value::Object(query));
        }
    }
}

fn joined(op: &str, mut parts: Vec<Value>) -> Value {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    json!({ "op": op, "args": parts })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conditions() -> Vec<Condition> {
        vec![
            Condition::new("eo:cloud_cover", Cmp::Less, json!(30)),
            Condition::any_of("grid:code", vec![json!("MGRS-56JNS"), json!("MGRS-55HFA")]),
        ]
    }

    #[test]
    fn each_language_writes_its_own_form() {
        let mut body = Map::new();
        add_to(&mut body, &conditions(), Language::Cql2);
        assert_eq!(
            Value::Object(body),
            json!({
                "filter": { "op": "and", "args": [
                    { "op": "<", "args": [{ "property": "eo:cloud_cover" }, 30] },
                    { "op": "or", "args": [
                        { "op": "=", "args": [{ "property": "grid:code" }, "MGRS-56JNS"] },
                        { "op": "=", "args": [{ "property": "grid:code" }, "MGRS-55HFA"] },
                    ]},
                ]},
                "filter-lang": "cql2-json",
            })
        );
        let mut body = Map::new();
        add_to(&mut body, &conditions(), Language::Query);
        assert_eq!(
            Value::Object(body),
            json!({ "query": {
                "eo:cloud_cover": { "lt": 30 },
                "grid:code": { "in": ["MGRS-56JNS", "MGRS-55HFA"] },
            }})
        );
    }

    #[test]
    fn two_conditions_on_one_property_are_both_kept() {
        let between = [
            Condition::new("view:off_nadir", Cmp::Greater, json!(1)),
            Condition::new("view:off_nadir", Cmp::LessEq, json!(5)),
        ];
        let mut body = Map::new();
        add_to(&mut body, &between, Language::Query);
        assert_eq!(
            Value::Object(body),
            json!({ "query": { "view:off_nadir": { "gt": 1, "lte": 5 } } })
        );
    }

    #[test]
    fn numbers_are_numbers_in_whatever_form() {
        let row = Condition::new("landsat:wrs_row", Cmp::Eq, json!(84));
        for found in [json!(84), json!(84.0), json!("084"), json!("84")] {
            assert!(row.accepts(&found), "{found}");
        }
        let cloud = Condition::new("eo:cloud_cover", Cmp::Less, json!(30));
        for found in [json!("NaN"), json!(null), json!(30), json!("many")] {
            assert!(!cloud.accepts(&found), "{found}");
        }
    }

    #[test]
    fn a_value_that_has_no_order_is_refused() {
        for (cmp, value) in [
            (Cmp::Less, json!(true)),
            (Cmp::Eq, json!(null)),
            (Cmp::Eq, json!([1])),
        ] {
            let err = Condition::new("a", cmp, value).check().unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
        }
    }

    proptest! {
        #[test]
        fn exactly_one_of_less_equal_greater_holds(found: f32, wanted: f32) {
            let holds = [Cmp::Less, Cmp::Eq, Cmp::Greater]
                .map(|cmp| Condition::new("p", cmp, json!(wanted)).accepts(&json!(found)));
            let count = holds.into_iter().filter(|holds| *holds).count();
            prop_assert_eq!(count, usize::from(found.is_finite() && wanted.is_finite()));
        }
    }
}
