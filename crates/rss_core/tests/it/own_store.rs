//! Objects of a store that the program brings itself.

use std::sync::Arc;

use ndarray::Array3;
use rss_core::{
    Backend, Error, ErrorKind, Location, ReadRequest, Session,
    object_store::{ObjectStoreExt, memory::InMemory, path::Path},
    reader,
};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/tiff/files/gdal--byte_zstd-70892132.tif"
);

async fn filled(key: &str) -> Arc<InMemory> {
    let store = Arc::new(InMemory::new());
    let bytes = std::fs::read(FILE).unwrap();
    store.put(&Path::from(key), bytes.into()).await.unwrap();
    store
}

#[tokio::test]
async fn a_bucket_and_a_host_of_ones_own_are_read_as_files_are() {
    let backends = match cfg!(feature = "gdal") {
        true => &[Backend::Cog, Backend::Auto][..],
        false => &[Backend::Cog],
    };
    let places = [
        ("s3://mine", "s3://mine/scenes/a.tif", "scenes/a.tif"),
        ("gs://mine/", "gs://mine/a.tif", "a.tif"),
        ("az://mine", "az://mine/a/b.tif", "a/b.tif"),
        (
            "https://example.org",
            "https://example.org/x/a%20b.tif?sig=1",
            "x/a b.tif",
        ),
    ];
    for (place, file, key) in places {
        let session = Session::builder()
            .store(place, filled(key).await)
            .build()
            .unwrap();
        let file = Location::parse(file).unwrap();
        let own = Location::parse(FILE).unwrap();
        for &backend in backends {
            let read = async |location| {
                let raster = reader::open(&session, location, backend).await?;
                let read = raster.read(&ReadRequest::new()).await?;
                Ok::<Array3<u8>, Error>(read.pixels.view::<u8>().unwrap().to_owned())
            };
            assert_eq!(
                read(&file).await.unwrap(),
                read(&own).await.unwrap(),
                "{place} by {backend:?}"
            );
        }
        // Nothing was asked of the network.
        assert_eq!(session.traffic().requests, 0);
        let none = Location::parse(&format!("{}/none.tif", place.trim_end_matches('/'))).unwrap();
        let err = reader::open(&session, &none, Backend::Cog)
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound, "{err}");
    }
}

#[tokio::test]
async fn a_cog_is_not_written_to_a_store_of_ones_own() {
    use rss_core::writer::{CogOptions, save};
    let session = Session::builder()
        .store("s3://mine", filled("a.tif").await)
        .build()
        .unwrap();
    let own = reader::open(&session, &Location::parse(FILE).unwrap(), Backend::Cog)
        .await
        .unwrap();
    let raster = own.read(&ReadRequest::new()).await.unwrap();
    let to = Location::parse("s3://mine/b.tif").unwrap();
    let err = save(&session, &to, &raster, &CogOptions::new())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported, "{err}");
    assert_eq!(session.traffic().requests, 0);
}

#[test]
fn a_store_stands_for_a_bucket_or_a_host() {
    for place in [
        "",
        "mine",
        "s3://mine/folder",
        "file:///tmp",
        "https://host/folder",
        "memory://x",
    ] {
        let store = Arc::new(InMemory::new());
        let err = Session::builder().store(place, store).build().unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(
            err.message().contains("expected s3://bucket"),
            "{place}: {err}"
        );
    }
}

#[tokio::test]
async fn a_bearer_token_goes_to_its_host_and_no_other() {
    use axum::{
        Router,
        http::HeaderMap,
        response::{IntoResponse, Redirect},
        routing::get,
    };
    use std::sync::Mutex;

    type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;
    let seen = Seen::default();
    let note = |seen: &Seen, who: &str, headers: &HeaderMap| {
        let token = headers
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        seen.lock().unwrap().push((who.to_owned(), token));
    };
    let serve = async |router: Router| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        at
    };
    let other = serve(Router::new().route(
        "/a.tif",
        get({
            let seen = seen.clone();
            async move |headers: HeaderMap| {
                note(&seen, "other", &headers);
                std::fs::read(FILE).unwrap().into_response()
            }
        }),
    ))
    .await;
    let own = serve(Router::new().route(
        "/a.tif",
        get({
            let (seen, to) = (seen.clone(), format!("{other}/a.tif"));
            async move |headers: HeaderMap| {
                note(&seen, "own", &headers);
                Redirect::temporary(&to)
            }
        }),
    ))
    .await;
    let session = Session::builder()
        .bearer_token(&own, "abc")
        .build()
        .unwrap();
    let place = Location::parse(&format!("{own}/a.tif")).unwrap();
    reader::open(&session, &place, Backend::Cog).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], ("own".to_owned(), Some("Bearer abc".to_owned())));
    assert_eq!(seen[1], ("other".to_owned(), None));
    assert!(!format!("{session:?}").contains("abc"));
    let err = Session::builder()
        .bearer_token("data.example.org", "abc")
        .build()
        .unwrap_err();
    assert!(
        err.message().contains("expected a host") && !err.message().contains("abc"),
        "{err}"
    );
}

#[tokio::test]
async fn a_client_of_ones_own_sends_the_requests() {
    use axum::{Router, http::HeaderMap, routing::get};
    use rss_core::reqwest::{Client, header, redirect::Policy};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = format!("http://{}/a.tif", listener.local_addr().unwrap());
    let serve = async |headers: HeaderMap| match headers.get("x-way") {
        Some(way) if way == "by the proxy" => Ok(std::fs::read(FILE).unwrap()),
        _ => Err(axum::http::StatusCode::FORBIDDEN),
    };
    let router = Router::new().route("/a.tif", get(serve));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut headers = header::HeaderMap::new();
    headers.insert("x-way", header::HeaderValue::from_static("by the proxy"));
    // As a program of one's own has chosen by its features; an error says that another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder()
        .redirect(Policy::none())
        .default_headers(headers)
        .build()
        .unwrap();
    let file = Location::parse(&file).unwrap();
    let open = async |session: &Session| reader::open(session, &file, Backend::Cog).await;
    let own = Session::builder().http_client(client).build().unwrap();
    assert_eq!(open(&own).await.unwrap().profile().size.width, 20);
    let err = open(&Session::builder().build().unwrap())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied);
}

#[cfg(feature = "zarr")]
#[tokio::test]
async fn a_cube_is_written_to_a_store_of_ones_own_and_read_there() {
    use rss_core::zarr::{Cube, CubeImage, CubeOptions};

    let session = Session::builder()
        .store("s3://mine", filled("a.tif").await)
        .build()
        .unwrap();
    let file = Location::parse("s3://mine/a.tif").unwrap();
    let image = CubeImage::new("a", "2021-01-03T00:00:00Z".parse().unwrap());
    let images = vec![image.with_band("grey", file.clone())];
    let cube = Location::parse("s3://mine/cubes/a.zarr").unwrap();
    Cube::create(&session, &cube, images, &CubeOptions::new())
        .await
        .unwrap();
    let cube = Cube::open(&session, &cube).await.unwrap();
    let grey = cube.read::<u8>("grey", 0..1, None, 0).await.unwrap();
    let raster = reader::open(&session, &file, Backend::Cog).await.unwrap();
    let pixels = raster.read(&ReadRequest::new()).await.unwrap().pixels;
    assert_eq!(grey, pixels.view::<u8>().unwrap());
}
