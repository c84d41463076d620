//! Formulas over bands, such as `(nir - red) / (nir + red)`. The crate `exmex` parses and evaluates them.

mod lanes;

use exmex::{Express, FlatEx};
use ndarray::{Array3, ArrayView1, ArrayViewMut3, Axis};

use self::lanes::{LANES, LaneOperators, Lanes};
use super::{
    block::{Block, place_of},
    cube::ImageCube,
    options::ApplyOptions,
    reduce::{Reducer, reduce_f32},
    run::Apply,
};
use crate::error::{Error, ErrorKind, Result};

/// A formula over the bands of a cube: numbers, names of bands, `+ - * / ^`, brackets, `abs`, `sqrt`, `exp`,
/// `ln`, `log2`, `log10`, `min`, `max`, `sin` and the like, in the syntax of [exmex](https://docs.rs/exmex).
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
    formula: FlatEx<Lanes, LaneOperators>,
}

impl Expression {
    /// Returns the name of the result: the one before `=`, or the formula.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the bands it needs, in alphabetical order.
    pub fn bands(&self) -> &[String] {
        self.formula.var_names()
    }

    /// Computes each date of a block, (time, y, x). A pixel is NaN where one of its bands is, or the formula has
    /// no finite value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a band that the block lacks.
    pub fn of(&self, block: &Block<f32>) -> Result<Array3<f32>> {
        let (times, _, height, width) = block.data().dim();
        let mut out = Array3::from_elem((times, height, width), f32::NAN);
        self.put(block, out.view_mut())?;
        Ok(out)
    }

    /// Writes the result for each time step of a block, (time, y, x), into an array of NaN.
    fn put(&self, block: &Block<f32>, mut out: ArrayViewMut3<'_, f32>) -> Result<()> {
        let bands = self.bands().iter().map(|band| block.band(band));
        let views = bands.collect::<Result<Vec<_>>>()?;
        let mut operands = vec![Lanes::all(0.0); views.len()];
        let mut rows: Vec<ArrayView1<'_, f32>> = Vec::with_capacity(views.len());
        for (time, mut image) in out.axis_iter_mut(Axis(0)).enumerate() {
            for (y, mut out) in image.axis_iter_mut(Axis(0)).enumerate() {
                rows.clear();
                rows.extend(views.iter().map(|view| {
                    let image = view.index_axis_move(Axis(0), time);
                    image.index_axis_move(Axis(0), y)
                }));
                for (run, mut out) in out.axis_chunks_iter_mut(Axis(0), LANES).enumerate() {
                    let run = run * LANES..run * LANES + out.len();
                    // Tracked apart: `min(x, NaN)` is x and `NaN ^ 0` is 1, but a missing band makes a missing pixel.
                    let mut is_valid = [true; LANES];
                    for (operand, row) in operands.iter_mut().zip(&rows) {
                        let samples = row.slice(ndarray::s![run.clone()]);
                        let lanes = operand.0.iter_mut().zip(&mut is_valid);
                        for ((lane, is_valid), &sample) in lanes.zip(samples) {
                            *lane = sample;
                            *is_valid &= !sample.is_nan();
                        }
                    }
                    let made = self
                        .formula
                        .eval(&operands)
                        .map_err(|err| self.wrong(&err))?;
                    let made = made.0.iter().zip(&is_valid);
                    for (out, (&value, &is_valid)) in out.iter_mut().zip(made) {
                        *out = if is_valid & value.is_finite() {
                            value
                        } else {
                            *out
                        };
                    }
                }
            }
        }
        Ok(())
    }

    fn wrong(&self, err: &exmex::ExError) -> Error {
        Error::new(
            ErrorKind::InvalidInput,
            format!(
                "formula `{}` cannot be computed: {err}",
                self.formula.unparse()
            ),
        )
    }
}

impl std::str::FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, formula) = match text.split_once('=') {
            Some((name, formula)) => (name.trim(), formula.trim()),
            None => (text.trim(), text.trim()),
        };
        let wrong = |why: String| {
            let text: String = text.chars().take(200).collect();
            Error::new(
                ErrorKind::InvalidInput,
                format!("formula `{}`: {why}", text.escape_debug()),
            )
        };
        if name.is_empty() {
            return Err(wrong("expected a name before `=`".to_owned()));
        }
        let parsed = FlatEx::<Lanes, LaneOperators>::parse(formula);
        let formula = parsed.map_err(|err| wrong(err.to_string()))?;
        if formula.var_names().is_empty() {
            return Err(wrong("expected at least one band".to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            formula,
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
    /// [`ErrorKind::InvalidInput`] naming a band that the cube lacks.
    pub fn express(
        &self,
        formulas: &[Expression],
        reducer: Option<Reducer>,
        mut options: ApplyOptions,
    ) -> Result<Apply<f32>> {
        let texts = formulas.iter().map(|one| one.formula.unparse());
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
        let work = self.apply(options, move |block: &Block<f32>| {
            let (times, _, height, width) = block.data().dim();
            let each = if reducer.is_some() { 1 } else { times };
            let mut out = Array3::from_elem((formulas.len() * each, height, width), f32::NAN);
            for (number, formula) in formulas.iter().enumerate() {
                let first = number * each;
                let mut target = out.slice_mut(ndarray::s![first..first + each, .., ..]);
                match reducer {
                    Some(reducer) => target
                        .index_axis_mut(Axis(0), 0)
                        .assign(&reduce_f32(formula.of(block)?.view(), reducer)?),
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
mod tests {
    use super::*;

    #[test]
    fn a_formula_that_is_none_is_refused() {
        for (text, why) in [
            ("(nir-red", "formula `(nir-red`"),
            ("=nir", "expected a name before `=`"),
            ("1+1", "expected at least one band"),
            ("", "formula ``"),
        ] {
            let err = text.parse::<Expression>().unwrap_err();
            assert!(err.message().contains(why), "{err}");
        }
    }
}
