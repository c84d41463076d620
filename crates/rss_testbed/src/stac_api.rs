//! The STAC API: `stac-server` for the landing page, collections and items; a search of our own on
//! top that filters, pages and misbehaves as the providers do.
//!
//! What each provider does is written in the documentation of [`Paging`].

use std::{
    collections::BTreeMap,
    str::FromStr,
    time::{Duration, SystemTime},
};

use anyhow::Result;
use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use cql2::Expr;
use serde_json::{Map, Value, json};
use stac::api::Search;
use stac_server::{Api, routes};

use crate::{
    catalogue::{Catalogue, Entry},
    plain,
};

/// How long a SAS token lives.
const TOKEN_LIFE: Duration = Duration::from_secs(45 * 60);

/// Whose manners the STAC API has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Paging {
    /// Digital Earth Australia: 20 items a page and at most 1000, else 400; POST `next` with
    /// `merge: true` and an offset `_o`; CQL2 `filter`, and 400 for `query`; `ids` are UUIDs; `bbox`
    /// has four numbers; a date as the end of an interval is its midnight; `numberMatched`.
    Dea,
    /// Earth Search: 10 items a page; POST `next` with `merge: false`, the whole body and a token;
    /// `query`; a `filter` is ignored with status 200; `numberMatched`.
    EarthSearch,
    /// Planetary Computer: 250 items a page; POST `next` without `merge`, the whole body and a token;
    /// `query` and `filter`; no count; SAS tokens.
    PlanetaryComputer,
}

impl Paging {
    fn default_page(self) -> usize {
        match self {
            Self::Dea => 20,
            Self::EarthSearch => 10,
            Self::PlanetaryComputer => 250,
        }
    }
}

#[derive(Clone)]
struct Server {
    catalogue: Catalogue,
    paging: Paging,
    page_size: usize,
    bare_nan: bool,
    /// Root of the API, as a client sees it.
    root: String,
}

/// Returns the API below `/stac`, and the SAS service.
pub(crate) fn router(
    catalogue: Catalogue,
    paging: Paging,
    page_size: Option<usize>,
    bare_nan: bool,
    origin: &str,
) -> Result<Router> {
    let root = format!("{origin}/stac");
    let api = Api::new(catalogue.backend.clone(), &root)?.id("testbed");
    let server = Server {
        catalogue,
        paging,
        page_size: page_size.unwrap_or(paging.default_page()),
        bare_nan,
        root,
    };
    let stac = Router::new()
        .route("/", get(landing))
        .route("/conformance", get(conformance))
        .route("/search", get(search_get).post(search_post))
        .with_state(server)
        .route(
            "/collections",
            get(routes::collections::<stac_server::MemoryBackend>),
        )
        .route(
            "/collections/{collection_id}",
            get(routes::collection::<stac_server::MemoryBackend>),
        )
        .route(
            "/collections/{collection_id}/items/{item_id}",
            get(routes::item::<stac_server::MemoryBackend>),
        )
        .with_state(api);
    Ok(Router::new()
        .nest("/stac", stac)
        .route("/api/sas/v1/token/{account}/{container}", get(sas_token)))
}

async fn landing(State(server): State<Server>) -> Json<Value> {
    let link =
        |rel: &str, path: &str| json!({"rel": rel, "href": format!("{}{path}", server.root)});
    let mut get = link("search", "/search");
    let mut post = get.clone();
    get["method"] = json!("GET");
    post["method"] = json!("POST");
    Json(json!({
        "type": "Catalog",
        "id": "testbed",
        "stac_version": "1.0.0",
        "description": "Synthetic scenes on loopback",
        "conformsTo": conforms_to(server.paging),
        "links": [link("self", ""), link("root", ""), link("conformance", "/conformance"),
            link("data", "/collections"), get, post],
    }))
}

async fn conformance(State(server): State<Server>) -> Json<Value> {
    Json(json!({"conformsTo": conforms_to(server.paging)}))
}

