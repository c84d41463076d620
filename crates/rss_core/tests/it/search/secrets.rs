//! A secret in a source's query string: sent, and never shown.

use std::error::Error as _;

use rss_core::{
    Collection, DEA, Error, ErrorKind, ImageQueryBuilder, Intersects, QueryResult, Source,
};
use serde_json::{Value, json};

use super::{Reply, Server, ids, item, page, query, session};

const CANARY: &str = "CANARYSECRET";

/// Asserts that no way to print an error shows the secret.
fn assert_clean(err: &Error) {
    let mut text = format!(
        "{err} {err:?} {err:#?} {} {:?}",
        err.message(),
        err.location()
    );
    let mut source = err.source();
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    assert!(!text.contains(CANARY), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_repeats_the_address_does_not_leak_it() {
    // Frameworks like to put the address that was asked into their error pages.
    let echo = |form: &'static str, status: u16| {
        Server::start(move |asked, root| {
            let path = format!("{}?{}", asked.path, asked.query);
            let body = form.replace("{path}", &path).replace("{root}", root);
            Reply::status(status, body)
        })
    };
    for (form, status) in [
        (r#"{"detail": "cannot POST {path} here"}"#, 400),
        (r#"{"detail": "cannot POST {root}{path} here"}"#, 403),
        (r#"{"detail": [{"loc": "{path}", "msg": "no"}]}"#, 422),
        (r#"{"detail": "CANARYSECRET is no key"}"#, 401),
        (
            r#"{"detail": [{"loc": ["query", "token"], "input": "CANARYSECRET"}]}"#,
            422,
        ),
        ("unknown key CANARYSECRET", 403),
        ("unknown key CANARYSECRET", 200),
        ("<html><a href=\"{path}\">{path}</a></html>", 500),
        ("cannot POST '{path}'", 404),
        ("<html><a href=\"{path}\">log in</a></html>", 200),
        (
            r#"{"code": "Oops", "description": "cannot POST {path}"}"#,
            200,
        ),
        (r#"{"a": "{path}", "b": }"#, 200),
        (
            r#"{"type": "FeatureCollection", "self": "{root}{path}", "#,
            200,
        ),
    ] {
        let server = echo(form, status).await;
        let root = format!("{}/stac?token={CANARY}", server.root);
        let err = query(&root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap_err();
        assert_clean(&err);
        let log = server.log();
        assert_eq!(log[0].query, format!("token={CANARY}"));

        let session = session().build().unwrap();
        let err = QueryResult::from_url_async(&session, &root)
            .await
            .unwrap_err();
        assert_clean(&err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_words_are_kept_without_the_queries_in_them() {
    for (said, shown) in [
        ("no such thing? a = b", "no such thing? a = b"),
        (
            "see https://u:p@h/x?sig=a#b for more",
            "see https://h/x for more",
        ),
        ("POST /s?token=a&b=c \n failed", "POST /s failed"),
        (r#"<a href="/s?token=a">in</a>"#, r#"<a href="/s">in</a>"#),
        (
            r#"{"detail": [{"at": "/s?token=a", "why": "no"}]}"#,
            r#"[{"at":"/s","why":"no"}]"#,
        ),
    ] {
        let server = Server::start(move |_, _| Reply::status(403, said)).await;
        let err = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Denied);
        assert!(
            err.message().ends_with(&format!("(HTTP 403): {shown}")),
            "{err}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_with_each_request_of_a_search() {
    // The links of the server do not repeat it, but for the last.
    let server = Server::start(|asked, root| {
        let search = format!("{root}/stac/search");
        let next = |href: String, n: u32| {
            json!({"rel": "next", "method": "POST", "merge": true, "href": href, "body": {"n": n}})
        };
        match (&*asked.path, asked.body["n"].as_u64()) {
            ("/stac/search", None) => page(&[item("a")], &next(search, 1)),
            ("/stac/search", Some(1)) => {
                let next = next(format!("{search}?{}&page=2", asked.query), 2);
                page(&[item("b")], &next)
            }
            ("/stac/search", Some(_)) => page(&[item("c")], &Value::Null),
            _ => json!({
                "type": "Catalog", "id": "x",
                "conformsTo": ["https://api.stacspec.org/v1.0.0/item-search"],
                "links": [{"rel": "search", "href": search}],
            }),
        }
    })
    .await;
    let source = Source::api(&format!("{}/stac?token={CANARY}", server.root)).unwrap();
    let query = ImageQueryBuilder::new(
        source,
        Collection::Id("c".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let log = server.log();
    let queries: Vec<&str> = log.iter().map(|asked| &*asked.query).collect();
    let token = format!("token={CANARY}");
    assert_eq!(
        queries,
        [&*token, &*token, &*token, &*format!("{token}&page=2")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_type_of_a_search_shows_a_secret() {
    let server = Server::start(|_, _| page(&[item("a")], &Value::Null)).await;
    let root = format!("{}/stac?token={CANARY}", server.root);
    let source = Source::api(&root).unwrap();
    let like = source.clone().like(&DEA);
    let builder = query(&root);
    let built = builder.clone().build().unwrap();
    let found = built.search_async().await.unwrap();
    for text in [
        format!("{source} {source:?} {like} {like:?}"),
        format!("{builder:?}"),
        format!("{built:?}"),
        format!("{found:?}"),
    ] {
        assert!(!text.contains(CANARY), "{text}");
    }
    // The address itself is whole.
    assert_eq!(like.url(), root);
}
