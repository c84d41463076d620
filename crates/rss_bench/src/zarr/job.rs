//! What a system is asked, one JSON object a line, and what it answers.
//!
//! `scripts/peers/zarr_worker.py` speaks the same, for systems in Python.

use serde::{Deserialize, Serialize};

/// What a system is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(super) enum Job {
    /// Say who it is.
    Hello,
    /// Store an array; what was there is removed.
    Write {
        /// Raw samples: little-endian, in C order.
        source: String,
        dtype: String,
        shape: Vec<u64>,
        shard: Vec<u64>,
        inner: Vec<u64>,
        to: String,
        codec: String,
    },
    /// Open an array and read all of it.
    Read {
        from: String,
        dtype: String,
        shape: Vec<u64>,
    },
    /// Read a box, several times.
    Cutout {
        from: String,
        offset: Vec<u64>,
        shape: Vec<u64>,
        times: usize,
        /// Whether the array is opened each time.
        fresh: bool,
    },
}

/// Who a system is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) system: String,
    pub(super) version: String,
    /// How it stores what it is not told how to store.
    pub(super) codec: String,
}

/// What it cost to write, or to read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
}

/// What was read, and what it cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    pub(super) cost: Cost,
    /// Of the samples, little-endian in C order.
    pub(super) crc32: u32,
}

/// What was cut out, and how long each time took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cut {
    pub(super) seconds: Vec<f64>,
    pub(super) crc32: u32,
}

/// What a system answers where it cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}
