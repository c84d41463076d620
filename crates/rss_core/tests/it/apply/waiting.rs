//! Reads and computations under way do not wait for one another for ever, and what fails in a closure is told.

use std::{future::Future, pin::pin, sync::Mutex, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use rss_core::{
    Backend, Crs, Error, ErrorKind, Location, QueryResult, ReadRequest, Result,
    apply::{
        Apply, ApplyOptions, Block, ImageCube, ImageCubeOptions,
        sample::{self, Points, SampleOptions},
    },
    reader,
};
use rss_testbed::Band;

use super::{Stage, ndvi};

/// Runs a future that would wait for ever if something is wrong.
fn ends<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended =
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await });
    // An error: it waits for ever.
    ended.unwrap()
}

fn of_blocks(cube: &ImageCube) -> Apply<f32> {
    cube.apply(ApplyOptions::new().with_block(512), ndvi)
}

#[test]
fn two_streams_of_blocks_share_a_budget_of_one_block() {
    // A block of four dates of two bands of floats, as it is read and as it is laid out.
    let stage = Stage::with(|builder| {
        builder
            .cpu_threads(1)
            .requests_per_host(1)
            .budget_bytes(21 << 20)
    });
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let alone: Vec<_> = ends(of_blocks(&cube).blocks().try_collect()).unwrap();
    assert_eq!(alone.len(), 9);
    // In lockstep: while a block of one is taken, the other one is not polled.
    let (first, second) = ends(async {
        let mut first = pin!(of_blocks(&cube).blocks());
        let mut second = pin!(of_blocks(&cube).blocks());
        let mut taken = (Vec::new(), Vec::new());
        loop {
            match (first.try_next().await?, second.try_next().await?) {
                (None, None) => return Ok::<_, Error>(taken),
                (one, other) => {
                    taken.0.extend(one);
                    taken.1.extend(other);
                }
            }
        }
    })
    .unwrap();
    for (one, other) in [(&alone, &first), (&alone, &second)] {
        assert_eq!(one.len(), other.len());
        for (one, other) in one.iter().zip(other) {
            assert_eq!(one.window, other.window);
            let bits = |samples: &ndarray::Array3<f32>| -> Vec<u32> {
                samples.iter().map(|sample| sample.to_bits()).collect()
            };
            assert_eq!(bits(&one.samples), bits(&other.samples));
        }
    }
}

#[test]
fn reads_that_nobody_polls_keep_no_permit_from_others() {
    let stage = Stage::with(|builder| builder.cpu_threads(1).requests_per_host(1).budget_bytes(1));
    let session = stage.session.clone();
    let at = |key: &str| Location::parse(&format!("s3://{}/{key}", rss_testbed::BUCKET)).unwrap();
    let scenes = stage.scenes();
    let places: Vec<Location> = scenes
        .iter()
        .map(|scene| at(scene.key(Band::Red)))
        .collect();
    let other = at(scenes[0].key(Band::Nir));
    let read = ends(async {
        let other = reader::open(&session, &other, Backend::Cog).await?;
        let session = &session;
        let mut reads = pin!(
            stream::iter(&places)
                .map(|place| async move {
                    let raster = reader::open(session, place, Backend::Cog).await?;
                    raster.read(&ReadRequest::new()).await
                })
                .buffered(3)
        );
        let mut read = 0;
        // The reads of the buffer are begun, and left alone while another one runs.
        while let Some(raster) = reads.next().await {
            raster?;
            other.read(&ReadRequest::new()).await?;
            read += 1;
        }
        Ok::<_, Error>(read)
    });
    assert_eq!(read.unwrap(), places.len());
}

/// Begins three of a kind, and awaits one more of them between any two: their shares fit the budget one at a time.
async fn in_turns<T, F: Future<Output = Result<T>>>(begin: impl Fn() -> F) -> Result<usize> {
    let mut begun = pin!(stream::iter(0..3).map(|_| begin()).buffered(3));
    let mut done = 0;
    while let Some(one) = begun.next().await {
        one?;
        begin().await?;
        done += 1;
    }
    Ok(done)
}

