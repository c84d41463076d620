//! A formula as steps over rows of pixels.
//!
//! Each step computes one operator for [`LANES`] pixels: the cost of choosing it is paid once for all of them, and the
//! compiler vectorizes the loops. Results of steps lie in registers that are reused; bands are read where they are.
//!
//! NaN is a missing value, and what is computed of it is missing: also where IEEE 754 says otherwise (`nan^0`,
//! comparisons), and but for what does not depend on it (`false and nan`, the branch of `where` that is not chosen).

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// Pixels of one step: enough to make the choice of the operator negligible, few enough for the registers of a formula
/// to stay in the L1 cache (1 KiB each of `f32`).
pub(super) const LANES: usize = 256;

/// Operators and functions of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unary {
    Neg,
    /// `x^2`, exactly rounded.
    Square,
    Not,
    IsNan,
    IsFinite,
    Abs,
    Sign,
    Sqrt,
    Cbrt,
    Exp,
    Expm1,
    Ln,
    Log1p,
    Log2,
    Log10,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Floor,
    Ceil,
    Round,
    Trunc,
    Fract,
}

/// Operators and functions of two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// `//`: the floor of the quotient.
    FloorDiv,
    /// `%`: the remainder of [`Self::FloorDiv`], with the sign of the divisor.
    Mod,
    /// The remainder with the sign of the dividend.
    Fmod,
    Pow,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
    Min,
    Max,
    Atan2,
    Hypot,
}

/// The operand of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    Number(f64),
    Band(usize),
    Register(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Unary(Unary, Source),
    Binary(Binary, Source, Source),
    Where([Source; 3]),
}

/// The steps of a formula, in order, each with the register of its result.
#[derive(Clone, Debug)]
pub(super) struct Program {
    steps: Vec<(Step, usize)>,
    registers: usize,
    result: Source,
}

/// The registers of a program that runs.
#[derive(Debug)]
pub(super) struct Room<T>(Vec<Vec<T>>);

/// One operand: a value for each pixel, or one for all.
#[derive(Clone, Copy)]
enum Operand<'a, T> {
    Each(&'a [T]),
    All(T),
}

impl<T: Real> Operand<'_, T> {
    #[inline(always)]
    fn at(&self, index: usize) -> T {
        match self {
            Self::Each(values) => values.get(index).copied().unwrap_or(T::NAN),
            Self::All(value) => *value,
        }
    }
}

impl Program {
    pub(super) fn room<T: Real>(&self) -> Room<T> {
        Room(vec![vec![T::NAN; LANES]; self.registers])
    }

    /// Computes up to [`LANES`] pixels; what is not finite is NaN. All bands have as many pixels as `out`.
    pub(super) fn run<T: Real>(&self, bands: &[&[T]], room: &mut Room<T>, out: &mut [T]) {
        let len = out.len();
        for &(step, target) in &self.steps {
            // Taken out, because operands are read meanwhile; no operand is the target itself.
            let Some(register) = room.0.get_mut(target) else {
                continue;
            };
            let mut made = std::mem::take(register);
            if let Some(made) = made.get_mut(..len) {
                let operand = |source| room.operand(source, bands, len);
                match step {
                    Step::Unary(op, a) => unary(op, operand(a), made),
                    Step::Binary(op, a, b) => binary(op, operand(a), operand(b), made),
                    Step::Where(abc) => choose(abc.map(operand), made),
                }
            }
            if let Some(register) = room.0.get_mut(target) {
                *register = made;
            }
        }
        match room.operand(self.result, bands, len) {
            Operand::Each(values) => {
                for (out, &value) in out.iter_mut().zip(values) {
                    *out = if value.finite() { value } else { T::NAN };
                }
            }
            Operand::All(value) => out.fill(value),
        }
    }
}