fn conforms_to(paging: Paging) -> Vec<&'static str> {
    let mut classes = vec![
        "https://api.stacspec.org/v1.0.0/core",
        "https://api.stacspec.org/v1.0.0/collections",
        "https://api.stacspec.org/v1.0.0/item-search",
        "https://api.stacspec.org/v1.0.0/item-search#sort",
        "https://api.stacspec.org/v1.0.0/item-search#fields",
    ];
    if paging != Paging::EarthSearch {
        classes.push("https://api.stacspec.org/v1.0.0/item-search#filter");
        classes.push("http://www.opengis.net/spec/cql2/1.0/conf/cql2-json");
        classes.push("http://www.opengis.net/spec/cql2/1.0/conf/basic-cql2");
    }
    if paging != Paging::Dea {
        classes.push("https://api.stacspec.org/v1.0.0/item-search#query");
    }
    classes
}

async fn sas_token(Path((_account, _container)): Path<(String, String)>) -> Json<Value> {
    let expiry = SystemTime::now() + TOKEN_LIFE;
    let date: chrono::DateTime<chrono::Utc> = expiry.into();
    Json(json!({
        "msft:expiry": date.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        "token": plain::token(expiry),
    }))
}

async fn search_post(State(server): State<Server>, body: String) -> Response {
    match serde_json::from_str::<Map<String, Value>>(&body) {
        Ok(body) => answer(&server, body, true),
        Err(err) => refused(&format!("the body is no JSON object: {err}")),
    }
}

async fn search_get(
    State(server): State<Server>,
    Query(parameters): Query<BTreeMap<String, String>>,
) -> Response {
    let mut body = Map::new();
    for (name, text) in parameters {
        let parsed = || serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
        let value = match name.as_str() {
            "ids" | "collections" => json!(text.split(',').collect::<Vec<_>>()),
            "bbox" => {
                let numbers: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
                match numbers {
                    Ok(numbers) => json!(numbers),
                    Err(_) => return refused("bbox is not a list of numbers"),
                }
            }
            "limit" | "_o" | "intersects" | "query" => parsed(),
            "filter" if text.trim_start().starts_with('{') => parsed(),
            _ => json!(text),
        };
        body.insert(name, value);
    }
    answer(&server, body, false)
}

fn answer(server: &Server, body: Map<String, Value>, post: bool) -> Response {
    match search(server, body, post) {
        Ok(page) => {
            let mut text = page.to_string();
            if server.bare_nan {
                text = text.replace("\"@NaN@\"", "NaN");
            }
            let kind = [(header::CONTENT_TYPE, "application/geo+json")];
            (StatusCode::OK, kind, Body::from(text)).into_response()
        }
        Err(message) => refused(&message),
    }
}

fn refused(message: &str) -> Response {
    let body = json!({"code": "BadRequest", "description": message});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// Runs one search and returns its page; the error is the message of a 400.
fn search(server: &Server, body: Map<String, Value>, post: bool) -> Result<Value, String> {
    let paging = server.paging;
    let limit = match body.get("limit") {
        None | Some(Value::Null) => server.page_size,
        Some(limit) => limit
            .as_u64()
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|&limit| limit > 0)
            .ok_or("limit is not a positive whole number")?,
    };
    if paging == Paging::Dea {
        check_dea(&body, limit)?;
    }
    let offset = match paging {
        Paging::Dea => body.get("_o").and_then(Value::as_u64).unwrap_or(0),
        Paging::EarthSearch => token(&body, "next", ""),
        Paging::PlanetaryComputer => token(&body, "token", "next:"),
    };
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut found = filtered(server, &body)?;
    sort(&mut found, &body);
    let matched = found.len();
    let items: Vec<Value> = found
        .iter()
        .skip(offset)
        .take(limit)
        .map(|entry| sent(entry, server.bare_nan))
        .collect();
    let end = offset.saturating_add(items.len());
    let mut links = vec![json!({"rel": "self", "href": format!("{}/search", server.root)})];
    if end < matched {
        links.push(next_link(server, &body, end, limit, post));
    }
    let mut page = json!({
        "type": "FeatureCollection",
        "numberReturned": items.len(),
        "features": items,
        "links": links,
    });
    if paging != Paging::PlanetaryComputer {
        page["numberMatched"] = json!(matched);
        page["context"] = json!({"matched": matched, "limit": limit, "returned": items_len(&page)});
    }
    Ok(page)
}

fn items_len(page: &Value) -> usize {
    page["features"].as_array().map_or(0, Vec::len)
}

