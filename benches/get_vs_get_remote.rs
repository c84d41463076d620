//! Is it faster to download files and read them, or to read them where they are?
//!
//! `cargo bench -p rss_core --features bench_live --bench get_vs_get_remote` asks live DEA; with
//! `--features bench_testbed` servers on loopback, 30 ms away. The whole way (query, fetch, read one
//! 512 x 512 block of the first asset) and each stage apart; a file cache that is empty and one that
//! is full apart. `get` translates through the session's stores, as it does by default; remote hrefs are GDAL's own paths.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::time::{Duration, Instant};

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, SamplingMode};
use rss_bench::{
    harness::must,
    site::{self, Site, agree, open_and_read},
};
use rss_core::{Backend, QueryResult, Session};
use tempfile::TempDir;

fn main() -> Result<()> {
    let Some(site) = rss_bench::site!("get_vs_get_remote")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(1))
        .configure_from_args();
    let items = check(&site)?;
    let run = Run { site, items };
    run.pipelines(&mut criterion);
    run.stages(&mut criterion);
    criterion.final_summary();
    Ok(())
}

/// Checks that all paths give the same pixels before any is timed; returns the number of items.
fn check(site: &Site) -> Result<usize> {
    let fresh = Fresh::new(site)?;
    let found = site.search(&fresh.session)?;
    site::check_report(found.report())?;
    let local = found.get(fresh.dir.path(), None, None)?;
    let remote = found.get_remote()?;
    let copied = found.download(fresh.other.path())?;
    let read = |items, backend| open_and_read(&fresh.session, items, backend);
    fresh.session.clear_caches()?;
    site.clear_log();
    let block = read(&remote, Backend::Gdal)?;
    println!(
        "{}: {} requests for one cold block by GDAL",
        site.name(),
        site.log().len()
    );
    site.check_truth(&found.items().items[0].id, &block)?;
    agree(&block, &read(&local, Backend::Gdal)?, "get()")?;
    agree(&block, &read(&copied, Backend::Gdal)?, "download()")?;
    agree(&block, &read(found.items(), Backend::Cog)?, "cog")?;
    Ok(found.len())
}

/// A session with an empty file cache, and folders to link into.
struct Fresh {
    session: Session,
    dir: TempDir,
    other: TempDir,
    _cache: TempDir,
}

impl Fresh {
    fn new(site: &Site) -> Result<Self> {
        let cache = TempDir::new()?;
        Ok(Self {
            session: site.session(cache.path()).build()?,
            dir: TempDir::new()?,
            other: TempDir::new()?,
            _cache: cache,
        })
    }
}

struct Run {
    site: Site,
    items: usize,
}

impl Run {
    /// Query, fetch and read.
    fn pipelines(&self, criterion: &mut Criterion) {
        let id = |name: &str| BenchmarkId::new(name, format!("{} items", self.items));
        let mut group = criterion.benchmark_group("get/download");
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(id("full-pipeline"), |bencher| {
            bencher.iter_custom(|times| {
                // A new cache each time: a warm one must not pass for a download.
                timed(times, || Fresh::new(&self.site), |fresh| self.by_get(fresh))
            });
        });
        group.bench_function(id("full-pipeline, warm cache"), |bencher| {
            let fresh = must(Fresh::new(&self.site));
            must(self.by_get(&fresh));
            bencher.iter(|| must(self.by_get(&fresh)));
        });
        group.finish();
        let mut group = criterion.benchmark_group("get_remote/vsi-direct");
        group.sampling_mode(SamplingMode::Flat);
        let fresh = must(Fresh::new(&self.site));
        group.bench_function(id("full-pipeline"), |bencher| {
            bencher.iter_custom(|times| {
                timed(times, || self.cold(&fresh), |()| self.by_remote(&fresh))
            });
        });
        group.bench_function(id("full-pipeline, warm cache"), |bencher| {
            must(self.by_remote(&fresh));
            bencher.iter(|| must(self.by_remote(&fresh)));
        });
        group.finish();
    }

    /// Each stage by itself.
    fn stages(&self, criterion: &mut Criterion) {
        let fresh = must(Fresh::new(&self.site));
        let found = must(self.site.search(&fresh.session));
        let local = must(found.get(fresh.dir.path(), None, None));
        let remote = must(found.get_remote());

        let mut group = criterion.benchmark_group("stage/query");
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function("search", |bencher| {
            bencher.iter(|| must(self.site.search(&fresh.session)));
        });
        group.finish();

        let mut group = criterion.benchmark_group("stage/fetch");
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function("get, cold cache", |bencher| {
            bencher.iter_custom(|times| {
                timed(
                    times,
                    || self.found(),
                    |(fresh, found)| {
                        found.get(fresh.dir.path(), None, None)?;
                        Ok(())
                    },
                )
            });
        });
        group.bench_function("download, cold cache", |bencher| {
            bencher.iter_custom(|times| {
                timed(
                    times,
                    || self.found(),
                    |(fresh, found)| {
                        found.download(fresh.dir.path())?;
                        Ok(())
                    },
                )
            });
        });
        group.bench_function("get, warm cache", |bencher| {
            bencher.iter(|| must(found.get(fresh.dir.path(), None, None)));
        });
        group.bench_function("get_remote", |bencher| {
            bencher.iter(|| must(found.get_remote()));
        });
        group.finish();

        let mut group = criterion.benchmark_group("stage/read");
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function("local file", |bencher| {
            bencher.iter(|| must(open_and_read(&fresh.session, &local, Backend::Gdal)));
        });
        group.bench_function("vsi, cold", |bencher| {
            bencher.iter_custom(|times| {
                timed(
                    times,
                    || self.cold(&fresh),
                    |()| {
                        open_and_read(&fresh.session, &remote, Backend::Gdal)?;
                        Ok(())
                    },
                )
            });
        });
        group.bench_function("vsi, warm", |bencher| {
            bencher.iter(|| must(open_and_read(&fresh.session, &remote, Backend::Gdal)));
        });
        group.finish();
    }

    /// A search with an empty cache.
    fn found(&self) -> Result<(Fresh, QueryResult)> {
        let fresh = Fresh::new(&self.site)?;
        let found = self.site.search(&fresh.session)?;
        Ok((fresh, found))
    }

    fn cold(&self, fresh: &Fresh) -> Result<()> {
        Ok(fresh.session.clear_caches()?)
    }

    fn by_get(&self, fresh: &Fresh) -> Result<()> {
        let found = self.site.search(&fresh.session)?;
        let items = found.get(fresh.dir.path(), None, None)?;
        open_and_read(&fresh.session, &items, Backend::Gdal)?;
        Ok(())
    }

    fn by_remote(&self, fresh: &Fresh) -> Result<()> {
        let found = self.site.search(&fresh.session)?;
        let items = found.get_remote()?;
        open_and_read(&fresh.session, &items, Backend::Gdal)?;
        Ok(())
    }
}

/// Adds up the time of `work`, and leaves out what prepares it.
fn timed<T>(
    times: u64,
    prepare: impl Fn() -> Result<T>,
    work: impl Fn(&T) -> Result<()>,
) -> Duration {
    let mut total = Duration::ZERO;
    for _ in 0..times {
        let ready = must(prepare());
        let start = Instant::now();
        must(work(&ready));
        total += start.elapsed();
    }
    total
}
