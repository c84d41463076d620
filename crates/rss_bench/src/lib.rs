//! What the Criterion benches in `/benches` share, and the demo.
//!
//! A bench of the crate `rss_core` asks [`site!`] where its build reads, puts [`ways`] to the same pixels side by side
//! there, and checks what they return before it times anything. It compiles without features, and switches none of
//! `rss_core`'s on. The comparisons of the program `rss-bench` are no part of it: they are modules of `main.rs`.

pub mod apart;
pub mod harness;
pub mod site;
pub mod tiles;
pub mod ways;