fn token(body: &Map<String, Value>, name: &str, prefix: &str) -> u64 {
    let text = body.get(name).and_then(Value::as_str).unwrap_or_default();
    text.strip_prefix(prefix)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn check_dea(body: &Map<String, Value>, limit: usize) -> Result<(), String> {
    if limit > 1000 {
        return Err(format!("Max page size is 1000, got {limit}"));
    }
    if body.contains_key("query") {
        return Err("unknown argument: query".to_owned());
    }
    if let Some(bbox) = body.get("bbox").and_then(Value::as_array)
        && bbox.len() != 4
    {
        return Err("Expected bbox of size 4. [min lon, min lat, max long, max lat]".to_owned());
    }
    let ids = body
        .get("ids")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for id in ids.filter_map(Value::as_str) {
        let uuid = id.len() == 36 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if !uuid {
            return Err(format!("`{id}` is not a valid UUID"));
        }
    }
    Ok(())
}

fn next_link(
    server: &Server,
    body: &Map<String, Value>,
    end: usize,
    limit: usize,
    post: bool,
) -> Value {
    let href = format!("{}/search", server.root);
    let (name, value) = match server.paging {
        Paging::Dea => ("_o", json!(end)),
        Paging::EarthSearch => ("next", json!(end.to_string())),
        Paging::PlanetaryComputer => ("token", json!(format!("next:{end}"))),
    };
    if !post {
        let mut pairs = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in body
            .iter()
            .filter(|(key, _)| key.as_str() != name && *key != "limit")
        {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Array(list) => list
                    .iter()
                    .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
                    .collect::<Vec<_>>()
                    .join(","),
                other => other.to_string(),
            };
            pairs.append_pair(key, &text);
        }
        pairs.append_pair("limit", &limit.to_string());
        pairs.append_pair(
            name,
            value
                .as_str()
                .map_or(value.to_string(), str::to_owned)
                .as_str(),
        );
        return json!({"rel": "next", "method": "GET", "href": format!("{href}?{}", pairs.finish())});
    }
    let mut whole = body.clone();
    whole.insert("limit".to_owned(), json!(limit));
    whole.insert(name.to_owned(), value.clone());
    match server.paging {
        Paging::Dea => json!({"rel": "next", "method": "POST", "href": href, "merge": true,
            "body": {name: value}}),
        Paging::EarthSearch => {
            whole.remove("filter");
            json!({"rel": "next", "method": "POST", "href": href, "merge": false, "body": whole})
        }
        Paging::PlanetaryComputer => {
            json!({"rel": "next", "method": "POST", "href": href, "body": whole})
        }
    }
}

/// Returns the items that match everything this provider understands.
fn filtered(
    server: &Server,
    body: &Map<String, Value>,
) -> Result<Vec<std::sync::Arc<Entry>>, String> {
    let mut basic = Map::new();
    for name in ["bbox", "intersects", "ids", "collections"] {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            basic.insert(name.to_owned(), value.clone());
        }
    }
    let basic: Search =
        serde_json::from_value(Value::Object(basic)).map_err(|err| err.to_string())?;
    let interval = match body.get("datetime").and_then(Value::as_str) {
        Some(text) => Some(interval(text, server.paging)?),
        None => None,
    };
    let filter = match (server.paging, body.get("filter")) {
        (Paging::EarthSearch, _) | (_, None | Some(Value::Null)) => None,
        (_, Some(Value::String(text))) => {
            Some(Expr::from_str(text).map_err(|err| format!("filter: {err}"))?)
        }
        (_, Some(json)) => Some(
            serde_json::from_value::<Expr>(json.clone()).map_err(|err| format!("filter: {err}"))?,
        ),
    };
    let query = match (server.paging, body.get("query")) {
        (Paging::Dea, _) | (_, None) => None,
        (_, Some(query)) => Some(query.as_object().ok_or("query is not an object")?),
    };
    let mut found = Vec::new();
    for entry in server.catalogue.items() {
        let properties = &entry.json["properties"];
        let in_time = interval.is_none_or(|interval| within(properties, interval));
        if !in_time || !basic.matches(&entry.item).map_err(|err| err.to_string())? {
            continue;
        }
        if let Some(query) = query
            && !query_matches(query, properties)?
        {
            continue;
        }
        if let Some(filter) = &filter {
            let matches = filter.clone().matches(Some(&entry.json));
            if !matches.map_err(|err| format!("filter: {err}"))? {
                continue;
            }
        }
        found.push(entry);
    }
    Ok(found)
}

type Interval = (Option<i64>, Option<i64>);

