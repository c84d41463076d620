//! Formulas over bands, such as `(nir - red) / (nir + red)`: parsed once, computed in rows of pixels.
//!
//! docs/FORMULAS.md has the grammar, and what a missing value does.

mod parse;
mod program;
mod token;

use std::{fmt, str::FromStr, sync::Arc};

use ndarray::{Array3, ArrayView1, ArrayView3, ArrayViewMut3, Axis};

use self::program::{LANES, Program, Real};
use super::{
    block::{Block, BlockSample, place_of},
    cube::ImageCube,
    options::ApplyOptions,
    reduce::{Reducer, reduced_as},
    run::Apply,
};
use crate::error::{Error, ErrorKind, Result};

/// A formula over the bands of a cube, with the precedence of mathematics and Python: `-x^2` is `-(x^2)`, `2^3^2` is
/// `2^9`.
///
/// | | |
/// |---|---|
/// | arithmetic | `+ - * /`, `//` (floor), `%` (sign of the divisor), `^` and `**` |
/// | conditions, 1 or 0 | `< <= > >= == !=`, `and or not`; `& \| ~` of conditions in brackets |
/// | choice | `where(condition, a, b)`, `min(a, b, ..)`, `max(a, b, ..)`, `clip(x, low, high)` |
/// | functions | `abs sign sqrt cbrt exp expm1 log log1p log2 log10 floor ceil round trunc fract hypot fmod isnan isfinite`, `sin` and the like |
/// | constants | `pi`, `tau`, `e`, `nan` |
/// | bands | `red`, `asset:2`; any other name in quotes, backquotes or braces: `'B8-A'`, `{10m}` |
///
/// `log` is the natural logarithm. What is computed of a missing value (NaN) is missing, conditions too; the branch of
/// `where` that is not chosen does not count. A result that is not finite is missing.
///
/// The text may start with a name for the result: `ndvi=(nir-red)/(nir+red)`.
///
/// ```
/// use rss_core::apply::Expression;
///
/// let ndvi: Expression = "ndvi = (nir - red) / (nir + red)".parse()?;
/// assert_eq!(ndvi.name(), "ndvi");
/// assert_eq!(ndvi.bands(), ["nir", "red"]);
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Expression {
    name: String,
    formula: String,
    bands: Vec<String>,
    program: Arc<Program>,
}

impl Expression {
    /// Parses formulas whose results will lie side by side.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the first that is no formula, or that has the name of one before it.
    pub fn parse_all(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Self>> {
        let formulas = texts.into_iter().map(|text| text.as_ref().parse());
        let formulas = formulas.collect::<Result<Vec<Self>>>()?;
        check_names(&formulas)?;
        Ok(formulas)
    }

    /// Returns the name of the result: the one before `=`, or the formula.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the formula without the name of its result.
    pub fn formula(&self) -> &str {
        &self.formula
    }

    /// Returns the names of the bands it needs, in alphabetical order.
    pub fn bands(&self) -> &[String] {
        &self.bands
    }

    /// Computes each date of a block, (time, y, x), in `f32`. A pixel is NaN where a value that it is computed of is
    /// missing, or the formula has no finite value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a band that the block lacks.
    pub fn of(&self, block: &Block<f32>) -> Result<Array3<f32>> {
        self.dates(block)
    }

    fn dates<T: Real>(&self, block: &Block<T>) -> Result<Array3<T>> {
        let (times, _, height, width) = block.data().dim();
        let mut out = Array3::from_elem((times, height, width), T::NAN);
        self.put(block, out.view_mut())?;
        Ok(out)
    }

    /// Writes the result for each time step of a block, (time, y, x), into an array.
    fn put<T: Real>(&self, block: &Block<T>, out: ArrayViewMut3<'_, T>) -> Result<()> {
        let bands = self.bands.iter().map(|band| block.band(band));
        self.compute(&bands.collect::<Result<Vec<_>>>()?, out);
        Ok(())
    }

    /// Computes bands, (time, y, x) each, in the order of [`bands`](Self::bands).
    fn compute<T: Real>(&self, bands: &[ArrayView3<'_, T>], mut out: ArrayViewMut3<'_, T>) {
        let mut room = self.program.room::<T>();
        let mut made = [T::NAN; LANES];
        // Rows that do not lie contiguously in memory are copied.
        let mut copies = vec![vec![T::NAN; LANES]; bands.len()];
        let mut rows: Vec<ArrayView1<'_, T>> = Vec::with_capacity(bands.len());
        for (time, mut image) in out.axis_iter_mut(Axis(0)).enumerate() {
            for (y, mut out) in image.axis_iter_mut(Axis(0)).enumerate() {
                rows.clear();
                rows.extend(bands.iter().map(|view| {
                    let image = view.index_axis_move(Axis(0), time);
                    image.index_axis_move(Axis(0), y)
                }));
                for (run, out) in out.axis_chunks_iter_mut(Axis(0), LANES).enumerate() {
                    let run = run * LANES..run * LANES + out.len();
                    let operands = rows.iter().zip(&mut copies).map(|(row, copy)| {
                        let samples = row.slice_move(ndarray::s![run.clone()]);
                        match samples.to_slice() {
                            Some(samples) => samples,
                            None => {
                                let copied = copy.iter_mut().zip(samples);
                                copied.for_each(|(copy, &sample)| *copy = sample);
                                copy.get(..run.len()).unwrap_or_default()
                            }
                        }
                    });
                    let operands: Vec<&[T]> = operands.collect();
                    let made = made.get_mut(..run.len()).unwrap_or_default();
                    self.program.run(&operands, &mut room, made);
                    for (out, &mut value) in out.into_iter().zip(made) {
                        *out = value;
                    }
                }
            }
        }
    }
}

/// Checks that each result has a name of its own: of two bands of one name one would be taken for the other.
fn check_names(formulas: &[Expression]) -> Result<()> {
    for (number, formula) in formulas.iter().enumerate() {
        let mut before = formulas.iter().take(number);
        if before.any(|other| other.name == formula.name) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "two formulas have the name `{}`: write a name of its own before each, as NAME=FORMULA",
                    shown(&formula.name)
                ),
            ));
        }
    }
    Ok(())
}

