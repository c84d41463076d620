//! The last part of a pixel's geometric median, in `f64`: an observation exactly where it is the optimum, else the
//! optimum by Newton's method.
//!
//! Weiszfeld's iteration crawls where the optimum is an observation, or near one: its weight, 1 / distance, holds the
//! estimate. Whether an observation is the optimum can be asked of it directly: the resultant of the unit vectors to the
//! other observations is not longer than the number of observations there
//! ([Vardi and Zhang 2000](https://doi.org/10.1073/pnas.97.4.1423)). Elsewhere the sum of distances is smooth and
//! convex, so Newton's steps, shortened where the sum would grow, end there in a few.

/// The most steps: a bound for observations on a line, where the sum of distances has no curvature across.
const MOST_STEPS: usize = 60;

/// A step of Newton shorter than this share of the spread is the last: the error after it is near the square of it.
const LAST_STEP: f64 = 1e-7;

/// Observations nearer to the last estimate, as a share of the spread, may be the optimum.
const NEAR: f64 = 1e-6;

/// How much shorter than its bound a resultant must be for an observation to be the only optimum: in between lies
/// rounding, and observations on a line, where all points between two are as good.
const INSIDE: f64 = 1.0 - 1e-9;

/// The observations of one pixel, and an estimate of their median.
#[derive(Debug)]
pub(super) struct Exact {
    bands: usize,
    /// The bands of each observation, one observation after the other.
    pub(super) points: Vec<f64>,
    /// The estimate.
    pub(super) at: Vec<f64>,
    trial: Vec<f64>,
    gradient: Vec<f64>,
    step: Vec<f64>,
    /// Bands by bands, row by row; the diagonal and what is below it.
    curvature: Vec<f64>,
}

/// The other observations, seen from one of them.
struct Pull {
    /// The length of the sum of the unit vectors to them.
    resultant: f64,
    /// The observations that are where this one is.
    here: f64,
    /// The sum of 1 / distance.
    weights: f64,
}

impl Exact {
    pub(super) fn new(bands: usize) -> Self {
        Self {
            bands,
            points: Vec::new(),
            at: vec![0.0; bands],
            trial: vec![0.0; bands],
            gradient: vec![0.0; bands],
            step: vec![0.0; bands],
            curvature: vec![0.0; bands * bands],
        }
    }

    /// Moves the estimate to the median. Returns the number of the observation that it is, if it is one.
    pub(super) fn settle(&mut self, spread: f64) -> Option<usize> {
        if let Some(number) = self.approach(spread) {
            return Some(number);
        }
        // Beside a far outlier several observations may lie where steps end, and not all have been asked.
        for number in 0..self.points.len() / self.bands {
            if self.distance(number) <= NEAR * spread {
                let pull = self.pull(number);
                if pull.resultant <= pull.here * INSIDE {
                    return Some(number);
                }
            }
        }
        None
    }

    fn approach(&mut self, spread: f64) -> Option<usize> {
        let mut asked = None;
        for _ in 0..MOST_STEPS {
            let nearest = self.nearest()?;
            if asked != Some(nearest) {
                asked = Some(nearest);
                let pull = self.pull(nearest);
                if pull.resultant <= pull.here * INSIDE {
                    return Some(nearest);
                }
                if self.distance(nearest) <= 1e-9 * spread {
                    self.leave(nearest, &pull);
                    continue;
                }
            }
            if !self.descend(spread) {
                break;
            }
        }
        None
    }

    fn point(&self, number: usize) -> &[f64] {
        let from = number * self.bands;
        self.points.get(from..from + self.bands).unwrap_or_default()
    }

    fn distance(&self, number: usize) -> f64 {
        distance(self.point(number), &self.at)
    }

    fn nearest(&self) -> Option<usize> {
        let distances = self
            .points
            .chunks_exact(self.bands)
            .map(|point| distance(point, &self.at));
        let nearest = distances
            .enumerate()
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        nearest.map(|(number, _)| number)
    }

    /// Looks at all observations from one of them; leaves the sum of the unit vectors in `gradient`.
    fn pull(&mut self, number: usize) -> Pull {
        self.gradient.fill(0.0);
        let from = number * self.bands;
        let origin = self.points.get(from..from + self.bands).unwrap_or_default();
        let (mut here, mut weights) = (0.0, 0.0);
        for point in self.points.chunks_exact(self.bands) {
            let away = distance(point, origin);
            if away == 0.0 {
                here += 1.0;
                continue;
            }
            weights += 1.0 / away;
            for ((sum, point), origin) in self.gradient.iter_mut().zip(point).zip(origin) {
                *sum += (point - origin) / away;
            }
        }
        Pull {
            resultant: length(&self.gradient),
            here,
            weights,
        }
    }

