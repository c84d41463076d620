//! CCITT bilevel compressions: modified Huffman runs, Group 3 in one and two dimensions, Group 4.
//!
//! See TIFF 6.0, sections 10 and 11, and ITU-T [T.4](https://www.itu.int/rec/T-REC-T.4) and
//! [T.6](https://www.itu.int/rec/T-REC-T.6). The code tables are those of the `fax` crate.
//!
//! A strip may hold fewer rows than it states: the rows behind its end are white, as libtiff reads them. It ends at an
//! end-of-data mark, or where no bit is set any more, but only between two rows: a row that is not whole is damage.

use fax::{
    BitReader,
    maps::{Mode, black, mode, white},
};

use super::damaged;
use crate::{
    error::{Error, ErrorKind, Result},
    reader::cog::level::Fax,
};

/// Bits of an end-of-line mark: eleven zeros and a one.
const MARK_BITS: u8 = 12;

/// Decodes `rows` rows of `width` bits, 1 for black, each padded to whole bytes.
pub(super) fn unpack(
    kind: Fax,
    bytes: &[u8],
    width: u32,
    rows: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    let row_bytes = usize::try_from(width.div_ceil(8)).map_err(|_| broken())?;
    let mut coded = FaxRows {
        bits: Bits::new(bytes),
        width,
        above: Vec::new(),
        edges: Vec::new(),
    };
    for _ in 0..rows {
        let more = match kind {
            Fax::Huffman => coded.aligned()?,
            Fax::Group3 { two_dimensions } => coded.group3(two_dimensions)?,
            Fax::Group4 => coded.group4()?,
        };
        if !more {
            break;
        }
        let start = out.len();
        out.resize(start + row_bytes, 0);
        paint(
            &coded.edges,
            width,
            out.get_mut(start..).unwrap_or_default(),
        );
        coded.settle();
    }
    if out.is_empty() {
        return Err(broken());
    }
    out.resize(rows.saturating_mul(row_bytes), 0);
    Ok(())
}

fn broken() -> Error {
    damaged("CCITT")
}

/// Bits of a strip, the highest of each byte first. Zeros follow the last one, for the code tables look ahead.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Behind the last bit that is set: no code begins there, for none is of zeros alone.
    end: usize,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let last = bytes.iter().rposition(|&byte| byte != 0);
        let end = last.map_or(0, |last| {
            let zeros = bytes.get(last).map_or(0, |byte| byte.trailing_zeros());
            // At most 7, of a byte that is not 0.
            last.saturating_add(1).saturating_mul(8) - zeros as usize
        });
        Self { bytes, at: 0, end }
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    /// Returns the next bits, up to 16.
    fn look(&self, bits: u8) -> u16 {
        let first = self.at / 8;
        let byte = |n: usize| u32::from(self.bytes.get(first + n).copied().unwrap_or(0));
        let word = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
        let word = word << (self.at % 8) >> (32 - u32::from(bits.clamp(1, 16)));
        // Not more than 16 bits.
        word as u16
    }
}

impl BitReader for Bits<'_> {
    type Error = Error;

    fn peek(&self, bits: u8) -> Option<u16> {
        Some(self.look(bits))
    }

    fn consume(&mut self, bits: u8) -> Result<()> {
        let at = self.at.saturating_add(usize::from(bits));
        // A code that begins in the data and is not whole.
        if at > self.bytes.len().saturating_mul(8) {
            return Err(broken());
        }
        self.at = at;
        Ok(())
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        // Less than 8.
        (self.at.wrapping_neg() % 8) as u8
    }
}

/// Reads rows as the columns where the colour changes; the first change is from white to black.
struct FaxRows<'a> {
    bits: Bits<'a>,
    width: u32,
    above: Vec<u32>,
    edges: Vec<u32>,
}

