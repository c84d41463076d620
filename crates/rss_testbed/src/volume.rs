//! Arrays to store: a volume of cells as a microscope sees them, their labels, and a cube of images.
//!
//! All is counted in whole numbers, so every machine makes the same bytes. The sketch of cells: centres on
//! a jittered grid, each voxel to the nearest; where two are about as near there is a membrane.

use std::{
    io::{self, Write},
    str::FromStr,
};

use anyhow::Context;
use rayon::prelude::*;
use serde::Serialize;

/// Voxels from one cell's centre to the next.
const CELL: i32 = 48;
/// Noise of the microscope, in grey values: blosc-zstd level 5 stores chunks of 32 x 32 x 32 at 0.79 of
/// their size.
const GREY_NOISE: i32 = 11;
/// Dates of the cube of images.
const DATES: u64 = 16;
/// Bands of each date.
const BANDS: u64 = 2;
/// What a pixel under a cloud is.
pub const NODATA: i16 = -999;
/// Bytes that are made before they are written.
const BATCH_BYTES: u64 = 64 << 20;

/// An array of made-up samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Volume {
    /// What a microscope sees, (z, y, x), `uint8`: textured cells and dark membranes.
    Color,
    /// The number of each cell, (z, y, x), `uint32`; 0 on membranes.
    Segmentation,
    /// Images of one place, (time, band, y, x), `int16`: terrain, noise, and clouds of [`NODATA`].
    Eo,
}

impl Volume {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Color, Self::Segmentation, Self::Eo];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Color => "color",
            Self::Segmentation => "segmentation",
            Self::Eo => "eo",
        }
    }

    /// Returns numpy's name of its samples.
    pub fn dtype(self) -> &'static str {
        match self {
            Self::Color => "uint8",
            Self::Segmentation => "uint32",
            Self::Eo => "int16",
        }
    }

    /// Returns the bytes of a sample.
    pub fn sample_bytes(self) -> u64 {
        match self {
            Self::Color => 1,
            Self::Segmentation => 4,
            Self::Eo => 2,
        }
    }

    /// Returns the samples of each axis, where a volume has `side` to a side; images have four times that.
    pub fn shape(self, side: u32) -> Vec<u64> {
        let side = u64::from(side);
        match self {
            Self::Color | Self::Segmentation => vec![side; 3],
            Self::Eo => vec![DATES, BANDS, 4 * side, 4 * side],
        }
    }

    /// Writes the samples, little-endian in C order. All CPU threads make them.
    ///
    /// # Errors
    ///
    /// What `out` answers.
    pub fn write(self, side: u32, out: &mut impl Write) -> io::Result<()> {
        let shape = self.shape(side);
        let (outer, inner) = shape.split_at(shape.len() - 2);
        let planes: u64 = outer.iter().product();
        let bytes = inner.iter().product::<u64>() * self.sample_bytes();
        let batch = (BATCH_BYTES / bytes.max(1)).max(rayon::current_num_threads() as u64);
        let mut first = 0;
        while first < planes {
            let end = planes.min(first + batch);
            let made: Vec<Vec<u8>> = (first..end)
                .into_par_iter()
                .map(|plane| self.plane(side, plane))
                .collect();
            for plane in &made {
                out.write_all(plane)?;
            }
            first = end;
        }
        Ok(())
    }

    /// Returns the bytes of one plane of the last two axes.
    fn plane(self, side: u32, plane: u64) -> Vec<u8> {
        let (side, at) = (side as i32, plane as i32);
        match self {
            Self::Color => {
                let mut bytes = Vec::with_capacity((side * side) as usize);
                cells(side, at, |y, x, id, gap| {
                    bytes.push(grey(x, y, at, id, gap))
                });
                bytes
            }
            Self::Segmentation => {
                let mut bytes = Vec::with_capacity((side * side) as usize * 4);
                cells(side, at, |_, _, id, gap| {
                    let label = if gap < 60 { 0 } else { id };
                    bytes.extend_from_slice(&label.to_le_bytes());
                });
                bytes
            }
            Self::Eo => {
                let bands = BANDS as i32;
                image(4 * side, at / bands, at % bands)
            }
        }
    }
}

