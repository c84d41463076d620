//! From the text of a formula to its steps, by operator precedence (a Pratt parser). docs/FORMULAS.md has the grammar.

use std::ops::Range;

use super::{
    program::{Binary, Builder, Program, Source, Step, Unary},
    token::{Fault, LONGEST, Token, tokens},
};

/// The deepest nesting of brackets, signs and powers: a bound for the parser's recursion.
const DEEPEST: usize = 128;

/// How tightly operators bind, as Python's.
mod binds {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const COMPARISON: u8 = 4;
    pub(super) const BIT_OR: u8 = 5;
    pub(super) const BIT_AND: u8 = 6;
    pub(super) const SUM: u8 = 7;
    pub(super) const PRODUCT: u8 = 8;
    pub(super) const SIGN: u8 = 9;
    pub(super) const POWER: u8 = 10;
}

/// What a part of a formula is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Number,
    /// 1 where it holds, 0 where it does not.
    Condition,
}

/// A part of a formula that is parsed: where its value will be, and its bytes in the text.
#[derive(Clone, Debug)]
struct Part {
    source: Source,
    kind: Kind,
    bytes: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Function {
    Unary(Unary),
    /// A function that asks: its result is a condition.
    Asks(Unary),
    Binary(Binary),
    /// Of two or more values.
    Fold(Binary),
    Clip,
    Where,
}

const FUNCTIONS: &[(&[&str], Function)] = &[
    (&["abs", "absolute"], Function::Unary(Unary::Abs)),
    (&["sign", "signum"], Function::Unary(Unary::Sign)),
    (&["sqrt"], Function::Unary(Unary::Sqrt)),
    (&["cbrt"], Function::Unary(Unary::Cbrt)),
    (&["exp"], Function::Unary(Unary::Exp)),
    (&["expm1"], Function::Unary(Unary::Expm1)),
    (&["log", "ln"], Function::Unary(Unary::Ln)),
    (&["log1p"], Function::Unary(Unary::Log1p)),
    (&["log2"], Function::Unary(Unary::Log2)),
    (&["log10"], Function::Unary(Unary::Log10)),
    (&["sin"], Function::Unary(Unary::Sin)),
    (&["cos"], Function::Unary(Unary::Cos)),
    (&["tan"], Function::Unary(Unary::Tan)),
    (&["asin", "arcsin"], Function::Unary(Unary::Asin)),
    (&["acos", "arccos"], Function::Unary(Unary::Acos)),
    (&["atan", "arctan"], Function::Unary(Unary::Atan)),
    (&["atan2", "arctan2"], Function::Binary(Binary::Atan2)),
    (&["sinh"], Function::Unary(Unary::Sinh)),
    (&["cosh"], Function::Unary(Unary::Cosh)),
    (&["tanh"], Function::Unary(Unary::Tanh)),
    (&["asinh", "arcsinh"], Function::Unary(Unary::Asinh)),
    (&["acosh", "arccosh"], Function::Unary(Unary::Acosh)),
    (&["atanh", "arctanh"], Function::Unary(Unary::Atanh)),
    (&["hypot"], Function::Binary(Binary::Hypot)),
    (&["floor"], Function::Unary(Unary::Floor)),
    (&["ceil"], Function::Unary(Unary::Ceil)),
    (&["round", "rint"], Function::Unary(Unary::Round)),
    (&["trunc"], Function::Unary(Unary::Trunc)),
    (&["fract"], Function::Unary(Unary::Fract)),
    (&["pow", "power"], Function::Binary(Binary::Pow)),
    (&["mod"], Function::Binary(Binary::Mod)),
    (&["fmod"], Function::Binary(Binary::Fmod)),
    (&["min", "minimum"], Function::Fold(Binary::Min)),
    (&["max", "maximum"], Function::Fold(Binary::Max)),
    (&["clip", "clamp"], Function::Clip),
    (&["where", "if"], Function::Where),
    (&["isnan"], Function::Asks(Unary::IsNan)),
    (&["isfinite"], Function::Asks(Unary::IsFinite)),
];

const CONSTANTS: &[(&[&str], f64)] = &[
    (&["pi", "PI", "π"], std::f64::consts::PI),
    (&["tau", "TAU", "τ"], std::f64::consts::TAU),
    (&["e", "E"], std::f64::consts::E),
    (&["nan", "NaN"], f64::NAN),
];

fn function(name: &str) -> Option<Function> {
    let known = FUNCTIONS.iter().find(|(names, _)| names.contains(&name));
    known.map(|&(_, function)| function)
}

/// Parses what follows the name of a formula. Returns its steps and the bands that it needs, in alphabetical order.
pub(super) fn parse(text: &str, from: usize) -> Result<(Program, Vec<String>), Fault> {
    if text.len() > LONGEST {
        let why = format!(
            "{} bytes are too many for a formula, expected at most {LONGEST}",
            text.len()
        );
        return Err(Fault::new(0, why));
    }
    let tokens = tokens(text, from)?;
    let mut bands: Vec<String> = Vec::new();
    for pair in tokens.windows(2) {
        let [(token, _), (next, _)] = pair else {
            continue;
        };
        bands.extend(band_of(token, next).map(str::to_owned));
    }
    bands.sort_unstable();
    bands.dedup();
    let mut parser = Parser {
        text,
        tokens,
        at: 0,
        depth: 0,
        bands,
        builder: Builder::default(),
    };
    let whole = parser.part(0)?;
    if *parser.peek() != Token::End {
        return Err(parser.surprise());
    }
    if parser.bands.is_empty() {
        return Err(Fault::new(from, "expected at least one band"));
    }
    Ok((parser.builder.finish(whole.source), parser.bands))
}

/// Returns the band that a word names, if it is one. A name before `(` is a function.
fn band_of<'a>(token: &'a Token, next: &Token) -> Option<&'a str> {
    match token {
        Token::Quoted(name) => Some(name),
        Token::Name(name) => {
            let is_other = *next == Token::Symbol("(")
                || operator(token).is_some()
                || name == "not"
                || constant(name).is_some();
            (!is_other).then_some(name)
        }
        _ => None,
    }
}

