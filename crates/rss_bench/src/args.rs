//! The arguments, with help and examples.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Compares ways to the same pixels on servers of its own, and reports.
#[derive(Debug, Parser)]
#[command(
    name = "rss-bench",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Example:\n  rss-bench gather --files 200 --latency 30 --concurrency 1,4,16,64 --html report.html"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) comparison: Comparison,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Comparison {
    /// One tile from each of many files: by several readers, several at once. As many files and runs as
    /// in the published report take most of an hour.
    #[command(
        after_help = "Example:\n  rss-bench gather --files 200 --latency 30 --concurrency 1,4,16,64 --html gather.html\n  rss-bench gather --backends gdal-tuned,async-tiff --repeats 3 --json gather.json"
    )]
    Gather(GatherArgs),
    /// One window by ranged requests: serial, parallel, in pieces, merged; over three networks.
    /// Takes about two minutes.
    #[command(
        after_help = "Example:\n  rss-bench ranges --html ranges.html\n  rss-bench ranges --profile same-region --scale 1 --pieces 10000,262144,1048576 --json -"
    )]
    Ranges(RangesArgs),
    /// Sharded arrays written, read and cut, by rss_core, by plain zarrs and by any other system that
    /// speaks the protocol of scripts/peers/zarr_worker.py.
    #[command(
        after_help = "Example:\n  rss-bench zarr --side 512 --html zarr.html\n  rss-bench zarr --data color --inner 32 --peer \"wkw=python3 scripts/peers/zarr_worker.py wkw\"\n  scripts/peers/zarr --side 512 --html zarr.html"
    )]
    Zarr(ZarrArgs),
    /// Is a system of a comparison of arrays.
    #[command(hide = true)]
    ZarrWorker {
        /// ours or zarrs.
        system: String,
    },
    /// Is the servers of a comparison.
    #[command(hide = true)]
    Serve {
        /// What they hold.
        stock: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GatherArgs {
    /// Files to read one tile of. Each takes half a megabyte of memory.
    #[arg(long, value_name = "N", default_value_t = 1278)]
    pub(crate) files: usize,
    /// The time before the first byte of each answer.
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pub(crate) latency: u64,
    /// Files under way at once, a run for each; threads, for GDAL.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256"
    )]
    pub(crate) concurrency: Vec<usize>,
    /// gdal, gdal-tuned, async-tiff, cog, index, index-adaptive. All of this build if
    /// absent.
    #[arg(long, value_name = "B,..", value_delimiter = ',')]
    pub(crate) backends: Vec<String>,
    /// Runs of each backend at each concurrency; the best is compared.
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) repeats: usize,
    /// Threads that decode, where the backend is not GDAL. One per core if absent.
    #[arg(long, value_name = "T")]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RangesArgs {
    /// Reads of each way that count.
    #[arg(long, value_name = "N", default_value_t = 21)]
    pub(crate) iterations: usize,
    /// Networks: home, other-region, same-region.
    #[arg(
        long,
        value_name = "P,..",
        value_delimiter = ',',
        default_value = "home,other-region,same-region"
    )]
    pub(crate) profile: Vec<String>,
    /// Most bytes of a piece, a way for each.
    #[arg(
        long,
        value_name = "BYTES,..",
        value_delimiter = ',',
        default_value = "10000,262144"
    )]
    pub(crate) pieces: Vec<u64>,
    /// The width of the window: 1 reads 12 MB, as the published measurement. 1 if absent, but a sixth
    /// over the home line: 1 takes ten minutes there.
    #[arg(long, value_name = "S")]
    pub(crate) scale: Option<f64>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ZarrArgs {
    /// Voxels a side of a volume, a power of two from 64 to 1024; images have four times as many pixels.
    /// 1024 takes 5 GB of the disk and up to 10 GB of memory.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) side: u32,
    /// Voxels a side of an inner chunk, a comparison for each; at most half of --side.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "32,64,128"
    )]
    pub(crate) inner: Vec<u32>,
    /// Times that each system writes and reads; all have their turn before the next time.
    #[arg(long, value_name = "R", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Data sets: color (uint8), segmentation (uint32), eo (int16 images over time).
    #[arg(
        long,
        value_name = "D,..",
        value_delimiter = ',',
        default_value = "color,segmentation,eo"
    )]
    pub(crate) data: Vec<String>,
    /// One more system: its name, and the command that a shell runs to be it. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) peer: Vec<String>,
    /// Where data and arrays lie, and stay. A temporary folder, which is removed, if absent.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Where a report goes, beside the text on stdout.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Write one JSON document; `-` or nothing prints it in place of the text.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<String>,
    /// Write one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
