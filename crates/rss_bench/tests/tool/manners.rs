//! What every comparison keeps to: help, pipes, one line for what is wrong, Ctrl-C.

use super::stage::{RANGES, Ran, Stage, files, interrupt, wait_until};

#[test]
fn every_help_shows_an_example() {
    let stage = Stage::new();
    for comparison in ["gather", "ranges", "zarr"] {
        let ran = stage.run(&[comparison, "--help"]);
        let (_, example) = ran.text().split_once("Example:\n").unwrap();
        assert!(
            example.contains(&format!("rss-bench {comparison}")),
            "{example}"
        );
    }
    let ran = stage.run(&["--help"]);
    assert!(ran.text().contains("Example:\n  rss-bench gather "));
    assert!(!ran.text().contains("zarr-worker"), "{ran:?}");
    let version = stage.run(&["--version"]);
    assert_eq!(
        version.text(),
        concat!("rss-bench ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn no_comparison_prints_the_help_and_is_exit_2() {
    let ran = Stage::new().run(&[]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(2), 0), "{ran:?}");
    assert!(ran.stderr.contains("Usage: rss-bench"), "{ran:?}");
}

#[test]
fn a_broken_pipe_is_no_error() {
    let stage = Stage::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = stage.bench();
    let ran = Ran::of(command.args(RANGES).stdout(writer).output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn what_cannot_be_run_is_one_line_before_anything_starts() {
    let stage = Stage::new();
    let absent = stage.path("absent/report.html");
    let folder = stage.dir.path().to_str().unwrap();
    for (args, said) in [
        (
            &["gather", "--backends", "rasterio"][..],
            "backend `rasterio` is not one of gdal",
        ),
        (&["gather", "--concurrency", "0"], "--concurrency is 0"),
        (&["gather", "--concurrency", "1,x"], "--concurrency"),
        (&["gather", "--files", "0"], "--files is 0"),
        (&["gather", "--repeats", "0"], "--repeats is 0"),
        (&["gather", "--threads", "0"], "--threads is 0"),
        (&["gather", "--html", &absent], "absent/report.html"),
        (&["gather", "--html", folder], "it is a folder"),
        (&["gather", "--html", "/dev/null"], "it is no regular file"),
        (&["gather", "--json", &absent], "absent/report.html"),
        (
            &["ranges", "--profile", "moon"],
            "profile `moon` is not one of home",
        ),
        (&["ranges", "--iterations", "0"], "--iterations is 0"),
        (&["ranges", "--scale", "0"], "--scale is 0"),
        (&["ranges", "--pieces", "10"], "--pieces is 10"),
        (
            &["ranges", "--pieces", "18446744073709551615"],
            "expected 1000 to 1073741824 bytes",
        ),
        (&["ranges", "--html", &absent], "absent/report.html"),
        (&["zarr", "--side", "100"], "--side is 100"),
        (&["zarr", "--inner", "48"], "--inner is 48"),
        (&["zarr", "--side", "64"], "--inner is 64"),
        (&["zarr", "--rounds", "0"], "--rounds is 0"),
        (
            &["zarr", "--data", "sound"],
            "data `sound` is not one of color",
        ),
        (&["zarr", "--peer", "wkw"], "expected NAME=COMMAND"),
        (&["zarr", "--peer", "zarrs=x"], "--peer names `zarrs`"),
        (&["zarr", "--dir", "/dev/null"], "no folder"),
        (&["zarr", "--html", &absent], "absent/report.html"),
        (
            &["zarr-worker", "h5py"],
            "system `h5py` is not one of ours, zarrs",
        ),
        (&["serve", "nonsense"], "not a stock of files"),
    ] {
        let ran = stage.run(args);
        assert!(ran.error().contains(said), "{args:?}: {ran:?}");
        assert_eq!(files(stage.dir.path()).len(), 0);
    }
}

#[test]
fn ctrl_c_ends_a_comparison_and_leaves_no_file() {
    let stage = Stage::new();
    let temporary = tempfile::tempdir().unwrap();
    for command in ["gather", "ranges", "zarr"] {
        let mut bench = stage.bench();
        bench.env("TMPDIR", temporary.path());
        bench.args([command, "--html", "r.html", "--json", "r.json"]);
        let child = bench.spawn().unwrap();
        wait_until(|| files(stage.dir.path()).len() == 2);
        assert_eq!(interrupt(child).error(), "rss-bench: interrupted");
        assert_eq!(files(stage.dir.path()).len(), 0);
        assert_eq!(files(temporary.path()).len(), 0);
    }
}