impl<T: Real> Room<T> {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn operand<'a>(&'a self, source: Source, bands: &[&'a [T]], len: usize) -> Operand<'a, T> {
        let values = match source {
            Source::Number(number) => return Operand::All(T::of(number)),
            Source::Band(index) => bands.get(index).copied(),
            Source::Register(index) => self.0.get(index).map(Vec::as_slice),
        };
        Operand::Each(values.and_then(|values| values.get(..len)).unwrap_or(&[]))
    }
}

/// Makes a program step by step.
#[derive(Debug, Default)]
pub(super) struct Builder {
    steps: Vec<(Step, usize)>,
    registers: usize,
    /// Registers that hold nothing that is needed any more.
    free: Vec<usize>,
}

impl Builder {
    /// Adds a step and returns its result. A step of numbers alone is computed at once, in `f64`.
    pub(super) fn add(&mut self, step: Step) -> Source {
        let number = |source| match source {
            Source::Number(number) => Some(Operand::All(number)),
            _ => None,
        };
        let mut made = [f64::NAN];
        let is_made = match step {
            Step::Unary(op, a) => number(a).map(|a| unary(op, a, &mut made)),
            Step::Binary(op, a, b) => number(a)
                .zip(number(b))
                .map(|(a, b)| binary(op, a, b, &mut made)),
            Step::Where([a, b, c]) => number(a)
                .zip(number(b))
                .zip(number(c))
                .map(|((a, b), c)| choose([a, b, c], &mut made)),
        };
        if is_made.is_some() {
            let [number] = made;
            return Source::Number(number);
        }
        let step = match step {
            Step::Binary(Binary::Pow, a, Source::Number(2.0)) => Step::Unary(Unary::Square, a),
            step => step,
        };
        // Before the operands are freed: a step never writes what it reads.
        let target = self.free.pop().unwrap_or_else(|| {
            self.registers += 1;
            self.registers - 1
        });
        let operands: &[Source] = match &step {
            Step::Unary(_, a) => std::slice::from_ref(a),
            Step::Binary(_, a, b) => &[*a, *b],
            Step::Where(abc) => abc,
        };
        for operand in operands {
            if let Source::Register(index) = operand {
                self.free.push(*index);
            }
        }
        self.steps.push((step, target));
        Source::Register(target)
    }

