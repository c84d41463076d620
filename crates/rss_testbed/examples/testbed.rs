//! Starts a testbed and says how to use it, until Ctrl-C: `testbed [LATENCY_MS] [small|full|SIDExDATES]`,
//! the last for so many dates of one scene with so many pixels a side.
//!
//! A program that started it may ask by lines on its standard input: `files` for the scenes' files,
//! `items` for their items, `requests` for what was asked of the S3 server since the last such line, each
//! answered by a line of JSON on standard output; `latency MS` changes the latency, and is not answered.

use std::{io::BufRead, time::Duration};

use anyhow::Context;
use rss_testbed::{BUCKET, Band, Scenes, Service, Testbed};
use serde_json::{Value, json};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let latency = args.next().map_or(Ok(0), |text| text.parse())?;
    let scenes = match args.next().as_deref() {
        None | Some("small") => Scenes::small(),
        Some("full") => Scenes::full(),
        Some(other) => series(other)
            .with_context(|| format!("scenes are small, full or SIDExDATES, not {other}"))?,
    };
    let bed = Testbed::builder()
        .latency(Duration::from_millis(latency))
        .scenes(scenes)
        .start()?;
    eprintln!(
        "export AWS_ENDPOINT_URL={} AWS_NO_SIGN_REQUEST=YES",
        bed.s3_endpoint()
    );
    eprintln!(
        "rss search {} sentinel2 --like dea --scene 56jns",
        bed.stac_url()
    );
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("files"), None) => say(&files(&bed)),
            (Some("items"), None) => {
                let items: Vec<&Value> = bed.scenes().iter().map(|scene| &scene.item).collect();
                say(&json!({ "type": "FeatureCollection", "features": items }));
            }
            (Some("requests"), None) => {
                let log = bed.requests(Service::S3);
                bed.clear_log();
                let bytes: u64 = log.iter().map(|request| request.bytes).sum();
                say(&json!({ "requests": log.len(), "bytes": bytes }));
            }
            (Some("latency"), Some(ms)) => bed.set_latency(Duration::from_millis(ms.parse()?)),
            _ => anyhow::bail!("`{line}` is not one of files, items, requests, latency MS"),
        }
    }
    loop {
        std::thread::park();
    }
}

/// Reads a size and a number of dates, such as `4096x8`.
fn series(text: &str) -> Option<Scenes> {
    let (side, dates) = text.split_once('x')?;
    Some(Scenes::Series {
        side: side.parse().ok()?,
        dates: dates.parse().ok()?,
    })
}

/// Returns bucket, key and path of the bands of 10 m.
fn files(bed: &Testbed) -> Value {
    let files = bed.scenes().iter().flat_map(|scene| {
        let file =
            |band| json!({ "bucket": BUCKET, "key": scene.key(band), "path": scene.file(band) });
        [Band::Red, Band::Nir].map(file)
    });
    files.collect()
}

#[expect(clippy::print_stdout, reason = "the answer to a question")]
fn say(answer: &Value) {
    println!("{answer}");
}
