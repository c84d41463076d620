//! What a session knows of a host: how many requests are under way, until when it wants none, and whether it is away.
//!
//! Where a host does not answer three times in a row, one request asks it and all others wait for what that finds: a
//! thousand files of a dead host cost the time of one. See `docs/decisions/008-network.md`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::{
    fault::Fault,
    retry::{later, pause},
};

/// Failures in a row, with no answer between them, after which a host counts as away.
const FAILURES_IN_A_ROW: u32 = 3;
/// A wait that is this long is told to the user, and again after so many.
const TELL_AFTER: Duration = Duration::from_secs(5);
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The hosts of a session.
#[derive(Debug)]
pub(super) struct Hosts {
    requests: usize,
    backoff: Duration,
    known: Mutex<HashMap<String, Arc<Host>>>,
}

impl Hosts {
    pub(super) fn new(requests: usize, backoff: Duration) -> Self {
        Self {
            requests,
            backoff,
            known: Mutex::default(),
        }
    }

    /// Returns a host by its name and port.
    pub(super) fn get(&self, name: &str) -> Arc<Host> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(name) {
            Some(host) => Arc::clone(host),
            None => {
                let host = Arc::new(Host {
                    name: name.to_owned(),
                    backoff: self.backoff,
                    permits: Arc::new(Semaphore::new(self.requests)),
                    state: Mutex::default(),
                    changed: Notify::new(),
                });
                known.insert(name.to_owned(), Arc::clone(&host));
                host
            }
        }
    }
}

/// One host.
#[derive(Debug)]
pub(super) struct Host {
    name: String,
    backoff: Duration,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When its `Retry-After` ends.
    pause: Option<Instant>,
    /// Failures since the last answer.
    failures: u32,
    since: Option<Instant>,
    told: Option<Instant>,
    away: Option<Away>,
}

/// A host that does not answer.
#[derive(Debug)]
struct Away {
    fault: Fault,
    /// How often it was asked.
    asked: u32,
    /// When it is asked next.
    next: Instant,
    /// True while one request asks it.
    is_asked: bool,
    /// True if a call gave it up: later ones ask it once.
    given_up: bool,
}

/// What a request may do.
enum Admission {
    Go(Turn),
    Wait(Duration),
    /// Waits for what the next request that asks finds, or until it is its own turn.
    Follow(u32, Duration),
}

impl Host {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a permit to send a request.
    pub(super) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Waits until a request may be sent.
    ///
    /// # Errors
    ///
    /// The failure of another request that asked a host that is away.
    pub(super) async fn admit(self: &Arc<Self>) -> Result<Turn, Fault> {
        loop {
            // Made before the state is looked at, so that no change between is lost.
            let changed = self.changed.notified();
            match self.admission() {
                Admission::Go(turn) => return Ok(turn),
                Admission::Wait(pause) => tokio::time::sleep(pause).await,
                Admission::Follow(asked, pause) => {
                    let _ = tokio::time::timeout(pause, changed).await;
                    if let Some(away) = &self.state().away
                        && away.asked > asked
                    {
                        return Err(away.fault.clone());
                    }
                }
            }
        }
    }

    fn admission(self: &Arc<Self>) -> Admission {
        let mut state = self.state();
        if let Some(until) = state.pause {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Admission::Wait(left);
            }
            state.pause = None;
        }
        let asks = match &mut state.away {
            // The time is a guard: a change wakes this earlier.
            Some(away) if away.is_asked => {
                return Admission::Follow(away.asked, Duration::from_secs(1));
            }
            Some(away) if !away.given_up && Instant::now() < away.next => {
                let left = away.next.saturating_duration_since(Instant::now());
                return Admission::Follow(away.asked, left);
            }
            Some(away) => {
                away.is_asked = true;
                true
            }
            None => false,
        };
        Admission::Go(Turn {
            host: Arc::clone(self),
            asks,
        })
    }

    /// Makes every request wait so long.
    pub(super) fn pause(&self, pause: Duration) {
        let until = later(pause);
        let mut state = self.state();
        state.pause = Some(state.pause.map_or(until, |other| other.max(until)));
    }

    /// Records that a call gave up.
    pub(super) fn give_up(&self) {
        if let Some(away) = &mut self.state().away {
            away.given_up = true;
        }
    }

    /// Returns true if a call gave this host up, and nothing was heard of it since.
    pub(super) fn is_given_up(&self) -> bool {
        self.state().away.as_ref().is_some_and(|away| away.given_up)
    }

    /// Returns what is to be told of a wait: since when nothing is heard, if that is long and was not told.
    pub(super) fn to_tell(&self) -> Option<Duration> {
        let mut state = self.state();
        let since = state.since?.elapsed();
        let is_due = match state.told {
            None => since >= TELL_AFTER,
            Some(told) => told.elapsed() >= TELL_AGAIN_AFTER,
        };
        is_due.then(|| {
            state.told = Some(Instant::now());
            since
        })
    }
}

/// The right to send one request. Dropped without a word (its call was cancelled), it leaves all as it was.
#[derive(Debug)]
pub(super) struct Turn {
    host: Arc<Host>,
    /// True if other requests wait for what this one finds.
    asks: bool,
}

impl Turn {
    /// Records an answer. Returns how long the host was away, if that was told.
    pub(super) fn answered(mut self) -> Option<Duration> {
        let mut state = self.host.state();
        let was_told = state.told.take().is_some();
        let since = state.since.take();
        state.failures = 0;
        state.away = None;
        drop(state);
        if std::mem::take(&mut self.asks) {
            self.host.changed.notify_waiters();
        }
        since.filter(|_| was_told).map(|since| since.elapsed())
    }

    /// Records that the host did not answer.
    pub(super) fn failed(mut self, fault: &Fault) {
        let asks = std::mem::take(&mut self.asks);
        let mut state = self.host.state();
        state.since.get_or_insert_with(Instant::now);
        state.failures = state.failures.saturating_add(1);
        let failures = state.failures;
        match &mut state.away {
            Some(away) => {
                away.fault = fault.clone();
                if asks {
                    away.asked = away.asked.saturating_add(1);
                    away.next = Instant::now() + pause(self.host.backoff, away.asked);
                    away.is_asked = false;
                }
            }
            None if failures >= FAILURES_IN_A_ROW => {
                state.away = Some(Away {
                    fault: fault.clone(),
                    asked: 0,
                    next: Instant::now() + self.host.backoff,
                    is_asked: false,
                    given_up: false,
                });
            }
            None => {}
        }
        drop(state);
        if asks {
            self.host.changed.notify_waiters();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.asks {
            if let Some(away) = &mut self.host.state().away {
                away.is_asked = false;
            }
            self.host.changed.notify_waiters();
        }
    }
}
