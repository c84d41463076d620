//! A lenient parser: from JSON as servers send it to an `Item`.

use chrono::SecondsFormat;
use serde_json::{Map, Value, json};
use stac::{Item, Link};

use super::{
    features::{Features, Parsed, parse},
    value::{as_exact, parse_time},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::redact_text,
    raster::Number,
};

/// A STAC document.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Document {
    /// One item.
    Item(Box<Item>, Vec<Skipped>),
    /// A page of a search, or an item collection.
    Items(Items),
    /// A catalogue or a collection, with links to its children.
    Catalogue {
        /// The id.
        id: String,
        /// Links to children and items, not resolved.
        links: Vec<Link>,
        /// The conformance classes of an API's landing page.
        conforms_to: Vec<String>,
    },
}

/// A page of items, and the link to the next.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Items {
    /// The items, in the server's order.
    pub items: Vec<Item>,
    /// The request for the next page.
    pub next: Option<Next>,
    /// The total number of matching items, if the server counts them.
    pub matched: Option<u64>,
    /// Items and assets that could not be read.
    pub skipped: Vec<Skipped>,
}

/// The request for the next page, as the server states it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Next {
    /// The URL; it may be relative to that of the page.
    pub href: String,
    /// True if it is a POST.
    pub post: bool,
    /// The body of a POST.
    pub body: Option<Map<String, Value>>,
    /// True if the body is merged into that of the previous request.
    pub merge: bool,
    /// Headers to send.
    pub headers: Map<String, Value>,
}

/// An asset or an item that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// The item's id.
    pub item: String,
    /// The asset's key; none if the complete item was skipped.
    pub asset: Option<String>,
    /// The reason.
    pub reason: String,
}

/// Parses a STAC document leniently, as real servers send it.
///
/// Repaired: bare `NaN` and `Infinity`; missing `links`, `assets`, `bbox`, `stac_version` and
/// `properties`; geometry `{}`; datetimes without zone or time; an invalid `bbox`; ids that are numbers;
/// fields of STAC 1.1 with values of a wrong type. Unknown fields are retained.
///
/// ```
/// use rss_core::stac::{Document, read};
///
/// let page = br#"{"type": "FeatureCollection", "features": [
///     {"type": "Feature", "id": 7, "geometry": null, "assets":
///      {"red": {"href": "s3://b/red.tif", "raster:bands": [{"nodata": NaN}]}, "blue": {}}}]}"#;
/// let Document::Items(page) = read(page)? else { unreachable!() };
/// assert_eq!(page.items[0].id, "7");
/// assert_eq!(page.skipped[0].asset.as_deref(), Some("blue"));
/// # Ok::<_, rss_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the bytes are not JSON or not a STAC document; the message distinguishes HTML from
/// JSON, and includes the code and description of a server's own error.
pub fn read(bytes: &[u8]) -> Result<Document> {
    read_page(bytes, usize::MAX)
}

/// Parses a document as [`read`] does, unless it has more than `most` items: an item takes far more memory than text.
///
/// # Errors
///
/// As [`read`], and [`ErrorKind::Corrupt`] for more items.
pub(crate) fn read_page(bytes: &[u8], most: usize) -> Result<Document> {
    let corrupt = |message: String| Error::new(ErrorKind::Corrupt, message);
    // JSON must not start with a byte order mark, but files on disk may have one.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let start: String = text.trim_start().chars().take(40).collect();
    if start.starts_with('<') {
        return Err(corrupt(format!(
            "expected STAC as JSON, got HTML or XML that starts `{}`",
            one_line(&start)
        )));
    }
    let parsed = match parse(&text, most) {
        Ok(parsed) => parsed,
        // The text is rewritten only if it does not parse, since bare NaN is rare.
        Err(_) => parse(&without_bare_numbers(&text), most).map_err(|err| {
            let what = if start.is_empty() {
                "an empty response".to_owned()
            } else {
                format!("text that starts `{}`", one_line(&start))
            };
            corrupt(format!("expected STAC as JSON, got {what}")).with_source(err)
        })?,
    };
    let Parsed::Object(mut object, features) = parsed else {
        return Err(corrupt(
            "expected a STAC document, got JSON that is not an object".to_owned(),
        ));
    };
    if features.is_over {
        return Err(corrupt(format!("a page of more than {most} items")));
    }
    if features.is_bare {
        return Ok(Document::Items(items(object, features)));
    }
    match object.get("type").and_then(Value::as_str) {
        Some("FeatureCollection") => Ok(Document::Items(items(object, features))),
        Some("Feature") => {
            let mut skipped = Vec::new();
            let item = item(object, &mut skipped).map_err(corrupt)?;
            Ok(Document::Item(Box::new(item), skipped))
        }
        Some("Catalog" | "Collection") => Ok(catalogue(&mut object)),
        _ if features.is_there => Ok(Document::Items(items(object, features))),
        // Before STAC 1.0 catalogues had no type.
        _ if object.contains_key("links") && object.contains_key("id") => {
            Ok(catalogue(&mut object))
        }
        _ => {
            let field = |name: &str| object.get(name).and_then(Value::as_str).map(one_line);
            let code = field("code").or_else(|| field("name"));
            let detail = field("description")
                .or_else(|| field("detail"))
                .or_else(|| field("message"));
            Err(corrupt(match (code, detail) {
                (None, None) => "expected a STAC document, got other JSON".to_owned(),
                (code, detail) => {
                    let parts: Vec<_> = [code, detail].into_iter().flatten().collect();
                    format!("the server responded with `{}`", parts.join(": "))
                }
            }))
        }
    }
}

