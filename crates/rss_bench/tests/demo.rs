//! `rss-demo` on small scenes: every path from a query to pixels, side by side.

use std::process::Command;

#[test]
fn the_demo_compares_every_path_and_all_pixels_agree() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_rss-demo"));
    let args = ["--scenes", "small", "--latency", "0", "--rounds", "1"];
    let ran = demo.args(args).output().unwrap();
    let (text, said) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    // It ends with an error where the pixels of two paths differ.
    assert!(ran.status.success(), "{text}{said}");
    for path in ["download", "get", "get_remote", "cog"] {
        assert!(text.contains(path), "{path}: {text}");
    }
}