impl FromStr for Volume {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.iter().find(|volume| volume.name() == text);
        let names: Vec<&str> = Self::ALL.iter().map(|volume| volume.name()).collect();
        found
            .copied()
            .with_context(|| format!("data `{text}` is not one of {}", names.join(", ")))
    }
}

/// The finaliser of splitmix64: every bit of the key stirs every bit of the result.
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns a number of a place and a seed below 16.
fn stirred(x: i32, y: i32, z: i32, seed: u64) -> u64 {
    let part = |value: i32| u64::from(value as u32 & 0xF_FFFF);
    mix(seed << 60 | part(z) << 40 | part(y) << 20 | part(x))
}

/// The centre of a cell, and its number.
#[derive(Clone, Copy, Default)]
struct Centre {
    x: i32,
    /// The square of the distance in the two other axes.
    beside: i32,
    id: u32,
}

/// Tells of each voxel of a plane the nearest cell and how much farther the next one is, in squares.
fn cells(side: i32, z: i32, mut tell: impl FnMut(i32, i32, u32, i32)) {
    let first = |at: i32| (at - CELL / 2).div_euclid(CELL);
    for y in 0..side {
        let mut x = 0;
        while x < side {
            // The same eight centres are nearest from here to the end of the run.
            let column = first(x);
            let end = side.min((column + 1) * CELL + CELL / 2);
            let mut centres = [Centre::default(); 8];
            for (corner, centre) in (0..).zip(&mut centres) {
                let cell = |first: i32, bit: i32| first + (corner >> bit & 1);
                let (cx, cy, cz) = (cell(column, 0), cell(first(y), 1), cell(first(z), 2));
                let key = stirred(cx, cy, cz, 1);
                let jitter = |axis: u32| {
                    let share = (key >> (axis * 13) & 0x1FFF) as i32;
                    CELL / 4 + share * (CELL / 2) / 0x2000
                };
                let (dy, dz) = (cy * CELL + jitter(1) - y, cz * CELL + jitter(2) - z);
                *centre = Centre {
                    x: cx * CELL + jitter(0),
                    beside: dy * dy + dz * dz,
                    id: (key >> 40) as u32 | 1,
                };
            }
            for x in x..end {
                let (mut nearest, mut id, mut next) = (i32::MAX, 0, i32::MAX);
                for centre in &centres {
                    let far = (centre.x - x) * (centre.x - x) + centre.beside;
                    if far < nearest {
                        (next, nearest, id) = (nearest, far, centre.id);
                    } else if far < next {
                        next = far;
                    }
                }
                tell(y, x, id, next - nearest);
            }
            x = end;
        }
    }
}

/// Returns what the microscope sees of a voxel.
fn grey(x: i32, y: i32, z: i32, id: u32, gap: i32) -> u8 {
    let base = match gap < 180 {
        true => 90,
        false => 150 + (mix(u64::from(id)) % 24) as i32,
    };
    let value = base + bell(stirred(x, y, z, 2)) * GREY_NOISE / 148;
    value.clamp(0, 255) as u8
}

/// Returns a number about 0, of a standard deviation of 148: the sum of four bytes.
fn bell(key: u64) -> i32 {
    let bytes = [key, key >> 8, key >> 16, key >> 24];
    bytes.map(|byte| (byte & 0xFF) as i32).iter().sum::<i32>() - 510
}

/// Returns the bytes of one band of one date.
fn image(side: i32, date: i32, band: i32) -> Vec<u8> {
    // Some dates are clear, some are mostly cloud.
    let cover = (stirred(date, 0, 0, 3) % 620) as i32;
    let season = (date - 8).abs() * 25;
    let mut bytes = Vec::with_capacity((side * side) as usize * 2);
    let mut terrain = Terrain::new(0, [512, 128, 32], side);
    let mut cloud = Terrain::new(1 + date, [384, 96, 48], side);
    for row in 0..side {
        terrain.enter(row);
        cloud.enter(row);
        for col in 0..side {
            let value = match cloud.at(col) < cover {
                true => i32::from(NODATA),
                false => {
                    let ground = 300 + 900 * band + terrain.at(col) * (2 + band) / 2;
                    let noise = bell(stirred(col, row, 2 * date + band, 4)) / 12;
                    ground + season + noise
                }
            };
            bytes.extend_from_slice(&(value as i16).to_le_bytes());
        }
    }
    bytes
}

