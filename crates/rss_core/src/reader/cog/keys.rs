//! The GeoKeys of a file, not interpreted: codes, doubles and texts by key. No IO.

use bytes::Bytes;

/// Values past this are not metres, degrees or scales, and would make WKT long: it prints all digits.
pub(super) const MOST_NUMBER: f64 = 1e12;

/// The keys of a file, with the doubles and texts they refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// Quadruples (key, tag, count, value), after a header of four values.
    pub(super) directory: Vec<u64>,
    pub(super) doubles: Vec<f64>,
    pub(super) texts: Bytes,
}

impl Keys {
    pub(super) fn entries(&self) -> impl Iterator<Item = &[u64]> {
        self.directory.chunks_exact(4).skip(1)
    }

    /// Returns the value of a key that is a short, most often a code.
    pub(super) fn code(&self, wanted: u64) -> Option<u64> {
        self.entries().find_map(|key| match key {
            [id, 0, _, value] if *id == wanted => Some(*value),
            _ => None,
        })
    }

    /// Returns the range of a key's values in the tag that stores them.
    pub(super) fn range(&self, wanted: u64, tag: u64) -> Option<std::ops::Range<usize>> {
        self.entries().find_map(|key| match key {
            [id, holder, count, value] if *id == wanted && *holder == tag => {
                let start = usize::try_from(*value).ok()?;
                Some(start..start.checked_add(usize::try_from(*count).ok()?)?)
            }
            _ => None,
        })
    }

    pub(super) fn numbers(&self, key: u64) -> Option<&[f64]> {
        self.doubles.get(self.range(key, 34736)?)
    }

    /// Returns the first double of a key, if it is plausible in a CRS.
    pub(super) fn number(&self, key: u64) -> Option<f64> {
        let number = *self.numbers(key)?.first()?;
        (number.is_finite() && number.abs() < MOST_NUMBER).then_some(number)
    }

    pub(super) fn has(&self, wanted: u64) -> bool {
        self.entries()
            .any(|key| matches!(key, [id, ..] if *id == wanted))
    }

    /// Returns a text as [`text`](Self::text) does, but with its lines.
    pub(super) fn text_lines(&self, key: u64) -> Option<String> {
        let bytes = self.texts.get(self.range(key, 34737)?)?;
        let text = bytes.split(|&byte| byte == 0).next()?;
        let printable = text.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            b'\r' | b'\n' => '\n',
            _ => '?',
        });
        Some(printable.collect())
    }

    /// Returns a text in printable ASCII, without the terminating `|` or NUL.
    pub(super) fn text(&self, key: u64) -> Option<String> {
        let bytes = self.texts.get(self.range(key, 34737)?)?;
        let end = bytes.iter().position(|&byte| byte == 0);
        let text = bytes.get(..end.unwrap_or(bytes.len()))?;
        let printable = text.iter().map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            b'\t' | b'\r' | b'\n' => ' ',
            _ => '?',
        });
        let text: String = printable.collect();
        Some(text.trim_end_matches('|').trim().to_owned())
    }
}