/// Returns the beginning of a text for a message.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(200).collect();
    cut.escape_debug().to_string()
}

impl fmt::Display for Expression {
    /// Writes the formula with its name, as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name == self.formula {
            true => f.write_str(&self.formula),
            false => write!(f, "{}={}", self.name, self.formula),
        }
    }
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let wrong = |why: String| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("formula `{}`{why}", shown(text)),
            )
        };
        let equals = token::equals(text);
        let (name, formula) = match equals {
            Some(at) => text.split_at(at),
            None => (text, text),
        };
        let (name, formula) = (name.trim(), formula.trim_start_matches('=').trim());
        if equals.is_some() {
            if name.is_empty() {
                return Err(wrong(": expected a name before `=`".to_owned()));
            }
            // Not a name, but a formula that compares by `=`.
            let count = |bracket| name.matches(bracket).count();
            if count('(') != count(')') || name.contains(['<', '>', '!', '&', '|', '~']) {
                return Err(wrong(format!(
                    ": expected a name before `=`, found `{}`; `==` compares",
                    shown(name)
                )));
            }
        }
        let (program, bands) =
            parse::parse(text, equals.map_or(0, |at| at + 1)).map_err(|fault| {
                let column = text
                    .get(..fault.at)
                    .map_or(0, |before| before.chars().count())
                    + 1;
                wrong(match fault.at >= text.len() {
                    true => format!(": {}", fault.why),
                    false => format!(", character {column}: {}", fault.why),
                })
            })?;
        Ok(Self {
            name: name.to_owned(),
            formula: formula.to_owned(),
            bands,
            program: Arc::new(program),
        })
    }
}

impl ImageCube {
    /// Evaluates formulas for each time step and reduces each over time to one band, or with [`Apply::every`] to one
    /// band for each period; without a reducer each time step of each formula is a band.
    ///
    /// The other order, a formula of the medians of bands, is that of [`Mosaic::Median`](super::mosaic::Mosaic::Median)
    /// over time steps as long as the period, without a reducer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a band that the cube lacks, or a name that two formulas have.
    pub fn express(
        &self,
        formulas: &[Expression],
        reducer: Option<Reducer>,
        options: ApplyOptions,
    ) -> Result<Apply<f32>> {
        self.express_as(formulas, reducer, options)
    }

    /// Evaluates formulas in a float type.
    pub(super) fn express_as<T>(
        &self,
        formulas: &[Expression],
        reducer: Option<Reducer>,
        mut options: ApplyOptions,
    ) -> Result<Apply<T>>
    where
        T: BlockSample + Real + super::reduce::Real,
    {
        check_names(formulas)?;
        let texts = formulas.iter().map(Expression::formula);
        let mut how = texts.collect::<Vec<_>>().join(", ");
        if let Some(reducer) = reducer {
            how = format!("{reducer} of {how}");
        }
        for band in formulas.iter().flat_map(Expression::bands) {
            place_of(self.bands(), band)?;
        }
        let names: Vec<String> = formulas.iter().map(|one| one.name.clone()).collect();
        if options.names.is_empty() && reducer.is_some() {
            options.names.clone_from(&names);
        }
        let formulas = formulas.to_vec();
        let work = self.apply(options, move |block: &Block<T>| {
            let (times, _, height, width) = block.data().dim();
            let each = if reducer.is_some() { 1 } else { times };
            let mut out =
                Array3::from_elem((formulas.len() * each, height, width), <T as Real>::NAN);
            for (number, formula) in formulas.iter().enumerate() {
                let first = number * each;
                let mut target = out.slice_mut(ndarray::s![first..first + each, .., ..]);
                match reducer {
                    Some(reducer) => target.index_axis_mut(Axis(0), 0).assign(&reduced_as(
                        formula.dates(block)?.view(),
                        None,
                        reducer,
                    )?),
                    None => formula.put(block, target)?,
                }
            }
            Ok(out)
        });
        let work = work.told(how);
        Ok(match reducer {
            Some(reducer) => work.noted(self.reduced_by(reducer)),
            None => work.each_date(names),
        })
    }
}

#[cfg(test)]
mod tests;
