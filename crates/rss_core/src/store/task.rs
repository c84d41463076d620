//! Tasks of their own: futures that are polled whether or not their caller polls theirs, and panics told as errors.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
};

use tokio::task::{JoinError, JoinHandle};

use crate::error::{Error, ErrorKind, Result};

/// A task that is aborted when its handle is dropped.
struct Held<T>(JoinHandle<T>);

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a future as a task of the runtime, which is cancelled if the returned future is dropped.
///
/// What holds a permit of a host or a share of a byte budget runs like this: a future that its caller stopped polling
/// would keep them for ever, and what waits for them may be what the caller polls instead.
///
/// # Errors
///
/// Those of the future; [`ErrorKind::Other`] with the message of its panic.
pub(crate) fn spawned<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    let mut task = Held(tokio::spawn(future));
    async move { (&mut task.0).await.map_err(lost)? }
}

fn lost(err: JoinError) -> Error {
    match err.try_into_panic() {
        Ok(payload) => panicked(payload.as_ref()),
        Err(err) => Error::new(
            ErrorKind::Unavailable,
            "the runtime shut down during a task",
        )
        .with_source(err),
    }
}

/// Runs the caller's code; a panic of it is an error with its words.
pub(crate) fn told<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    // What it touched is dropped with the error, and not looked at again.
    panic::catch_unwind(AssertUnwindSafe(code))
        .unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
}

/// Returns the error that a panic becomes: not one that may pass, and with the words of the panic.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Error {
    let words = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = match words {
        Some(words) => format!("the code panicked: {words}"),
        None => "the code panicked".to_owned(),
    };
    Error::new(ErrorKind::Other, message)
}
