//! `rss bench` is the program `rss-bench`, where that is: beside `rss`, or on PATH.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::stage::Ran;

/// A folder with `rss` in it, and nothing beside it.
struct Alone {
    dir: TempDir,
    rss: PathBuf,
}

impl Alone {
    fn new() -> Self {
        // On the file system of the binary: a link to it is not held open for writing, as a copy may be.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_rss"));
        let rss = dir.path().join(built.file_name().unwrap());
        fs::hard_link(built, &rss).unwrap();
        Self { dir, rss }
    }

    fn run(&self, path: &Path, args: &[&str]) -> Ran {
        let mut command = Command::new(&self.rss);
        command
            .env_clear()
            .env("PATH", path)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .arg("bench")
            .args(args);
        Ran::of(command.output().unwrap())
    }
}

#[test]
fn without_the_program_one_line_says_how_to_get_it() {
    let alone = Alone::new();
    for args in [&[][..], &["gather", "--files", "12", "--json"], &["--help"]] {
        let ran = alone.run(Path::new(""), args);
        for said in [
            "rss-bench",
            "neither beside rss nor on PATH",
            "cargo install --path crates/rss_bench",
            "cargo run --release -p rss_bench -- gather",
        ] {
            assert!(ran.error().contains(said), "{said}: {ran:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn the_program_gets_all_arguments_and_its_exit_code_is_kept() {
    // A shell stands in for it: what it is told to run says what it was given.
    let args = [
        "-c",
        "echo \"$@\"; exit 7",
        "name",
        "gather",
        "--json",
        "--help",
        "-h",
        "-",
    ];
    let beside = Alone::new();
    let on_path = Alone::new();
    let elsewhere = on_path.dir.path().join("bin");
    fs::create_dir(&elsewhere).unwrap();
    for folder in [beside.dir.path(), &elsewhere] {
        std::os::unix::fs::symlink("/bin/sh", folder.join("rss-bench")).unwrap();
    }
    for ran in [
        beside.run(Path::new(""), &args),
        on_path.run(&elsewhere, &args),
    ] {
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert_eq!(ran.stdout, b"gather --json --help -h -\n", "{ran:?}");
        assert_eq!(ran.stderr, "");
    }
}