fn constant(name: &str) -> Option<f64> {
    let known = CONSTANTS.iter().find(|(names, _)| names.contains(&name));
    known.map(|&(_, number)| number)
}

/// Returns the operator between two values that a word is, and how tightly it binds.
fn operator(token: &Token) -> Option<(Binary, u8)> {
    let name = match token {
        Token::Symbol(symbol) => *symbol,
        Token::Name(name) => name.as_str(),
        _ => return None,
    };
    Some(match name {
        "or" | "||" => (Binary::Or, binds::OR),
        "and" | "&&" => (Binary::And, binds::AND),
        "<" => (Binary::Less, binds::COMPARISON),
        "<=" => (Binary::LessEqual, binds::COMPARISON),
        ">" => (Binary::Greater, binds::COMPARISON),
        ">=" => (Binary::GreaterEqual, binds::COMPARISON),
        "==" => (Binary::Equal, binds::COMPARISON),
        "!=" => (Binary::NotEqual, binds::COMPARISON),
        "|" => (Binary::Or, binds::BIT_OR),
        "&" => (Binary::And, binds::BIT_AND),
        "+" => (Binary::Add, binds::SUM),
        "-" => (Binary::Sub, binds::SUM),
        "*" => (Binary::Mul, binds::PRODUCT),
        "/" => (Binary::Div, binds::PRODUCT),
        "//" => (Binary::FloorDiv, binds::PRODUCT),
        "%" => (Binary::Mod, binds::PRODUCT),
        "^" | "**" => (Binary::Pow, binds::POWER),
        _ => return None,
    })
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    depth: usize,
    bands: Vec<String>,
    builder: Builder,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens
            .get(self.at)
            .map_or(&Token::End, |(token, _)| token)
    }

    /// Returns the bytes of the word that comes next.
    fn here(&self) -> Range<usize> {
        let end = self.text.len()..self.text.len();
        self.tokens
            .get(self.at)
            .map_or(end, |(_, bytes)| bytes.clone())
    }

    fn next(&mut self) -> (Token, Range<usize>) {
        let bytes = self.here();
        let token = self.peek().clone();
        self.at += 1;
        (token, bytes)
    }

    /// Goes on if this symbol comes next.
    fn eat(&mut self, symbol: &'static str) -> bool {
        let is_next = *self.peek() == Token::Symbol(symbol);
        self.at += usize::from(is_next);
        is_next
    }

    /// Returns the words of some bytes of the formula, cut where they are many.
    fn words(&self, bytes: Range<usize>) -> String {
        let text = self.text.get(bytes).unwrap_or_default();
        match text.char_indices().nth(40) {
            Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
            None => text.to_owned(),
        }
    }

    fn expected(&self, what: &str) -> Fault {
        let bytes = self.here();
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            _ => format!("`{}`", self.words(bytes.clone())),
        };
        Fault::new(bytes.start, format!("expected {what}, found {found}"))
    }

    /// What follows a whole value and is no operator.
    fn surprise(&self) -> Fault {
        let mut fault = self.expected("an operator");
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        let around = [before.map(|(token, _)| token), Some(self.peek())];
        let named = around.into_iter().flatten().find_map(|token| match token {
            Token::Name(name) if function(name).is_some() => Some(name),
            _ => None,
        });
        if let Some(name) = named {
            fault.why += &format!("; arguments are written in brackets: {name}(..)");
        } else if *self.peek() == Token::Symbol("=") {
            fault.why += "; `==` compares";
        } else if *self.peek() == Token::Symbol(")") {
            fault.why = "`)` closes no `(`".to_owned();
        }
        fault
    }

    /// Parses a value and all operators after it that bind at least so tightly.
    fn part(&mut self, least: u8) -> Result<Part, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            let why = format!("nested too deeply, expected at most {DEEPEST} levels");
            return Err(Fault::new(self.here().start, why));
        }
        let mut left = self.value(least)?;
        while let Some((op, tightness)) = operator(self.peek()) {
            if tightness < least {
                break;
            }
            let (token, bytes) = self.next();
            // A power takes all of a power or a sign on its right, every other operator only what binds tighter.
            let right = self.part(match op {
                Binary::Pow => binds::SIGN,
                _ => tightness + 1,
            })?;
            left = self.joined(op, left, right, &token, bytes)?;
            let goes_on = operator(self.peek()).is_some_and(|(_, next)| next == tightness);
            if tightness == binds::COMPARISON && goes_on {
                let why = "comparisons cannot be chained: write `a < b and b < c`, and each comparison that \
                           `&` or `|` joins in brackets";
                return Err(Fault::new(self.here().start, why));
            }
        }
        self.depth -= 1;
        Ok(left)
    }

    fn joined(
        &mut self,
        op: Binary,
        left: Part,
        right: Part,
        token: &Token,
        bytes: Range<usize>,
    ) -> Result<Part, Fault> {
        let is_bits = matches!(token, Token::Symbol("&" | "|"));
        if is_bits {
            for part in [&left, &right] {
                self.check_condition(part, bytes.clone())?;
            }
        }
        let kind = match op {
            Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual
            | Binary::Equal
            | Binary::NotEqual
            | Binary::And
            | Binary::Or => Kind::Condition,
            _ => Kind::Number,
        };
        Ok(Part {
            source: self
                .builder
                .add(Step::Binary(op, left.source, right.source)),
            kind,
            bytes: left.bytes.start..right.bytes.end,
        })
    }

    /// Checks an operand of `&`, `|`, `~` or `!`. Of numbers they would be bits in numpy, and `!` something else in C.
    fn check_condition(&self, part: &Part, symbol: Range<usize>) -> Result<(), Fault> {
        if part.kind == Kind::Condition {
            return Ok(());
        }
        let why = format!(
            "`{}` joins conditions in brackets, such as `(a > 1) & (b > 2)`, and `{}` is none",
            self.words(symbol.clone()),
            self.words(part.bytes.clone())
        );
        Err(Fault::new(symbol.start, why))
    }

    /// Parses a number, a band, a function, a part in brackets, or a sign with what it belongs to.
    fn value(&mut self, least: u8) -> Result<Part, Fault> {
        let bytes = self.here();
        match self.peek() {
            Token::Symbol("+" | "-" | "~" | "!") => self.signed(),
            Token::Name(name) if name == "not" => {
                if least > binds::NOT {
                    let why =
                        "`not` binds less tightly than the operator before it: put it in brackets";
                    return Err(Fault::new(bytes.start, why));
                }
                self.next();
                let of = self.part(binds::NOT)?;
                Ok(self.computed(
                    Step::Unary(Unary::Not, of.source),
                    Kind::Condition,
                    bytes.start,
                ))
            }
            Token::Symbol("(") => {
                self.next();
                let inner = self.part(0)?;
                if !self.eat(")") {
                    return Err(self.unclosed(bytes.start));
                }
                Ok(Part {
                    bytes: bytes.start..self.end(),
                    ..inner
                })
            }
            Token::Number(number) => {
                let source = Source::Number(*number);
                self.next();
                Ok(Part {
                    source,
                    kind: Kind::Number,
                    bytes,
                })
            }
            Token::Name(_) | Token::Quoted(_) => self.named(),
            _ => Err(self.expected("a number, a band, a function or `(`")),
        }
    }

    /// Parses `+ - ~ !` and what they belong to.
    fn signed(&mut self) -> Result<Part, Fault> {
        let (sign, bytes) = self.next();
        let of = self.part(binds::SIGN)?;
        let (op, kind) = match sign {
            Token::Symbol("-") => (Unary::Neg, Kind::Number),
            Token::Symbol("+") => {
                return Ok(Part {
                    kind: Kind::Number,
                    ..of
                });
            }
            _ => {
                self.check_condition(&of, bytes.clone())?;
                (Unary::Not, Kind::Condition)
            }
        };
        Ok(self.computed(Step::Unary(op, of.source), kind, bytes.start))
    }

    /// Parses a band, a constant or a function.
    fn named(&mut self) -> Result<Part, Fault> {
        let (token, bytes) = self.next();
        let (Token::Name(name) | Token::Quoted(name)) = &token else {
            self.at -= 1;
            return Err(self.expected("a name"));
        };
        if *self.peek() == Token::Symbol("(") {
            return match &token {
                Token::Quoted(_) => Err(Fault::new(
                    bytes.start,
                    format!("`{name}` is a band, as it is quoted, and no function"),
                )),
                _ => self.call(name, bytes),
            };
        }
        let source = match band_of(&token, self.peek()) {
            Some(name) => {
                let index = self.bands.binary_search_by(|band| band.as_str().cmp(name));
                Source::Band(index.unwrap_or_default())
            }
            None => match constant(name) {
                Some(number) => Source::Number(number),
                None => {
                    self.at -= 1;
                    return Err(self.expected("a number, a band, a function or `(`"));
                }
            },
        };
        Ok(Part {
            source,
            kind: Kind::Number,
            bytes,
        })
    }

    /// Parses the arguments of a function.
    fn call(&mut self, name: &str, bytes: Range<usize>) -> Result<Part, Fault> {
        let Some(function) = function(name) else {
            let names = FUNCTIONS.iter().filter_map(|(names, _)| names.first());
            let names: Vec<&str> = names.copied().collect();
            let why = format!("`{name}` is no function; those are {}", names.join(", "));
            return Err(Fault::new(bytes.start, why));
        };
        let open = self.here().start;
        self.next();
        let mut arguments: Vec<Part> = Vec::new();
        let mut count = 0;
        while !self.eat(")") {
            if count > 0 && !self.eat(",") {
                return Err(self.unclosed(open));
            }
            let argument = self.part(0)?;
            count += 1;
            match (function, arguments.pop()) {
                // One after the other, so that registers do not grow with the arguments.
                (Function::Fold(op), Some(before)) => {
                    let step = Step::Binary(op, before.source, argument.source);
                    arguments.push(self.computed(step, Kind::Number, before.bytes.start));
                }
                (_, before) => {
                    arguments.extend(before);
                    arguments.push(argument);
                }
            }
        }
        let wrong = |what: &str| {
            let why = format!("`{name}` of {count} arguments, expected {what}");
            Err(Fault::new(bytes.start, why))
        };
        let start = bytes.start;
        Ok(match (function, arguments.as_slice()) {
            (Function::Unary(op), [a]) => {
                self.computed(Step::Unary(op, a.source), Kind::Number, start)
            }
            (Function::Asks(op), [a]) => {
                self.computed(Step::Unary(op, a.source), Kind::Condition, start)
            }
            (Function::Binary(op), [a, b]) => {
                self.computed(Step::Binary(op, a.source, b.source), Kind::Number, start)
            }
            (Function::Fold(_), [all]) if count > 1 => Part {
                bytes: start..self.end(),
                ..all.clone()
            },
            (Function::Clip, [value, low, high]) => {
                // As numpy's: the upper bound wins where the bounds are in the wrong order.
                let source = self
                    .builder
                    .add(Step::Binary(Binary::Max, value.source, low.source));
                let step = Step::Binary(Binary::Min, source, high.source);
                self.computed(step, Kind::Number, start)
            }
            (Function::Where, [condition, a, b]) => {
                let kind = match (a.kind, b.kind) {
                    (Kind::Condition, Kind::Condition) => Kind::Condition,
                    _ => Kind::Number,
                };
                self.computed(
                    Step::Where([condition.source, a.source, b.source]),
                    kind,
                    start,
                )
            }
            (Function::Unary(_) | Function::Asks(_), _) => return wrong("1"),
            (Function::Binary(_), _) => return wrong("2"),
            (Function::Fold(_), _) => return wrong("2 or more"),
            (Function::Clip, _) => return wrong("3: a value, its minimum and its maximum"),
            (Function::Where, _) => {
                return wrong("3: a condition, the value where it holds, and the value where not");
            }
        })
    }

    fn computed(&mut self, step: Step, kind: Kind, start: usize) -> Part {
        Part {
            source: self.builder.add(step),
            kind,
            bytes: start..self.end(),
        }
    }

    /// Returns the end of the word before the next one, in bytes.
    fn end(&self) -> usize {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at));
        before.map_or(0, |(_, bytes)| bytes.end)
    }

    fn unclosed(&self, open: usize) -> Fault {
        let column = self
            .text
            .get(..open)
            .map_or(0, |before| before.chars().count())
            + 1;
        match self.peek() {
            Token::End | Token::Symbol(",") => {
                self.expected(&format!("`)` for the `(` of character {column}"))
            }
            _ => self.surprise(),
        }
    }
}
