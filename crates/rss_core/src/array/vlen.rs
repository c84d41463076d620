//! The codec [`vlen-utf8`](https://numcodecs.readthedocs.io/en/stable/other/vlen.html) of texts: their number, then the
//! length and the UTF-8 of each.

use std::ops::Range;

/// Encodes texts.
pub(crate) fn encode<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = number(0).to_vec();
    let mut count = 0;
    for text in texts {
        bytes.extend_from_slice(&number(text.len()));
        bytes.extend_from_slice(text.as_bytes());
        count += 1;
    }
    if let Some(head) = bytes.first_chunk_mut::<4>() {
        *head = number(count);
    }
    bytes
}

/// Decodes the first `most` texts; none if the bytes are invalid.
pub(crate) fn decode(bytes: &[u8], most: usize) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    let mut at = 4;
    for _ in 0..number(bytes, 0)?.min(most) {
        let text = text_at(bytes, at)?;
        at = text.end;
        texts.push(str::from_utf8(bytes.get(text)?).ok()?.to_owned());
    }
    Some(texts)
}

/// Returns the bytes of the first `count` texts alone; none if there are no more, or the bytes are invalid.
pub(crate) fn cut(bytes: &[u8], count: usize) -> Option<Vec<u8>> {
    if number(bytes, 0)? <= count {
        return None;
    }
    let end = (0..count).try_fold(4, |at, _| Some(text_at(bytes, at)?.end))?;
    let mut cut = u32::try_from(count).ok()?.to_le_bytes().to_vec();
    cut.extend_from_slice(bytes.get(4..end)?);
    Some(cut)
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_le_bytes(four.try_into().ok()?)).ok()
}

/// Returns where the text is whose length stands at `at`.
fn text_at(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at.checked_add(4)?;
    Some(start..start.checked_add(number(bytes, at)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_cut_as_they_were_written() {
        let texts = ["a", "", "gruen \u{1f33f}"];
        let bytes = encode(texts.into_iter());
        assert_eq!(bytes[..9], [3, 0, 0, 0, 1, 0, 0, 0, b'a']);
        assert_eq!(decode(&bytes, usize::MAX).unwrap(), texts);
        assert_eq!(decode(&bytes, 2).unwrap(), texts[..2]);
        for count in 0..3 {
            let cut = cut(&bytes, count).unwrap();
            assert_eq!(cut, encode(texts[..count].iter().copied()));
        }
        assert_eq!(cut(&bytes, 3), None);
    }

    #[test]
    fn bytes_that_end_early_are_no_texts() {
        let bytes = encode(["ab", "c"].into_iter());
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], usize::MAX), None, "{end}");
        }
        assert_eq!(decode(&[1, 0, 0, 0, 255, 255, 255, 255], 1), None);
        assert_eq!(decode(&[1, 0, 0, 0, 1, 0, 0, 0, 0xff], 1), None);
        assert_eq!(cut(&[9, 0, 0, 0], 1), None);
    }
}
