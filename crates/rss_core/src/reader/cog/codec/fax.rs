//! CCITT bilevel compressions: modified Huffman runs, Group 3 in one and two dimensions, Group 4.
//!
//! See TIFF 6.0, sections 10 and 11, and ITU-T [T.4](https://www.itu.int/rec/T-REC-T.4) and
//! [T.6](https://www.itu.int/rec/T-REC-T.6). The code tables are those of the `fax` crate.

use fax::{
    BitReader, ByteReader,
    maps::{Mode, black, mode, white},
};

use super::damaged;
use crate::{
    error::{Error, Result},
    reader::cog::level::Fax,
};

/// Zero bytes appended to the data: the code tables look ahead, also at the last code.
const LOOK_AHEAD: usize = 4;

/// Decodes rows of `width` bits, 1 for black, each padded to whole bytes, until `out` holds `length`
/// bytes or the data ends.
pub(super) fn unpack(
    kind: Fax,
    bytes: &[u8],
    width: u32,
    length: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    let row_bytes = usize::try_from(width.div_ceil(8)).map_err(|_| broken())?;
    let padded = bytes.iter().copied().chain([0; LOOK_AHEAD]);
    let bits = ByteReader::new(padded.map(Ok::<u8, std::convert::Infallible>));
    let Ok(bits) = bits;
    let mut rows = FaxRows {
        bits,
        width,
        above: Vec::new(),
        edges: Vec::new(),
    };
    while out.len() < length {
        let more = match kind {
            Fax::Huffman => {
                let more = rows.bits.peek(1).is_some();
                if more {
                    rows.one_dimension()?;
                    rows.skip(rows.bits.bits_to_byte_boundary());
                }
                more
            }
            Fax::Group3 { two_dimensions } => rows.group3(two_dimensions)?,
            Fax::Group4 => rows.two_dimensions()?,
        };
        if !more {
            break;
        }
        let start = out.len();
        out.resize(start + row_bytes, 0);
        paint(&rows.edges, width, out.get_mut(start..).unwrap_or_default());
        rows.settle();
    }
    Ok(())
}

fn broken() -> Error {
    damaged("CCITT")
}

/// Reads rows as the columns where the colour changes; the first change is from white to black.
struct FaxRows<B> {
    bits: B,
    width: u32,
    above: Vec<u32>,
    edges: Vec<u32>,
}

impl<B: BitReader> FaxRows<B> {
    fn skip(&mut self, bits: u8) {
        // Fails past the end of the data, which the next `peek` reports.
        let _ = self.bits.consume(bits);
    }

    /// Returns the length of a run: codes of 64 pixels and more, then one of fewer.
    fn run(&mut self, black: bool) -> Result<u32> {
        let mut sum: u32 = 0;
        loop {
            let code = match black {
                true => black::decode(&mut self.bits),
                false => white::decode(&mut self.bits),
            };
            let code = u32::from(code.ok_or_else(broken)?);
            sum = sum.checked_add(code).ok_or_else(broken)?;
            if sum > self.width {
                return Err(broken());
            }
            if code < 64 {
                return Ok(sum);
            }
        }
    }

    /// Reads a row of Group 3; false at the end of the data.
    fn group3(&mut self, two_dimensions: bool) -> Result<bool> {
        let mut marks = 0;
        let mut tagged_one_dimension = true;
        while self.mark()? {
            marks += 1;
            if two_dimensions {
                tagged_one_dimension = self.bits.peek(1) == Some(1);
                self.skip(1);
            }
        }
        // Two end-of-line marks in a row end the data (RTC).
        if marks > 1 || self.bits.peek(1).is_none() {
            return Ok(false);
        }
        if tagged_one_dimension {
            self.one_dimension()?;
            return Ok(true);
        }
        self.two_dimensions()
    }