/// Returns a search in a session whose budget is the least power of two that the work fits.
fn barely<T>(stage: &Stage, work: impl AsyncFn(&QueryResult) -> Result<T>) -> QueryResult {
    let fits = |power: u32| {
        let session = rss_core::Session::builder()
            .s3_endpoint(&stage.bed.s3_endpoint())
            .cpu_threads(1)
            .budget_bytes(1 << power)
            .build()
            .unwrap();
        let items = stage.found(&["red"]).into_items();
        let found = QueryResult::from_items(&session, items, rss_core::Trust::User)
            .with_bands(["nbart_red"]);
        match ends(work(&found)) {
            Ok(_) => Some(found),
            Err(err) => {
                assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
                None
            }
        }
    };
    (12..40).find_map(fits).unwrap()
}

#[test]
fn samples_that_nobody_polls_keep_no_share_from_others() {
    let stage = Stage::new();
    let point = async |found: &QueryResult| {
        let point = Points::new([[153.02, -25.33]], Crs::Epsg(4326))?;
        sample::points(found, point, &SampleOptions::new()).await
    };
    let found = barely(&stage, point);
    let done = ends(in_turns(|| point(&found))).unwrap();
    assert_eq!(done, 3);
}

#[test]
fn a_panic_in_a_closure_is_an_error_with_its_words() {
    let stage = Stage::new();
    let cube = stage.cube(&["red"], &ImageCubeOptions::new());
    let work = cube.apply(
        ApplyOptions::new(),
        |block: &Block<i16>| -> Result<ndarray::Array3<i16>> {
            panic!("no rule for {} dates", block.data().dim().0)
        },
    );
    let err = stage.session.compute(work).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Other);
    assert!(!err.is_retryable());
    assert!(
        err.message().contains("panicked: no rule for 4 dates"),
        "{err}"
    );
    assert!(err.message().starts_with("block 0,0,"), "{err}");
    // The session goes on.
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    assert_eq!(stage.array(of_blocks(&cube)).dim().0, 4);
}

#[test]
fn a_blocking_read_in_a_closure_is_refused_unless_another_session_makes_it() {
    let stage = Stage::with(|builder| builder.cpu_threads(1));
    let cube = stage.cube(&["red"], &ImageCubeOptions::new());
    let place = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/tiff/files/gdal--byte_zstd-70892132.tif"
    );
    let place = Location::parse(place).unwrap();
    let read_with = |session: rss_core::Session| {
        let raster = session.open(&place, Backend::Cog).unwrap();
        cube.apply(ApplyOptions::new(), move |block: &Block<i16>| {
            raster.read(&ReadRequest::new())?;
            Ok(block.data().index_axis(ndarray::Axis(0), 0).to_owned())
        })
    };
    let (send, receive) = std::sync::mpsc::channel();
    let (own, other) = (
        read_with(stage.session.clone()),
        read_with(rss_core::Session::builder().cpu_threads(1).build().unwrap()),
    );
    let session = stage.session.clone();
    std::thread::spawn(move || {
        let _ = send.send((
            session.compute(own).map(drop),
            session.compute(other).map(drop),
        ));
    });
    let (own, other) = receive.recv_timeout(Duration::from_secs(60)).unwrap();
    let err = own.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.message().contains("a blocking call in a closure"),
        "{err}"
    );
    other.unwrap();
}

#[test]
fn an_error_of_any_type_leaves_a_closure() {
    let stage = Stage::new();
    let cube = stage.cube(&["red"], &ImageCubeOptions::new());
    let seen = Mutex::new(0);
    let work = cube.apply(ApplyOptions::new(), move |block: &Block<i16>| {
        *seen
            .lock()
            .map_err(|_| Error::other("a lock that a panic left"))? += 1;
        let side = block.window().width as usize;
        let flat = ndarray::Array3::from_shape_vec((1, side, 2), vec![0_i16; side])
            .map_err(Error::other)?;
        Ok(flat)
    });
    let err = stage.session.compute(work).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Other);
    assert!(std::error::Error::source(&err).is_some());
}