    pub(super) fn finish(self, result: Source) -> Program {
        Program {
            steps: self.steps,
            registers: self.registers,
            result,
        }
    }
}

/// Writes a function of one operand.
fn unary<T: Real>(op: Unary, a: Operand<'_, T>, out: &mut [T]) {
    macro_rules! each {
        ($function:expr) => {
            match a {
                Operand::Each(a) => {
                    for (out, &a) in out.iter_mut().zip(a) {
                        *out = $function(a);
                    }
                }
                Operand::All(a) => out.fill($function(a)),
            }
        };
    }
    match op {
        Unary::Neg => each!(|a: T| -a),
        Unary::Square => each!(|a: T| a * a),
        Unary::Not => each!(|a: T| either(a.missing(), T::NAN, truth(a == T::ZERO))),
        Unary::IsNan => each!(|a: T| truth(a.missing())),
        Unary::IsFinite => each!(|a: T| truth(a.finite())),
        Unary::Abs => each!(T::absolute),
        // NaN and the zeros are their own sign.
        Unary::Sign => each!(|a: T| either(a > T::ZERO, T::ONE, either(a < T::ZERO, -T::ONE, a))),
        Unary::Sqrt => each!(T::square_root),
        Unary::Cbrt => each!(T::cube_root),
        Unary::Exp => each!(T::exponential),
        Unary::Expm1 => each!(T::expm1),
        Unary::Ln => each!(T::natural_log),
        Unary::Log1p => each!(T::log1p),
        Unary::Log2 => each!(T::log_2),
        Unary::Log10 => each!(T::log_10),
        Unary::Sin => each!(T::sine),
        Unary::Cos => each!(T::cosine),
        Unary::Tan => each!(T::tangent),
        Unary::Asin => each!(T::arcsine),
        Unary::Acos => each!(T::arccosine),
        Unary::Atan => each!(T::arctangent),
        Unary::Sinh => each!(T::sine_h),
        Unary::Cosh => each!(T::cosine_h),
        Unary::Tanh => each!(T::tangent_h),
        Unary::Asinh => each!(T::arcsine_h),
        Unary::Acosh => each!(T::arccosine_h),
        Unary::Atanh => each!(T::arctangent_h),
        Unary::Floor => each!(T::floored),
        Unary::Ceil => each!(T::ceiled),
        Unary::Round => each!(T::rounded),
        Unary::Trunc => each!(T::truncated),
        Unary::Fract => each!(|a: T| a - a.truncated()),
    }
}

/// Writes a function of two operands.
fn binary<T: Real>(op: Binary, a: Operand<'_, T>, b: Operand<'_, T>, out: &mut [T]) {
    match op {
        Binary::Add => pairs(a, b, out, |a, b| a + b),
        Binary::Sub => pairs(a, b, out, |a, b| a - b),
        Binary::Mul => pairs(a, b, out, |a, b| a * b),
        Binary::Div => pairs(a, b, out, |a, b| a / b),
        Binary::FloorDiv => pairs(a, b, out, floor_div),
        Binary::Mod => pairs(a, b, out, modulo),
        Binary::Fmod => pairs(a, b, out, |a, b| a % b),
        Binary::Pow => pairs(a, b, out, |a, b| of_both(a, b, a.power(b))),
        Binary::Less => pairs(a, b, out, |a, b| of_both(a, b, truth(a < b))),
        Binary::LessEqual => pairs(a, b, out, |a, b| of_both(a, b, truth(a <= b))),
        Binary::Greater => pairs(a, b, out, |a, b| of_both(a, b, truth(a > b))),
        Binary::GreaterEqual => pairs(a, b, out, |a, b| of_both(a, b, truth(a >= b))),
        Binary::Equal => pairs(a, b, out, |a, b| of_both(a, b, truth(a == b))),
        Binary::NotEqual => pairs(a, b, out, |a, b| of_both(a, b, truth(a != b))),
        Binary::And => pairs(a, b, out, |a, b| {
            let is_false = (a == T::ZERO) | (b == T::ZERO);
            either(is_false, T::ZERO, of_both(a, b, T::ONE))
        }),
        Binary::Or => pairs(a, b, out, |a, b| {
            // NaN differs from everything: it is asked for apart.
            let is_true = (a != T::ZERO) & !a.missing() | (b != T::ZERO) & !b.missing();
            either(is_true, T::ONE, of_both(a, b, T::ZERO))
        }),
        Binary::Min => pairs(a, b, out, |a, b| either((a < b) | a.missing(), a, b)),
        Binary::Max => pairs(a, b, out, |a, b| either((a > b) | a.missing(), a, b)),
        Binary::Atan2 => pairs(a, b, out, T::arctangent_of),
        Binary::Hypot => pairs(a, b, out, |a, b| of_both(a, b, a.hypotenuse(b))),
    }
}

/// Writes `a` where the condition holds, `b` where it does not, NaN where it is missing.
fn choose<T: Real>([condition, a, b]: [Operand<'_, T>; 3], out: &mut [T]) {
    for (index, out) in out.iter_mut().enumerate() {
        let condition = condition.at(index);
        let chosen = either(condition == T::ZERO, b.at(index), a.at(index));
        *out = either(condition.missing(), T::NAN, chosen);
    }
}

#[inline(always)]
fn pairs<T: Real>(
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    out: &mut [T],
    function: impl Fn(T, T) -> T,
) {
    match (a, b) {
        (Operand::Each(a), Operand::Each(b)) => {
            for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                *out = function(a, b);
            }
        }
        (Operand::Each(a), Operand::All(b)) => {
            for (out, &a) in out.iter_mut().zip(a) {
                *out = function(a, b);
            }
        }
        (Operand::All(a), Operand::Each(b)) => {
            for (out, &b) in out.iter_mut().zip(b) {
                *out = function(a, b);
            }
        }
        (Operand::All(a), Operand::All(b)) => out.fill(function(a, b)),
    }
}

#[inline(always)]
fn either<T>(condition: bool, a: T, b: T) -> T {
    if condition { a } else { b }
}

#[inline(always)]
fn truth<T: Real>(condition: bool) -> T {
    either(condition, T::ONE, T::ZERO)
}

/// Returns the value, or NaN where one of its operands is missing.
#[inline(always)]
fn of_both<T: Real>(a: T, b: T, value: T) -> T {
    either(a.missing() | b.missing(), T::NAN, value)
}

/// Returns true if the remainder of the dividend's sign is one divisor away from that of the divisor's.
#[inline(always)]
fn is_adjusted<T: Real>(rest: T, b: T) -> bool {
    (rest != T::ZERO) & ((rest < T::ZERO) != (b < T::ZERO))
}

/// The remainder with the sign of the divisor, as numpy's and Python's.
#[inline(always)]
fn modulo<T: Real>(a: T, b: T) -> T {
    let rest = a % b;
    either(is_adjusted(rest, b), rest + b, rest)
}

/// The floor of the quotient: of what the remainder leaves, so that both belong together, as numpy's.
#[inline(always)]
fn floor_div<T: Real>(a: T, b: T) -> T {
    let rest = a % b;
    let whole = ((a - rest) / b).rounded();
    let floor = either(is_adjusted(rest, b), whole - T::ONE, whole);
    either(b == T::ZERO, a / b, floor)
}

/// `f32` or `f64`, by the functions of the standard library.
pub(in crate::apply) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NAN: Self;
    fn of(number: f64) -> Self;
    fn missing(self) -> bool;
    fn finite(self) -> bool;
    fn power(self, other: Self) -> Self;
    fn arctangent_of(self, other: Self) -> Self;
    fn hypotenuse(self, other: Self) -> Self;
    fn absolute(self) -> Self;
    fn square_root(self) -> Self;
    fn cube_root(self) -> Self;
    fn exponential(self) -> Self;
    fn expm1(self) -> Self;
    fn natural_log(self) -> Self;
    fn log1p(self) -> Self;
    fn log_2(self) -> Self;
    fn log_10(self) -> Self;
    fn sine(self) -> Self;
    fn cosine(self) -> Self;
    fn tangent(self) -> Self;
    fn arcsine(self) -> Self;
    fn arccosine(self) -> Self;
    fn arctangent(self) -> Self;
    fn sine_h(self) -> Self;
    fn cosine_h(self) -> Self;
    fn tangent_h(self) -> Self;
    fn arcsine_h(self) -> Self;
    fn arccosine_h(self) -> Self;
    fn arctangent_h(self) -> Self;
    fn floored(self) -> Self;
    fn ceiled(self) -> Self;
    /// To the nearest whole number, halves to the even one.
    fn rounded(self) -> Self;
    fn truncated(self) -> Self;
}