/// Reads `a/b`, `../b`, `a/..` or one instant, in milliseconds.
fn interval(text: &str, paging: Paging) -> Result<Interval, String> {
    let day_ms = 24 * 60 * 60 * 1000;
    let instant = |text: &str| -> Result<(i64, bool), String> {
        if let Ok(time) = chrono::DateTime::parse_from_rfc3339(text) {
            return Ok((time.timestamp_millis(), false));
        }
        let day =
            chrono::NaiveDate::from_str(text).map_err(|_| format!("not a datetime: {text}"))?;
        let midnight = day.and_hms_opt(0, 0, 0).ok_or("no midnight")?;
        Ok((midnight.and_utc().timestamp_millis(), true))
    };
    let Some((start, end)) = text.split_once('/') else {
        let (time, is_day) = instant(text)?;
        return Ok((
            Some(time),
            Some(if is_day { time + day_ms - 1 } else { time }),
        ));
    };
    let open = |text: &str| text.is_empty() || text == "..";
    let start = if open(start) {
        None
    } else {
        Some(instant(start)?.0)
    };
    let end = if open(end) {
        None
    } else {
        let (time, is_day) = instant(end)?;
        let whole_day = is_day && paging != Paging::Dea;
        Some(if whole_day { time + day_ms - 1 } else { time })
    };
    Ok((start, end))
}

fn within(properties: &Value, (start, end): Interval) -> bool {
    let time = |name: &str| {
        let text = properties.get(name)?.as_str()?;
        Some(
            chrono::DateTime::parse_from_rfc3339(text)
                .ok()?
                .timestamp_millis(),
        )
    };
    let first = time("start_datetime").or_else(|| time("datetime"));
    let last = time("end_datetime").or_else(|| time("datetime"));
    let (Some(first), Some(last)) = (first, last) else {
        return false;
    };
    start.is_none_or(|start| last >= start) && end.is_none_or(|end| first <= end)
}

/// The [query extension](https://github.com/stac-api-extensions/query).
fn query_matches(query: &Map<String, Value>, properties: &Value) -> Result<bool, String> {
    for (name, conditions) in query {
        let value = &properties[name.as_str()];
        let conditions = conditions
            .as_object()
            .ok_or_else(|| format!("query.{name} is no object"))?;
        for (operator, wanted) in conditions {
            let order = || match (value.as_f64(), wanted.as_f64()) {
                (Some(value), Some(wanted)) => value.partial_cmp(&wanted),
                _ => Some(value.as_str()?.cmp(wanted.as_str()?)),
            };
            let holds = match operator.as_str() {
                "eq" => order().is_some_and(|order| order.is_eq()) || value == wanted,
                "neq" => value != wanted,
                "lt" => order().is_some_and(|order| order.is_lt()),
                "lte" => order().is_some_and(|order| order.is_le()),
                "gt" => order().is_some_and(|order| order.is_gt()),
                "gte" => order().is_some_and(|order| order.is_ge()),
                "in" => wanted.as_array().is_some_and(|list| list.contains(value)),
                other => return Err(format!("unknown operator {other}")),
            };
            if !holds {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn sort(found: &mut [std::sync::Arc<Entry>], body: &Map<String, Value>) {
    let Some(by) = body.get("sortby") else {
        return;
    };
    let (field, descending) = match by {
        Value::String(text) => {
            let name = text.split(',').next().unwrap_or_default();
            (
                name.trim_start_matches(['+', '-']).to_owned(),
                name.starts_with('-'),
            )
        }
        Value::Array(list) => {
            let first = list.first().unwrap_or(&Value::Null);
            let name = first["field"].as_str().unwrap_or("datetime").to_owned();
            (name, first["direction"] == "desc")
        }
        _ => return,
    };
    let field = field.trim_start_matches("properties.").to_owned();
    let value = |entry: &Entry| match &entry.json["properties"][field.as_str()] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    found.sort_by(|a, b| {
        let order = value(a).cmp(&value(b));
        if descending { order.reverse() } else { order }
    });
}

/// Returns an item as the server sends it.
fn sent(entry: &Entry, bare_nan: bool) -> Value {
    let mut item = entry.json.clone();
    if bare_nan && let Some(assets) = item["assets"].as_object_mut() {
        for (_, asset) in assets.iter_mut().filter(|(key, _)| key.starts_with("oa_")) {
            asset["raster:bands"] = json!([{"nodata": "@NaN@"}]);
        }
    }
    item
}