impl FaxRows<'_> {
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

    /// Reads a row of runs that starts at a byte; false at the end of the data.
    fn aligned(&mut self) -> Result<bool> {
        let fill = self.bits.bits_to_byte_boundary();
        self.bits.consume(fill)?;
        if self.bits.is_at_end() {
            return Ok(false);
        }
        self.one_dimension()?;
        Ok(true)
    }

    /// Reads a row of Group 3; false at the end of the data. Marks may be missing, and zeros may fill the data before
    /// them, as where they are to end with a byte.
    fn group3(&mut self, two_dimensions: bool) -> Result<bool> {
        let mut marks = 0;
        let mut tagged_one_dimension = true;
        while self.mark()? {
            marks += 1;
            if two_dimensions {
                tagged_one_dimension = self.bits.look(1) == 1;
                self.bits.consume(1)?;
            }
        }
        // Two end-of-line marks in a row end the data (RTC).
        if marks > 1 || self.bits.is_at_end() {
            return Ok(false);
        }
        match tagged_one_dimension {
            true => self.one_dimension()?,
            false => self.two_dimensions()?,
        }
        Ok(true)
    }

    /// Reads a row of Group 4; false at the end of the data (EOFB).
    fn group4(&mut self) -> Result<bool> {
        if self.bits.is_at_end() || self.bits.look(MARK_BITS) == 1 {
            return Ok(false);
        }
        self.two_dimensions()?;
        Ok(true)
    }

    /// Consumes an end-of-line mark and the fill bits before it; false if none is next.
    fn mark(&mut self) -> Result<bool> {
        while !self.bits.is_at_end() {
            match self.bits.look(MARK_BITS) {
                0 => self.bits.consume(1)?,
                1 => {
                    self.bits.consume(MARK_BITS)?;
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
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

    /// Reads a row coded by its difference to the row above.
    fn two_dimensions(&mut self) -> Result<()> {
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
                Mode::EOF => return Err(broken()),
                Mode::Extension => {
                    let what = "CCITT data with an extension (uncompressed mode) is not supported";
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
            }
        }
        Ok(())
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
            if self.above.last() == Some(&edge) {
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
    for run in edges.chunks(2) {
        let (start, end) = match *run {
            [start, end] => (start as usize, end as usize),
            [start] => (start as usize, width as usize),
            _ => continue,
        };
        if start >= end {
            continue;
        }
        // The bits of the first byte from `start` on, and those of the last one up to `end`.
        let (head, tail) = (0xFF_u8 >> (start % 8), 0xFF_u8 << (7 - (end - 1) % 8));
        let (first, last) = (start / 8, (end - 1) / 8);
        match row.get_mut(first..=last) {
            Some([only]) => *only |= head & tail,
            Some([first, between @ .., last]) => {
                *first |= head;
                between.fill(0xFF);
                *last |= tail;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|b| b"01".contains(b)).collect();
        bits.chunks(8)
            .map(|byte| {
                let zeros = std::iter::repeat(&b'0');
                let bits = byte.iter().chain(zeros).take(8);
                bits.fold(0, |byte, bit| byte << 1 | (bit - b'0'))
            })
            .collect()
    }

    fn rows(kind: Fax, bits: &str, width: u32, rows: usize) -> Vec<u8> {
        let mut out = Vec::new();
        unpack(kind, &bytes(bits), width, rows, &mut out).unwrap();
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
    fn a_run_of_nothing_is_no_change_of_colour() {
        // Horizontal white 0 black 0, white 2 black 3, then V0 to the end; V0 three times.
        let coded = "001 00110101 0000110111 001 0111 10 1 111";
        assert_eq!(rows(Fax::Group4, coded, 8, 2), [0b0011_1000, 0b0011_1000]);
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
    fn rows_behind_the_end_of_the_data_are_white() {
        let kind = Fax::Group3 {
            two_dimensions: false,
        };
        let marks = "000000000001".repeat(6);
        for end in ["", "0000000", &marks] {
            let coded = format!("000000000001 1011 10 000111 {end}");
            assert_eq!(rows(kind, &coded, 8, 3), [0b0000_1110, 0, 0], "{end}");
        }
        let coded = "001 0111 10 1 000000000001 000000000001";
        assert_eq!(rows(Fax::Group4, coded, 8, 3), [0b0011_1000, 0, 0]);
    }

    #[test]
    fn a_row_that_ends_early_is_damage() {
        let mut out = Vec::new();
        let mark = "000000000001";
        let kind = Fax::Group3 {
            two_dimensions: false,
        };
        let group_3 = [
            // White 4 and the next row; white 4 and no more; no row at all.
            format!("{mark} 1011 {mark} 1011 10 000111"),
            format!("{mark} 1011"),
            mark.repeat(6),
            String::new(),
        ];
        for coded in &group_3 {
            let unpacked = unpack(kind, &bytes(coded), 8, 2, &mut out);
            assert!(unpacked.is_err(), "{coded}: {out:?}");
        }
        // The code of 12 bits is cut off behind 8.
        assert!(unpack(Fax::Huffman, &[0b0100_1101], 64, 1, &mut out).is_err());
        assert!(unpack(Fax::Group4, &[0xFF; 2], 8, 64, &mut out).is_ok());
        assert!(unpack(Fax::Group4, &[0b0010_0000], 64, 8, &mut out).is_err());
        let extension = unpack(Fax::Group4, &[0b0000_0011], 8, 1, &mut out).unwrap_err();
        assert_eq!(extension.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn bytes_of_any_kind_end_in_rows_or_an_error() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 40
        };
        let mut out = Vec::new();
        for n in 0..20_000 {
            let length = next() as usize % 40;
            // Some with few bits set, as codes are of few.
            let data: Vec<u8> = (0..length)
                .map(|_| (next() & if n % 2 == 0 { 0xFF } else { next() & next() }) as u8)
                .collect();
            let width = [1, 7, 8, 9, 1728, 70_000][next() as usize % 6];
            let two_dimensions = next() % 2 == 0;
            let kinds = [Fax::Huffman, Fax::Group4, Fax::Group3 { two_dimensions }];
            for kind in kinds {
                if unpack(kind, &data, width, 9, &mut out).is_ok() {
                    assert_eq!(out.len(), 9 * width.div_ceil(8) as usize);
                }
            }
        }
    }
}