    /// Consumes an end-of-line mark and the fill bits before it; false if none is next.
    fn mark(&mut self) -> Result<bool> {
        loop {
            match self.bits.peek(12) {
                Some(0) => self.skip(1),
                Some(1) => {
                    self.skip(12);
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }

    fn one_dimension(&mut self) -> Result<()> {
        let (mut at, mut black) = (0_u32, false);
        while at < self.width {
            at = self.ahead(at, black)?;
            black = !black;
        }
        Ok(())
    }

    /// Reads a run from `at` on and returns its end, an edge.
    fn ahead(&mut self, at: u32, black: bool) -> Result<u32> {
        let end = at.checked_add(self.run(black)?);
        let end = end.filter(|&end| end <= self.width).ok_or_else(broken)?;
        self.edges.push(end);
        Ok(end)
    }

    /// Reads a row coded by its difference to the row above; false at the end of the data.
    fn two_dimensions(&mut self) -> Result<bool> {
        // None is the position before the first pixel, so that a change at column 0 lies after it.
        let mut at: Option<u32> = None;
        let mut black = false;
        let mut near = 0;
        while at.is_none_or(|at| at < self.width) {
            let here = at.unwrap_or(0);
            match mode::decode(&mut self.bits).ok_or_else(broken)? {
                Mode::Pass => {
                    let (_, next) = self.changes(at, black, &mut near);
                    at = Some(next);
                }
                Mode::Horizontal => {
                    let middle = self.ahead(here, black)?;
                    at = Some(self.ahead(middle, !black)?);
                }
                Mode::Vertical(shift) => {
                    let (change, _) = self.changes(at, black, &mut near);
                    let end = change
                        .checked_add_signed(i32::from(shift))
                        .filter(|end| (here..=self.width).contains(end))
                        .ok_or_else(broken)?;
                    self.edges.push(end);
                    black = !black;
                    at = Some(end);
                }
                Mode::EOF => return Ok(false),
                Mode::Extension => return Err(broken()),
            }
        }
        Ok(true)
    }

    /// Returns b1 and b2 of T.4: the first change in the row above after `at` to the opposite colour, and
    /// the change after it. `near` caches its index, where the next search starts.
    fn changes(&self, at: Option<u32>, black: bool, near: &mut usize) -> (u32, u32) {
        let past = |edge: u32| at.is_none_or(|at| edge > at);
        let edge = |n: usize| self.above.get(n).copied();
        let mut n = near.saturating_sub(2);
        while n > 0 && edge(n - 1).is_none_or(past) {
            n -= 1;
        }
        while edge(n).is_some_and(|edge| !past(edge)) || n % 2 != usize::from(black) {
            n += 1;
        }
        *near = n;
        (
            edge(n).unwrap_or(self.width),
            edge(n + 1).unwrap_or(self.width),
        )
    }

    /// Ends a row: it becomes the row above the next one, without runs of length 0.
    fn settle(&mut self) {
        self.above.clear();
        for edge in self.edges.drain(..) {
            if self.above.last() == Some(&edge) && edge > 0 {
                self.above.pop();
            } else {
                self.above.push(edge);
            }
        }
        while self.above.last().is_some_and(|&edge| edge >= self.width) {
            self.above.pop();
        }
    }
}

/// Sets the bits of the black runs.
fn paint(edges: &[u32], width: u32, row: &mut [u8]) {
    for run in edges.chunks(2).skip_while(|run| run.is_empty()) {
        let (start, end) = match *run {
            [start, end] => (start, end),
            [start] => (start, width),
            _ => continue,
        };
        for at in start..end {
            if let Some(byte) = row.get_mut(at as usize / 8) {
                *byte |= 0x80 >> (at % 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(kind: Fax, bits: &str, width: u32, length: usize) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|b| b"01".contains(b)).collect();
        let bytes: Vec<u8> = bits
            .chunks(8)
            .map(|byte| {
                let zeros = std::iter::repeat(&b'0');
                let bits = byte.iter().chain(zeros).take(8);
                bits.fold(0, |byte, bit| byte << 1 | (bit - b'0'))
            })
            .collect();
        let mut out = Vec::new();
        unpack(kind, &bytes, width, length, &mut out).unwrap();
        out
    }

    #[test]
    fn runs_of_each_row_start_at_a_byte() {
        // White 4, black 3, white 1; then white 0, black 8 (T.4, tables 2 and 3).
        let coded = "1011 10 000111 0000 00110101 000101 00";
        assert_eq!(rows(Fax::Huffman, coded, 8, 2), [0b0000_1110, 0xFF]);
    }

    #[test]
    fn a_row_like_the_one_above_costs_one_bit_an_edge() {
        // Group 4: horizontal white 2 black 3, then V0 to the end; V0 three times; VR1, VL1, V0.
        let coded = "001 0111 10 1 111 011 010 1";
        let out = rows(Fax::Group4, coded, 8, 3);
        assert_eq!(out, [0b0011_1000, 0b0011_1000, 0b0001_0000]);
    }

    #[test]
    fn marks_stand_before_the_rows_of_group_3() {
        let mark = "000000000001";
        let one = format!("{mark} 1011 10 000111 {mark} 00110101 000101");
        let kind = |two_dimensions| Fax::Group3 { two_dimensions };
        assert_eq!(rows(kind(false), &one, 8, 2), [0b0000_1110, 0xFF]);
        let two = format!("{mark} 1 1011 10 000111 {mark} 0 1 1 1");
        assert_eq!(rows(kind(true), &two, 8, 2), [0b0000_1110, 0b0000_1110]);
    }

    #[test]
    fn a_row_that_ends_early_is_damage() {
        let mut out = Vec::new();
        assert!(unpack(Fax::Group4, &[0xFF; 2], 8, 64, &mut out).is_ok());
        assert!(unpack(Fax::Group4, &[0b0010_0000], 64, 8, &mut out).is_err());
    }
}
