//! Formulas over bands, such as `(nir - red) / (nir + red)`. The crate `exmex` reads and computes them.

use exmex::{Express, FlatEx};
use ndarray::{Array3, Axis, Zip};

use super::{
    block::{Block, place_of},
    cube::Cube,
    options::ApplyOptions,
    reduce::{Reducer, reduce_f32},
    run::Apply,
};
use crate::error::{Error, ErrorKind, Result};

/// A formula over the bands of a cube: numbers, names of bands, `+ - * / ^`, brackets, `abs`, `sqrt`, `exp`,
/// `ln`, `log2`, `log10`, `min`, `max`, `sin` and the like, as
/// [exmex](https://docs.rs/exmex) reads them.
///
/// As text it may start with a name for what it makes: `ndvi=(nir-red)/(nir+red)`.
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
    formula: FlatEx<f32>,
}

impl Expression {
    /// Returns the name of what it makes: the one before `=`, or the formula.
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
        let bands = self.bands();
        let views = bands
            .iter()
            .map(|band| block.band(band))
            .collect::<Result<Vec<_>>>()?;
        let (times, _, height, width) = block.data().dim();
        let mut out = Array3::from_elem((times, height, width), f32::NAN);
        let mut wrong = None;
        let mut values = vec![0.0; bands.len()];
        for (time, mut image) in out.axis_iter_mut(Axis(0)).enumerate() {
            let layers: Vec<_> = views
                .iter()
                .map(|view| view.index_axis(Axis(0), time))
                .collect();
            Zip::indexed(&mut image).for_each(|place, out| {
                let mut is_valid = true;
                for (value, layer) in values.iter_mut().zip(&layers) {
                    *value = layer[place];
                    is_valid &= !value.is_nan();
                }
                if !is_valid {
                    return;
                }
                match self.formula.eval(&values) {
                    Ok(value) if value.is_finite() => *out = value,
                    Ok(_) => {}
                    Err(err) => wrong = Some(err),
                }
            });
        }
        match wrong {
            None => Ok(out),
            Some(err) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "formula `{}` cannot be computed: {err}",
                    self.formula.unparse()
                ),
            )),
        }
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
        let parsed = exmex::parse::<f32>(formula);
        let formula = parsed.map_err(|err| wrong(err.to_string()))?;
        if formula.var_names().is_empty() {
            return Err(wrong("no band is in it".to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            formula,
        })
    }
}

impl Cube {
    /// Computes formulas for each date and reduces the dates of each to one band; without a reducer each date
    /// of each formula is a band.
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
                let made = formula.of(block)?;
                let first = number * each;
                let mut target = out.slice_mut(ndarray::s![first..first + each, .., ..]);
                match reducer {
                    Some(reducer) => target
                        .index_axis_mut(Axis(0), 0)
                        .assign(&reduce_f32(made.view(), reducer)?),
                    None => target.assign(&made),
                }
            }
            Ok(out)
        });
        let work = work.told(how);
        Ok(match reducer {
            Some(_) => work,
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
            ("1+1", "no band is in it"),
            ("", "formula ``"),
        ] {
            let err = text.parse::<Expression>().unwrap_err();
            assert!(err.message().contains(why), "{err}");
        }
    }
}