macro_rules! real {
    ($type:ident, $of:expr, $($name:ident: $function:ident($($other:ident)?)),* $(,)?) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = $type::NAN;

            fn of(number: f64) -> Self {
                $of(number)
            }

            #[inline(always)]
            fn missing(self) -> bool {
                self.is_nan()
            }

            #[inline(always)]
            fn finite(self) -> bool {
                self.is_finite()
            }

            $(
                #[inline(always)]
                fn $name(self $(, $other: Self)?) -> Self {
                    $type::$function(self $(, $other)?)
                }
            )*
        }
    };
}

macro_rules! reals {
    ($($type:ident: $of:expr),*) => {$(
        real!(
            $type,
            $of,
            power: powf(other),
            arctangent_of: atan2(other),
            hypotenuse: hypot(other),
            absolute: abs(),
            square_root: sqrt(),
            cube_root: cbrt(),
            exponential: exp(),
            expm1: exp_m1(),
            natural_log: ln(),
            log1p: ln_1p(),
            log_2: log2(),
            log_10: log10(),
            sine: sin(),
            cosine: cos(),
            tangent: tan(),
            arcsine: asin(),
            arccosine: acos(),
            arctangent: atan(),
            sine_h: sinh(),
            cosine_h: cosh(),
            tangent_h: tanh(),
            arcsine_h: asinh(),
            arccosine_h: acosh(),
            arctangent_h: atanh(),
            floored: floor(),
            ceiled: ceil(),
            rounded: round_ties_even(),
            truncated: trunc(),
        );
    )*};
}
reals!(f32: rounded, f64: |number| number);

#[expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of a formula are rounded to the type that it is computed in"
)]
fn rounded(number: f64) -> f32 {
    number as f32
}
