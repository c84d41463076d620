//! A file that is damaged, or is no index, is one clear error and never a panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
};

use rss_core::{
    ErrorKind, Location,
    index::{Index, Select},
};

use super::written;

/// Reads all that can be read of a file; errors are welcome.
fn read(path: &std::path::Path) {
    let Ok(index) = Index::open(path) else { return };
    index.info();
    if let Ok(entries) = index.entries(&Select::all()) {
        for entry in entries {
            if entry.is_err() {
                break;
            }
        }
    }
    let _ = index.entry("item-000003", "red");
    let location = Location::parse("s3://bucket/item-000002/red.tif").unwrap();
    let _ = index.find(&[location]);
}

/// The variable that turns a run of this test binary into the child whose output is looked at.
const CHILD: &str = "RSS_TEST_DAMAGE";

#[test]
fn no_damage_panics_or_prints() {
    if std::env::var_os(CHILD).is_none() {
        // What a panic prints goes past the test's own output: a process of its own shows it.
        let test = "index::damage::no_damage_panics_or_prints";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
        let ran = child.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && !said.contains("panicked"), "{said}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    written(&path, &[1, 0, 30, 5, 700]);
    let whole = std::fs::read(&path).unwrap();
    let check = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let done = catch_unwind(AssertUnwindSafe(|| read(&path)));
        assert!(done.is_ok(), "{what}");
    };
    let step = (whole.len() / 150).max(1);
    for length in (0..whole.len()).step_by(step) {
        check(&whole[..length], &format!("cut to {length}"));
    }
    let mut seed = 1_u32;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed as usize
    };
    let length = u32::from_le_bytes(whole[whole.len() - 8..][..4].try_into().unwrap());
    for round in 0..1200 {
        let mut bytes = whole.clone();
        // Half of the flips hit the footer, where all sizes are.
        let footer = whole.len() - 8 - length as usize;
        for _ in 0..1 + round % 4 {
            let at = match round % 2 {
                0 => random() % whole.len(),
                _ => footer + random() % (whole.len() - footer),
            };
            bytes[at] ^= 1 << (random() % 8);
        }
        check(&bytes, &format!("round {round}"));
    }
}

#[test]
fn what_is_no_index_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    for bytes in [&b""[..], b"PAR1", b"<html><body>", &[0; 100]] {
        std::fs::write(&path, bytes).unwrap();
        let err = Index::open(&path).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt);
        assert!(
            err.to_string()
                .contains("a.parquet: not a readable Parquet file"),
            "{err}"
        );
        assert!(err.message().contains("expected"), "{err}");
    }
    assert_eq!(
        Index::open(dir.path()).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let none = dir.path().join("none.parquet");
    assert_eq!(Index::open(none).unwrap_err().kind(), ErrorKind::NotFound);
}
