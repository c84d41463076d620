//! Starts a testbed and says how to use it, until Ctrl-C: `testbed [LATENCY_MS] [small|full]`.

use std::time::Duration;

use rss_testbed::{Scenes, Testbed};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let latency = args.next().map_or(Ok(0), |text| text.parse())?;
    let scenes = match args.next().as_deref() {
        None | Some("small") => Scenes::small(),
        Some("full") => Scenes::full(),
        Some(other) => anyhow::bail!("scenes are small or full, not {other}"),
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
    loop {
        std::thread::park();
    }
}