    /// Moves from an observation that is not the optimum, by the step of Vardi and Zhang.
    fn leave(&mut self, number: usize, pull: &Pull) {
        let part = (1.0 - pull.here / pull.resultant).max(0.0) / pull.weights;
        let from = number * self.bands;
        let origin = self.points.get(from..from + self.bands).unwrap_or_default();
        for ((at, origin), pull) in self.at.iter_mut().zip(origin).zip(&self.gradient) {
            *at = origin + part * pull;
        }
    }

    /// Takes one step; false where it was the last.
    fn descend(&mut self, spread: f64) -> bool {
        self.gradient.fill(0.0);
        self.curvature.fill(0.0);
        let (mut sum, mut weights) = (0.0, 0.0);
        for point in self.points.chunks_exact(self.bands) {
            let away = distance(point, &self.at);
            if away == 0.0 {
                continue;
            }
            sum += away;
            let weight = 1.0 / away;
            weights += weight;
            for ((unit, at), point) in self.step.iter_mut().zip(&self.at).zip(point) {
                *unit = (at - point) * weight;
            }
            let rows = self.curvature.chunks_exact_mut(self.bands);
            for (band, (row, gradient)) in rows.zip(&mut self.gradient).enumerate() {
                let unit = self.step.get(band).copied().unwrap_or_default();
                *gradient += unit;
                let across = self.step.iter().take(band + 1);
                for (other, (cell, across)) in row.iter_mut().zip(across).enumerate() {
                    *cell += weight * (f64::from(u8::from(other == band)) - unit * across);
                }
            }
        }
        let is_curved = solve(&mut self.curvature, &self.gradient, &mut self.step);
        if is_curved {
            let whole = length(&self.step);
            for share in [1.0, 0.5, 0.25, 0.125] {
                if self.moved(share) <= sum {
                    self.at.copy_from_slice(&self.trial);
                    return whole > LAST_STEP * spread;
                }
            }
        }
        // Weiszfeld's step, which never leads up.
        for (step, gradient) in self.step.iter_mut().zip(&self.gradient) {
            *step = gradient / weights;
        }
        if self.moved(1.0) >= sum {
            return false;
        }
        self.at.copy_from_slice(&self.trial);
        length(&self.step) > 1e-12 * spread
    }

    /// Sets `trial` to the estimate less a share of `step`; returns the sum of distances there.
    fn moved(&mut self, share: f64) -> f64 {
        for ((trial, at), step) in self.trial.iter_mut().zip(&self.at).zip(&self.step) {
            *trial = at - share * step;
        }
        let points = self.points.chunks_exact(self.bands);
        points.map(|point| distance(point, &self.trial)).sum()
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|part| part * part).sum::<f64>().sqrt()
}

/// Solves a symmetric system by Cholesky's factors, which replace the matrix; false where it is not safely positive
/// definite.
fn solve(matrix: &mut [f64], right: &[f64], out: &mut [f64]) -> bool {
    let size = right.len();
    let at = |row: usize, col: usize| row * size + col;
    let largest = (0..size)
        .filter_map(|i| matrix.get(at(i, i)).copied())
        .fold(0.0, f64::max);
    let cell = |matrix: &[f64], row, col| matrix.get(at(row, col)).copied().unwrap_or_default();
    for row in 0..size {
        for col in 0..=row {
            let done: f64 = (0..col)
                .map(|k| cell(matrix, row, k) * cell(matrix, col, k))
                .sum();
            let rest = cell(matrix, row, col) - done;
            let made = if row != col {
                rest / cell(matrix, col, col)
            } else if rest > 1e-13 * largest {
                rest.sqrt()
            } else {
                return false;
            };
            if let Some(cell) = matrix.get_mut(at(row, col)) {
                *cell = made;
            }
        }
    }
    let value = |out: &[f64], index: usize| out.get(index).copied().unwrap_or_default();
    for row in 0..size {
        let done: f64 = (0..row).map(|k| cell(matrix, row, k) * value(out, k)).sum();
        let made = (value(right, row) - done) / cell(matrix, row, row);
        if let Some(out) = out.get_mut(row) {
            *out = made;
        }
    }
    for row in (0..size).rev() {
        let done: f64 = (row + 1..size)
            .map(|k| cell(matrix, k, row) * value(out, k))
            .sum();
        let made = (value(out, row) - done) / cell(matrix, row, row);
        if let Some(out) = out.get_mut(row) {
            *out = made;
        }
    }
    true
}
