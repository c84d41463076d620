//! The program `rss-bench`, run as a user runs it: a process, its exit code, stdout and stderr.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod tool {
    pub(crate) mod comparisons;
    pub(crate) mod manners;
    pub(crate) mod page;
    pub(crate) mod stage;
}