fn one_line(text: &str) -> String {
    let line: String = redact_text(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    line.trim().to_owned()
}

fn catalogue(object: &mut Map<String, Value>) -> Document {
    let classes = object.get("conformsTo").and_then(Value::as_array);
    Document::Catalogue {
        id: object
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        conforms_to: classes
            .into_iter()
            .flatten()
            .filter_map(|class| class.as_str().map(str::to_owned))
            .collect(),
        links: links(object.remove("links")),
    }
}

fn items(mut object: Map<String, Value>, features: Features) -> Items {
    let matched = object
        .get("numberMatched")
        // The `context` and `search:metadata` members of older APIs.
        .or_else(|| object.get("context")?.get("matched"))
        .or_else(|| object.get("search:metadata")?.get("matched"))
        .and_then(Value::as_u64);
    Items {
        matched,
        next: next(object.remove("links")),
        items: features.items,
        skipped: features.skipped.into_list(),
    }
}

fn next(value: Option<Value>) -> Option<Next> {
    let links = match value {
        Some(Value::Array(links)) => links,
        _ => return None,
    };
    links.into_iter().find_map(|link| {
        let Value::Object(mut link) = link else {
            return None;
        };
        if link.get("rel").and_then(Value::as_str) != Some("next") {
            return None;
        }
        let body = match link.remove("body") {
            Some(Value::Object(body)) => Some(body),
            _ => None,
        };
        let headers = match link.remove("headers") {
            Some(Value::Object(headers)) => headers,
            _ => Map::new(),
        };
        // The default method of a link is GET.
        let method = link.get("method").and_then(Value::as_str).unwrap_or("GET");
        Some(Next {
            href: link.get("href")?.as_str()?.to_owned(),
            post: method.eq_ignore_ascii_case("POST"),
            merge: link.get("merge").and_then(Value::as_bool).unwrap_or(false),
            body,
            headers,
        })
    })
}

pub(super) fn id_of(feature: &Map<String, Value>) -> String {
    match feature.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => String::new(),
    }
}

/// Repairs one feature; the error is the reason why it is not an item.
pub(super) fn item(
    mut feature: Map<String, Value>,
    skipped: &mut impl Extend<Skipped>,
) -> Result<Item, String> {
    let id = id_of(&feature);
    if id.is_empty() {
        return Err("an item without an id".to_owned());
    }
    feature.insert("type".to_owned(), json!("Feature"));
    feature.insert("id".to_owned(), json!(id));
    if !feature.get("stac_version").is_some_and(Value::is_string) {
        feature.insert("stac_version".to_owned(), json!("1.0.0"));
    }
    // The `stac` crate rejects an item for one field of a wrong type, so such fields are removed first.
    keep_strings(&mut feature, "stac_extensions");
    if !feature.get("collection").is_some_and(Value::is_string) {
        feature.remove("collection");
    }
    let geometry = feature.remove("geometry").unwrap_or(Value::Null);
    let geometry = match serde_json::from_value::<geojson::Geometry>(geometry.clone()) {
        Ok(_) => geometry,
        Err(_) => Value::Null,
    };
    feature.insert("geometry".to_owned(), geometry);
    let bbox = feature.get("bbox").and_then(Value::as_array);
    let good = bbox
        .is_some_and(|edges| matches!(edges.len(), 4 | 6) && edges.iter().all(Value::is_number));
    if !good {
        feature.remove("bbox");
    }
    let properties = match feature.remove("properties") {
        Some(Value::Object(properties)) => repaired_properties(properties),
        _ => Map::new(),
    };
    feature.insert("properties".to_owned(), Value::Object(properties));
    let links = links(feature.remove("links"));
    let assets = match feature.remove("assets") {
        Some(Value::Object(assets)) => assets,
        _ => Map::new(),
    };
    let mut item: Item = serde_json::from_value(Value::Object(feature))
        .map_err(|err| format!("not an item: {err}"))?;
    item.links = links;
    for (key, value) in assets {
        match asset(value) {
            Ok(asset) => {
                item.assets.insert(key, asset);
            }
            Err(reason) => skipped.extend([Skipped {
                item: id.clone(),
                asset: Some(key),
                reason,
            }]),
        }
    }
    Ok(item)
}

