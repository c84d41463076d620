//! What a command tells of its work: logs on stderr, and a file with a line for each request.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use anyhow::{Context, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::{Context as LayerContext, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::args::Logging;

/// The target of the library's events of requests.
const REQUEST: &str = "rss_core::request";

/// What was counted of a run, for its last line.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    begun: Instant,
    counts: Option<Arc<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    repeated: AtomicU64,
}

impl Summary {
    /// Says how long a run took, and what it asked of servers, if logs were asked for.
    pub(crate) fn say(&self) {
        let Some(counts) = &self.counts else { return };
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        tracing::info!(
            seconds = self.begun.elapsed().as_secs_f64(),
            requests = of(&counts.requests),
            bytes = of(&counts.bytes),
            repeated = of(&counts.repeated),
            "done"
        );
    }
}

/// Starts the logs that the arguments ask for; `RUST_LOG` refines them.
pub(crate) fn start(args: &Logging) -> Result<Summary> {
    let begun = Instant::now();
    let asked = std::env::var("RUST_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let level = match (args.verbose, args.log_json) {
        (0, false) => LevelFilter::OFF,
        (0 | 1, _) => LevelFilter::INFO,
        (2, _) => LevelFilter::DEBUG,
        (3.., _) => LevelFilter::TRACE,
    };
    if level == LevelFilter::OFF && asked.is_none() && args.trace.is_none() {
        return Ok(Summary {
            begun,
            counts: None,
        });
    }
    // Crates below say what they do only at `-vvv`.
    let others = if args.verbose > 2 {
        level
    } else {
        LevelFilter::OFF
    };
    let mut targets = Targets::new()
        .with_default(others)
        .with_targets(["rss", "rss_core", "rss_raster"].map(|target| (target, level)));
    if let Some(text) = &asked {
        let refined: Targets = text.parse().map_err(|err| {
            anyhow::anyhow!("RUST_LOG is `{text}`, expected such as rss_core=debug: {err}")
        })?;
        targets = targets.with_targets(
            refined
                .iter()
                .map(|(target, level)| (target.to_owned(), level)),
        );
        if let Some(level) = refined.default_level() {
            targets = targets.with_default(level);
        }
    }
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    let counts = Arc::new(Counts::default());
    let requests = || Targets::new().with_target(REQUEST, Level::DEBUG);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match args.log_json {
        true => lines
            .json()
            .flatten_event(true)
            .with_filter(targets)
            .boxed(),
        false => lines
            .without_time()
            .with_ansi(false)
            .with_filter(targets)
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(lines)
        .with(trace.map(|trace| trace.with_filter(requests())))
        .with(Counting(Arc::clone(&counts)).with_filter(requests()))
        .try_init()
        .context("logs cannot be started")?;
    Ok(Summary {
        begun,
        counts: Some(counts),
    })
}

/// Writes one JSON line for each request.
#[derive(Debug)]
struct Trace(Mutex<File>);

impl Trace {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("--trace {}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }
}

impl<S: Subscriber> Layer<S> for Trace {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let now = DateTime::<Utc>::from(SystemTime::now());
        let mut fields = Fields(Map::new());
        let time = now.to_rfc3339_opts(SecondsFormat::Micros, true);
        fields.0.insert("time".to_owned(), time.into());
        event.record(&mut fields);
        fields.0.remove("message");
        for absent in ["range", "status"] {
            fields.0.entry(absent).or_insert(Value::Null);
        }
        let mut line = Value::Object(fields.0).to_string();
        line.push('\n');
        // Whole lines, at once: the process may end at any moment. A full disk must not end the work that is traced.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line.as_bytes());
    }
}

/// Counts requests.
#[derive(Debug)]
struct Counting(Arc<Counts>);

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let number = |name: &str| fields.0.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(number("bytes"), Ordering::Relaxed);
        let is_repeated = number("attempt") > 1;
        self.0
            .repeated
            .fetch_add(is_repeated.into(), Ordering::Relaxed);
    }
}

/// The fields of an event as JSON.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().to_owned(), format!("{value:?}").into());
    }
}
