//! The words of a formula: numbers, names, symbols.

use std::ops::Range;

/// The longest formula, in bytes: far above what anyone writes, and a bound for what a program makes.
pub(super) const LONGEST: usize = 1 << 16;

/// What is wrong with a formula, and the byte where it shows.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) why: String,
}

impl Fault {
    pub(super) fn new(at: usize, why: impl Into<String>) -> Self {
        Self {
            at,
            why: why.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    /// A name as it is: a band, a function, a constant or an operator in letters.
    Name(String),
    /// A name in quotes, backquotes or braces: always a band.
    Quoted(String),
    Symbol(&'static str),
    End,
}

/// The symbols; a longer one comes before its own beginning.
const SYMBOLS: [&str; 24] = [
    "**", "//", "<=", ">=", "==", "!=", "&&", "||", "^", "*", "/", "%", "+", "-", "<", ">", "(",
    ")", ",", "&", "|", "~", "!", "=",
];

/// Returns the closing character where this one opens a quoted name.
fn closing(open: char) -> Option<char> {
    match open {
        '\'' | '"' | '`' => Some(open),
        '{' => Some('}'),
        _ => None,
    }
}

/// Returns the byte of the `=` that ends a formula's name, if it has one: the first that is no part of a comparison
/// and not in quotes.
pub(super) fn equals(text: &str) -> Option<usize> {
    let mut quoted_to = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        if let Some(close) = quoted_to {
            if char == close {
                quoted_to = None;
            }
            continue;
        }
        quoted_to = closing(char);
        let next_is_equals = chars.peek().is_some_and(|&(_, next)| next == '=');
        match char {
            '=' | '<' | '>' | '!' if next_is_equals => {
                chars.next();
            }
            '=' => return Some(at),
            _ => {}
        }
    }
    None
}

/// Splits a formula into its words, with their bytes in the text; the last one is [`Token::End`].
pub(super) fn tokens(text: &str, from: usize) -> Result<Vec<(Token, Range<usize>)>, Fault> {
    let mut all = Vec::new();
    let mut at = from;
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else {
            break;
        };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, len) = if let Some(close) = closing(first) {
            quoted(rest, at, close)?
        } else if first.is_ascii_digit() || is_fraction(rest) {
            number(rest, at)?
        } else if is_start(first) {
            let len = name_len(rest);
            (Token::Name(rest.get(..len).unwrap_or(rest).to_owned()), len)
        } else if let Some(&symbol) = SYMBOLS.iter().find(|&&symbol| rest.starts_with(symbol)) {
            (Token::Symbol(symbol), symbol.len())
        } else {
            let hint = match first {
                '?' => "; a choice is written where(condition, a, b)",
                ':' => "; a name with `:` at its edge is written in quotes",
                '#' | '$' | '@' | '.' | '[' => "; a name with it is written in quotes",
                _ => "",
            };
            let why = format!("`{}` is no part of a formula{hint}", first.escape_debug());
            return Err(Fault::new(at, why));
        };
        all.push((token, at..at + len));
        at += len;
    }
    all.push((Token::End, text.len()..text.len()));
    Ok(all)
}

fn is_start(char: char) -> bool {
    char.is_alphabetic() || char == '_'
}

fn is_inner(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Returns true for `.5`.
fn is_fraction(rest: &str) -> bool {
    let digit = rest.strip_prefix('.').and_then(|rest| rest.chars().next());
    digit.is_some_and(|digit| digit.is_ascii_digit())
}

/// Returns the bytes of the name at the start. A colon between two parts of a name belongs to it: `asset:2`.
fn name_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let follows = chars.peek().is_some_and(|&(_, next)| is_inner(next));
        if !(is_inner(char) || char == ':' && follows) {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &str, at: usize, close: char) -> Result<(Token, usize), Fault> {
    // All four opening characters are one byte long, as their closing ones.
    let inner = rest.get(1..).unwrap_or_default();
    let Some(len) = inner.find(close) else {
        let why = format!("the name that begins here lacks its closing {close}");
        return Err(Fault::new(at, why));
    };
    let name = inner.get(..len).unwrap_or_default().trim();
    if name.is_empty() {
        return Err(Fault::new(at, "expected a name in the quotes"));
    }
    Ok((Token::Quoted(name.to_owned()), len + 2))
}

/// Reads a number as `1`, `0.5`, `.5`, `1.` or `2.75e-5`.
fn number(rest: &str, at: usize) -> Result<(Token, usize), Fault> {
    let digits = |from: usize| {
        let rest = rest.as_bytes().get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let byte = |at: usize| rest.as_bytes().get(at).copied();
    let mut len = digits(0);
    if byte(len) == Some(b'.') {
        len += 1 + digits(len + 1);
    }
    if matches!(byte(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(byte(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let text = rest.get(..len).unwrap_or_default();
    let beyond = rest.get(len..).unwrap_or_default();
    if beyond.starts_with(is_inner) {
        let word = rest.get(..len + name_len(beyond)).unwrap_or(rest);
        let why = format!(
            "`{word}` is no number; a name that begins with a digit is written in quotes: '{word}'"
        );
        return Err(Fault::new(at, why));
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((Token::Number(number), len)),
        _ => Err(Fault::new(at, format!("`{text}` is too large a number"))),
    }
}