/// A smooth field from 0 to 1023: lattices of random heights, coarse to fine, between which it goes
/// without a bend.
struct Terrain {
    seed: i32,
    periods: [i32; 3],
    /// The heights of the lattices along the row that was entered, in 1/256.
    rows: [Vec<i32>; 3],
    side: i32,
}

/// The share of each lattice, in 1/8.
const WEIGHTS: [i32; 3] = [5, 2, 1];

impl Terrain {
    fn new(seed: i32, periods: [i32; 3], side: i32) -> Self {
        Self {
            seed,
            periods,
            rows: Default::default(),
            side,
        }
    }

    fn enter(&mut self, row: i32) {
        for (period, heights) in self.periods.iter().zip(&mut self.rows) {
            let (above, share) = (row / period, bend(row % period, *period));
            heights.clear();
            heights.extend((0..=self.side / period + 1).map(|col| {
                let height =
                    |row: i32| (stirred(col, row, self.seed * 1024 + period, 5) & 0x3FF) as i32;
                height(above) * (256 - share) + height(above + 1) * share
            }));
        }
    }

    fn at(&self, col: i32) -> i32 {
        let mut sum = 0;
        for ((period, heights), weight) in self.periods.iter().zip(&self.rows).zip(WEIGHTS) {
            let (left, share) = ((col / period) as usize, bend(col % period, *period));
            let height = |at: usize| heights.get(at).copied().unwrap_or_default();
            let between = height(left) * (256 - share) + height(left + 1) * share;
            sum += weight * (between >> 16);
        }
        sum / 8
    }
}

/// Returns how far a place is between two others, in 1/256; level at both.
fn bend(at: i32, period: i32) -> i32 {
    let share = at * 256 / period;
    (share * share * (768 - 2 * share)) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(volume: Volume, side: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        volume.write(side, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn every_machine_makes_the_same_bytes() {
        let crc = |volume| crc32fast::hash(&made(volume, 64));
        assert_eq!(
            [Volume::Color, Volume::Segmentation, Volume::Eo].map(crc),
            [0x3F6E_65F8, 0x478B_5568, 0x5BD2_FB10]
        );
    }

    #[test]
    fn the_samples_fill_the_shape() {
        for &volume in Volume::ALL {
            let samples: u64 = volume.shape(32).iter().product();
            assert_eq!(
                made(volume, 32).len() as u64,
                samples * volume.sample_bytes()
            );
        }
    }

    #[test]
    fn cells_are_large_and_membranes_are_thin() {
        let bytes = made(Volume::Segmentation, 96);
        let (labels, _) = bytes.as_chunks::<4>();
        let membrane = labels.iter().filter(|label| **label == [0; 4]).count();
        let share = membrane as f64 / labels.len() as f64;
        assert!((0.02..0.3).contains(&share), "{share}");
        let mut ids: Vec<_> = labels.to_vec();
        ids.sort_unstable();
        ids.dedup();
        assert!((8..80).contains(&ids.len()), "{}", ids.len());
    }

    #[test]
    fn images_have_clouds_on_some_dates_and_ground_on_others() {
        let bytes = made(Volume::Eo, 64);
        let (samples, _) = bytes.as_chunks::<2>();
        let samples: Vec<i16> = samples.iter().map(|le| i16::from_le_bytes(*le)).collect();
        let clouds: Vec<f64> = samples
            .chunks(2 * 256 * 256)
            .map(|date| {
                let cloudy = date.iter().filter(|&&sample| sample == NODATA).count();
                cloudy as f64 / date.len() as f64
            })
            .collect();
        assert!(clouds.iter().any(|&share| share < 0.05), "{clouds:?}");
        assert!(clouds.iter().any(|&share| share > 0.3), "{clouds:?}");
        let ground = samples.iter().filter(|&&sample| sample != NODATA);
        assert!(ground.clone().min() > Some(&100) && ground.max() < Some(&4000));
    }
}