fn links(value: Option<Value>) -> Vec<Link> {
    let Some(Value::Array(links)) = value else {
        return Vec::new();
    };
    links
        .into_iter()
        .filter_map(|mut link| {
            // The `stac` crate rejects a link whose body or headers have another type; the link itself is still usable.
            if let Some(object) = link.as_object_mut() {
                object.retain(|name, value| match name.as_str() {
                    "body" | "headers" => value.is_object(),
                    "merge" => value.is_boolean(),
                    "type" | "title" | "method" => value.is_string(),
                    _ => true,
                });
            }
            serde_json::from_value(link).ok()
        })
        .collect()
}

fn repaired_properties(mut properties: Map<String, Value>) -> Map<String, Value> {
    for name in ["datetime", "start_datetime", "end_datetime"] {
        if let Some(value) = properties.get_mut(name) {
            let time = value.as_str().and_then(parse_time);
            *value = time.map_or(Value::Null, |time| {
                json!(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
            });
        }
    }
    for name in ["title", "description", "created", "updated"] {
        if properties.get(name).is_some_and(|value| !value.is_string()) {
            properties.remove(name);
        }
    }
    properties
}

/// Repairs one asset; the error is the reason why it cannot be used.
fn asset(value: Value) -> Result<stac::Asset, String> {
    let Value::Object(mut asset) = value else {
        return Err("not an object".to_owned());
    };
    match asset.get("href") {
        Some(Value::String(href)) if !href.is_empty() => {}
        _ => return Err("no href".to_owned()),
    }
    keep_strings(&mut asset, "roles");
    for name in ["title", "description", "type", "created", "updated", "unit"] {
        if asset.get(name).is_some_and(|value| !value.is_string()) {
            asset.remove(name);
        }
    }
    let nodata = take_nodata(&mut asset);
    let mut nodatas = Vec::new();
    if let Some(bands) = asset.get_mut("bands") {
        match bands {
            Value::Array(bands) => {
                bands.retain(Value::is_object);
                nodatas = bands
                    .iter_mut()
                    .filter_map(Value::as_object_mut)
                    .map(take_nodata)
                    .collect();
            }
            _ => {
                asset.remove("bands");
            }
        }
    }
    let mut read: stac::Asset = match serde_json::from_value(Value::Object(asset.clone())) {
        Ok(asset) => asset,
        Err(_) => {
            // Fields of STAC 1.1 with values of a wrong type are dropped, so that the asset can still be used.
            for name in ["bands", "statistics", "data_type"] {
                asset.remove(name);
            }
            serde_json::from_value(Value::Object(asset)).map_err(|err| err.to_string())?
        }
    };
    put_nodata(nodata, &mut read.nodata, &mut read.additional_fields);
    for (band, nodata) in read.bands.iter_mut().zip(nodatas) {
        put_nodata(nodata, &mut band.nodata, &mut band.additional_fields);
    }
    Ok(read)
}

/// Removes `nodata` and returns it: a number, a numeric string or a spelling of NaN or infinity. The `stac` crate
/// does not parse all of these.
fn take_nodata(object: &mut Map<String, Value>) -> Option<Number> {
    as_exact(&object.remove("nodata")?)
}

/// Puts a nodata value where the `stac` crate has it, or among the other fields if its float would round it: JSON that is
/// written has it in the same place.
fn put_nodata(nodata: Option<Number>, typed: &mut Option<f64>, fields: &mut Map<String, Value>) {
    let Some(nodata) = nodata else { return };
    let float = nodata.as_f64();
    let integer = serde_json::from_str::<Value>(&nodata.to_string());
    match integer {
        Ok(integer) if Number::from(float) != nodata => {
            fields.insert("nodata".to_owned(), integer);
        }
        _ => *typed = Some(float),
    }
}

fn keep_strings(object: &mut Map<String, Value>, name: &str) {
    match object.get_mut(name) {
        Some(Value::Array(list)) => list.retain(Value::is_string),
        Some(_) => {
            object.remove(name);
        }
        None => {}
    }
}

/// Replaces bare `NaN`, `Infinity` and `-Infinity` outside strings by strings.
fn without_bare_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        if in_string {
            // A backslash and the character after it are copied together, so that `\"` does not end the string.
            let length = match c {
                '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
                _ => c.len_utf8(),
            };
            in_string = c != '"';
            let (passed, after) = rest.split_at(length);
            out.push_str(passed);
            rest = after;
            continue;
        }
        let bare = ["NaN", "-Infinity", "Infinity", "nan"];
        if let Some(word) = bare.iter().find(|word| rest.starts_with(**word)) {
            out.push('"');
            out.push_str(word);
            out.push('"');
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        }
        in_string = c == '"';
        out.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(json: &str) -> Item {
        match read(json.as_bytes()).unwrap() {
            Document::Item(item, _) => *item,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bare_numbers_become_strings_outside_strings_only() {
        assert_eq!(
            without_bare_numbers(r#"{"a": NaN, "b\"NaN": "NaN", "c": -Infinity}"#),
            r#"{"a": "NaN", "b\"NaN": "NaN", "c": "-Infinity"}"#
        );
    }

    #[test]
    fn nodata_is_read_in_every_spelling() {
        let item = one(r#"{"type":"Feature","id":"a","geometry":{},"assets":{
                "x":{"href":"x","nodata":"nan","bands":[{"nodata":"NaN"},{"nodata":-9}]}}}"#);
        let asset = &item.assets["x"];
        assert!(asset.nodata.unwrap().is_nan());
        assert!(asset.bands[0].nodata.unwrap().is_nan());
        assert_eq!(asset.bands[1].nodata, Some(-9.0));
        assert!(item.geometry.is_none());
    }

    #[test]
    fn nodata_of_64_bits_is_exact_and_stays_so_when_it_is_written() {
        let (large, least) = (u64::MAX, i64::MIN + 1);
        let text = format!(
            r#"{{"type":"Feature","id":"a","assets":{{
                "x":{{"href":"x","nodata":{large}}},
                "y":{{"href":"y","bands":[{{"nodata":{least}}},{{"nodata":"{large}"}},{{"nodata":-9}}]}},
                "z":{{"href":"z","raster:bands":[{{"nodata":{large}}}]}}}}}}"#
        );
        let item = one(&text);
        let again = one(&serde_json::to_string(&item).unwrap());
        for item in [item, again] {
            let of = |key: &str, band: usize| {
                super::super::band_facts_of(&item.assets[key], band)
                    .nodata
                    .unwrap()
            };
            assert_eq!(of("x", 0), Number::from(large));
            assert_eq!(of("x", 3), Number::from(large));
            assert_eq!(
                [of("y", 0), of("y", 1)],
                [Number::from(least), Number::from(large)]
            );
            assert_eq!(of("y", 2), Number::from(-9));
            assert_eq!(of("z", 0), Number::from(large));
        }
    }

    #[test]
    fn html_and_server_errors_are_named() {
        let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert_eq!(
            message(b"<html><body>Log in</body></html>"),
            "expected STAC as JSON, got HTML or XML that starts `<html><body>Log in</body></html>`"
        );
        assert_eq!(
            message(br#"{"code": "BadRequest", "description": "no such collection"}"#),
            "the server responded with `BadRequest: no such collection`"
        );
        assert_eq!(message(b""), "expected STAC as JSON, got an empty response");
        assert_eq!(
            message(b"[1]"),
            "expected a STAC document, got JSON that is not an object"
        );
    }

    #[test]
    fn a_next_link_is_read_in_every_form() {
        let page = |link: &str| {
            let text = format!(r#"{{"type":"FeatureCollection","features":[],"links":[{link}]}}"#);
            match read(text.as_bytes()).unwrap() {
                Document::Items(items) => items.next,
                other => panic!("{other:?}"),
            }
        };
        let dea =
            page(r#"{"rel":"next","method":"POST","merge":true,"href":"/s","body":{"_o":20}}"#);
        let dea = dea.unwrap();
        assert!(dea.post && dea.merge);
        assert_eq!(dea.body.unwrap()["_o"], 20);
        let get = page(r#"{"rel":"next","href":"https://h/s?token=next:x"}"#).unwrap();
        assert!(!get.post && get.body.is_none());
        assert_eq!(page(r#"{"rel":"self","href":"x"}"#), None);
    }
}
