//! Operands of a formula that hold many pixels each.
//!
//! exmex interprets the formula at each evaluation, which costs more than the arithmetic of one pixel. With
//! [`LANES`] pixels in an operand that cost is paid once for all of them, and the compiler vectorizes the loops. The
//! operators are those of exmex for floats, with the same names and priorities.

use std::{num::ParseFloatError, str::FromStr};

use exmex::{BinOp, MakeOperators, Operator};

/// Pixels of one operand: enough to make the interpreter's cost negligible, few enough for the operands of a formula
/// to stay in the L1 cache (1 KiB each).
pub(super) const LANES: usize = 256;

/// The samples of [`LANES`] pixels; empty by default. On the heap, because exmex moves operands around.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes(pub(super) Vec<f32>);

impl Lanes {
    /// Returns pixels that all have one value.
    pub(super) fn all(value: f32) -> Self {
        Self(vec![value; LANES])
    }

    #[inline(always)]
    fn each(mut self, function: impl Fn(f32) -> f32) -> Self {
        for lane in &mut self.0 {
            *lane = function(*lane);
        }
        self
    }

    #[inline(always)]
    fn with(mut self, other: &Self, function: impl Fn(f32, f32) -> f32) -> Self {
        for (lane, &other) in self.0.iter_mut().zip(&other.0) {
            *lane = function(*lane, other);
        }
        self
    }
}

impl FromStr for Lanes {
    type Err = ParseFloatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::all)
    }
}

/// The operators of formulas.
#[derive(Clone, Debug)]
pub(super) struct LaneOperators;

/// An operator between two operands.
macro_rules! between {
    ($function:expr, $priority:literal, $is_commutative:literal) => {
        BinOp {
            apply: |a: Lanes, b: Lanes| a.with(&b, $function),
            prio: $priority,
            is_commutative: $is_commutative,
        }
    };
}

/// Functions of one operand.
macro_rules! functions {
    ($($name:literal => $function:expr),* $(,)?) => {
        [$(Operator::make_unary($name, |a: Lanes| a.each($function))),*]
    };
}

impl MakeOperators<Lanes> for LaneOperators {
    fn make<'a>() -> Vec<Operator<'a, Lanes>> {
        use std::f32::consts::{E, PI, TAU};

        let mut all = vec![
            Operator::make_bin("^", between!(f32::powf, 4, false)),
            Operator::make_bin("*", between!(|a, b| a * b, 2, true)),
            Operator::make_bin("/", between!(|a, b| a / b, 3, false)),
            Operator::make_bin_unary("+", between!(|a, b| a + b, 0, true), |a| a),
            Operator::make_bin_unary("-", between!(|a, b| a - b, 1, false), |a| a.each(|a| -a)),
            Operator::make_bin("atan2", between!(f32::atan2, 0, false)),
            Operator::make_bin("min", between!(f32::min, 0, false)),
            Operator::make_bin("max", between!(f32::max, 0, false)),
        ];
        all.extend(functions! {
            "abs" => f32::abs,
            "signum" => f32::signum,
            "sin" => f32::sin,
            "cos" => f32::cos,
            "tan" => f32::tan,
            "asin" => f32::asin,
            "acos" => f32::acos,
            "atan" => f32::atan,
            "sinh" => f32::sinh,
            "cosh" => f32::cosh,
            "tanh" => f32::tanh,
            "asinh" => f32::asinh,
            "acosh" => f32::acosh,
            "atanh" => f32::atanh,
            "floor" => f32::floor,
            "round" => f32::round,
            "ceil" => f32::ceil,
            "trunc" => f32::trunc,
            "fract" => f32::fract,
            "exp" => f32::exp,
            "sqrt" => f32::sqrt,
            "cbrt" => f32::cbrt,
            "ln" => f32::ln,
            "log2" => f32::log2,
            "log10" => f32::log10,
            "log" => f32::ln,
        });
        let constants = [
            ("PI", PI),
            ("π", PI),
            ("E", E),
            ("e", E),
            ("TAU", TAU),
            ("τ", TAU),
        ];
        let constants =
            constants.map(|(name, number)| Operator::make_constant(name, Lanes::all(number)));
        all.extend(constants);
        all
    }
}

#[cfg(test)]
mod tests {
    use exmex::{Express, FlatEx, FloatOpsFactory};

    use super::*;

    #[test]
    fn all_operators_of_exmex_are_there_and_do_the_same() {
        let theirs = FloatOpsFactory::<f32>::make();
        let ours = LaneOperators::make();
        assert_eq!(theirs.len(), ours.len());
        let numbers = [-2.5_f32, -1.0, -0.3, 0.0, 0.4, 1.0, 7.75];
        let lanes = |shift: usize| {
            let mut lanes = Lanes::all(0.0);
            for (index, lane) in lanes.0.iter_mut().enumerate() {
                *lane = numbers[(index + shift * (index / numbers.len())) % numbers.len()];
            }
            lanes
        };
        let (a, b) = (lanes(0), lanes(1));
        let same = |made: &Lanes, expected: &dyn Fn(usize) -> f32, name: &str| {
            for (index, &made) in made.0.iter().enumerate() {
                let expected = expected(index);
                assert!(
                    made == expected || (made.is_nan() && expected.is_nan()),
                    "{name} of {}: {made}, expected {expected}",
                    a.0[index]
                );
            }
        };
        for theirs in &theirs {
            let name = theirs.repr();
            let ours = ours.iter().find(|one| one.repr() == name).unwrap();
            assert_eq!(ours.has_bin(), theirs.has_bin(), "{name}");
            assert_eq!(ours.has_unary(), theirs.has_unary(), "{name}");
            if theirs.has_bin() {
                let (ours, theirs) = (ours.bin().unwrap(), theirs.bin().unwrap());
                assert_eq!(ours.prio, theirs.prio, "{name}");
                assert_eq!(ours.is_commutative, theirs.is_commutative, "{name}");
                let made = (ours.apply)(a.clone(), b.clone());
                same(&made, &|index| (theirs.apply)(a.0[index], b.0[index]), name);
            }
            if theirs.has_unary() {
                let (ours, theirs) = (ours.unary().unwrap(), theirs.unary().unwrap());
                same(&ours(a.clone()), &|place| theirs(a.0[place]), name);
            }
            match (ours.constant(), theirs.constant()) {
                (Some(ours), Some(theirs)) => same(&ours, &|_| theirs, name),
                (ours, theirs) => assert!(ours.is_none() && theirs.is_none(), "{name}"),
            }
        }
    }

    #[test]
    fn formulas_have_the_value_that_exmex_gives_them() {
        for text in [
            "(x-y)/(x+y)",
            "2.5*(x-y)/(x+6*y-7.5*z+1)",
            "-x^2+sqrt(abs(y))*PI",
            "x-y-z/x/y",
            "min(x,y) + x max z",
        ] {
            let (Ok(scalar), Ok(lanes)) = (
                exmex::parse::<f32>(text),
                FlatEx::<Lanes, LaneOperators>::parse(text),
            ) else {
                panic!("{text} is no formula");
            };
            assert_eq!(scalar.var_names(), lanes.var_names());
            let numbers = [0.31_f32, 0.07, 1.5];
            let numbers = &numbers[..scalar.var_names().len()];
            let operands: Vec<Lanes> = numbers.iter().copied().map(Lanes::all).collect();
            let made = lanes.eval(&operands).unwrap().0;
            assert_eq!(made, vec![scalar.eval(numbers).unwrap(); LANES], "{text}");
        }
    }
}
