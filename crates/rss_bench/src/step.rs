//! How far a comparison is, for who watches it.

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// Parts that are done.
    pub(crate) done: usize,
    /// Parts in all.
    pub(crate) of: usize,
    /// What is under way.
    pub(crate) now: &'a str,
}

/// Is told of each step.
pub(crate) type Watch<'a> = &'a (dyn Fn(Step<'_>) + Send + Sync);
