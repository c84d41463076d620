//! The drawings: lines over an axis, bars with their spread, histograms one below the other.
//!
//! They are drawn larger than they are shown, because `plotters` places by whole pixels. Text is left
//! to the browser's font.

use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::Colour;

const INK: RGBColor = RGBColor(0x1A, 0x1D, 0x21);
const FAINT: RGBColor = RGBColor(0x5A, 0x62, 0x6B);
const GRID: RGBColor = RGBColor(0xD9, 0xDD, 0xE2);
const WIDTH: u32 = 840;
const FONT: u32 = 36;
/// Room at the left for names of rows, in pixels.
const NAMES: i32 = 280;
/// Room for a letter of a name that is longer than that.
const LETTER: i32 = 20;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Each step doubles.
    Doubling,
}

impl Scale {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Doubling => value.max(1e-9).log2(),
        }
    }

    fn label(self, position: f64) -> String {
        match self {
            Self::Linear => number(position),
            Self::Doubling => number(position.exp2()),
        }
    }
}

/// A line.
pub(super) struct Line {
    pub(super) colour: Colour,
    pub(super) points: Vec<Point>,
}

/// A position on a line, and how far its repeats lie apart.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Least and most, where there is a spread to show.
    pub(super) spread: Option<[f64; 2]>,
}

/// An axis: what it counts, and how.
pub(super) struct Axis<'a> {
    pub(super) label: &'a str,
    pub(super) scale: Scale,
}

/// Draws lines.
pub(super) fn lines(lines: &[Line], x: Axis<'_>, y: Axis<'_>, marks: Marks) -> Result<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let xs = all().map(|point| x.scale.position(point.x));
    let ys = all().flat_map(|point| {
        let [low, high] = point.spread.unwrap_or([point.y, point.y]);
        [low, point.y, high].map(|value| y.scale.position(value))
    });
    let across = reach(xs, x.scale);
    let up = reach(ys, y.scale);
    draw(620, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(36)
            .x_label_area_size(108)
            .y_label_area_size(150)
            .build_cartesian_2d(across.clone(), up.clone())?;
        let ticks = |range: &std::ops::Range<f64>, scale| match scale {
            Scale::Linear => 5,
            Scale::Doubling => ((range.end - range.start).ceil() as usize + 1).min(12),
        };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(FAINT)
            .x_desc(x.label)
            .y_desc(y.label)
            .x_labels(ticks(&across, x.scale))
            .y_labels(ticks(&up, y.scale))
            .x_label_formatter(&|position| x.scale.label(*position))
            .y_label_formatter(&|position| y.scale.label(*position))
            .label_style(("sans-serif", FONT).into_font().color(&FAINT))
            .axis_desc_style(("sans-serif", FONT).into_font().color(&INK))
            .draw()?;
        for line in lines {
            let position =
                |x_value: f64, y_value: f64| (x.scale.position(x_value), y.scale.position(y_value));
            let points = line.points.iter().map(|point| position(point.x, point.y));
            let points: Vec<_> = points.collect();
            chart.draw_series(LineSeries::new(points.clone(), line.colour.stroke_width(4)))?;
            if marks == Marks::Points {
                let dots = points
                    .iter()
                    .map(|at| Circle::new(*at, 7, line.colour.filled()));
                chart.draw_series(dots)?;
            }
            let bars = line.points.iter().filter_map(|point| {
                let [low, high] = point.spread?;
                let ends = vec![position(point.x, low), position(point.x, high)];
                Some(PathElement::new(ends, line.colour.mix(0.6).stroke_width(3)))
            });
            chart.draw_series(bars)?;
        }
        Ok(())
    })
}

/// Whether the points of a line are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    Points,
    None,
}

/// Returns what an axis shows: all values, from zero where it counts evenly.
fn reach(positions: impl Iterator<Item = f64>, scale: Scale) -> std::ops::Range<f64> {
    let (low, high) = positions.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(low, high), position| (low.min(position), high.max(position)),
    );
    match scale {
        _ if low > high => 0.0..1.0,
        Scale::Linear => 0.0..(high * 1.05).max(1e-9),
        Scale::Doubling => low.floor()..high.ceil().max(low.floor() + 1.0),
    }
}

/// A bar and its whisker.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: Colour,
    pub(super) value: f64,
    /// Least and most.
    pub(super) spread: Option<[f64; 2]>,
    pub(super) label: String,
}

/// Draws bars from left to right, one below the other, each with its number behind it.
pub(super) fn bars(bars: &[Bar], unit: &str) -> Result<String> {
    const ROW: i32 = 64;
    let rows = i32::try_from(bars.len())?;
    let most = bars.iter().map(|bar| {
        bar.spread
            .map_or(bar.value, |[_, high]| high.max(bar.value))
    });
    let most = most.fold(1e-9, f64::max);
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    let names = NAMES.max(i32::try_from(longest.unwrap_or(0))? * LETTER);
    // The number stands behind the longest bar.
    let room = f64::from(WIDTH as i32 - names - 190);
    let at = |value: f64| names + (value / most * room) as i32;
    draw(u32::try_from(rows * ROW + 68)?, |area| {
        for (bar, row) in bars.iter().zip(0..) {
            let (top, bottom) = (row * ROW + 12, (row + 1) * ROW - 8);
            let middle = i32::midpoint(top, bottom);
            text(area, &bar.name, (names - 14, middle), INK, HPos::Right)?;
            let end = at(bar.value).max(names + 2);
            area.draw(&Rectangle::new(
                [(names, top), (end, bottom)],
                bar.colour.filled(),
            ))?;
            let mut behind = end;
            if let Some([low, high]) = bar.spread {
                let (low, high) = (at(low), at(high));
                behind = behind.max(high);
                let line = |ends: Vec<(i32, i32)>| PathElement::new(ends, INK.stroke_width(3));
                area.draw(&line(vec![(low, middle), (high, middle)]))?;
                for x in [low, high] {
                    area.draw(&line(vec![(x, middle - 9), (x, middle + 9)]))?;
                }
            }
            text(area, &bar.label, (behind + 12, middle), INK, HPos::Left)?;
        }
        area.draw(&PathElement::new(
            vec![(names, 6), (names, rows * ROW)],
            FAINT.stroke_width(2),
        ))?;
        text(area, unit, (names, rows * ROW + 36), FAINT, HPos::Left)
    })
}

/// A histogram.
pub(super) struct Ridge<'a> {
    pub(super) name: String,
    pub(super) colour: Colour,
    pub(super) counts: &'a [u64],
    pub(super) median: f64,
}

/// Draws histograms one below the other over one axis of latencies, each as high as its fullest bin.
/// `edges` are those of the bins, one more than there are bins.
pub(super) fn ridges(ridges: &[Ridge<'_>], edges: &[f64]) -> Result<String> {
    const ROW: i32 = 92;
    const LEFT: i32 = NAMES;
    let rows = i32::try_from(ridges.len())?;
    let used = |bin: &usize| {
        ridges
            .iter()
            .any(|ridge| ridge.counts.get(*bin).is_some_and(|&n| n > 0))
    };
    let bins = edges.len().saturating_sub(1);
    let edge = |bin: usize| edges.get(bin).copied().unwrap_or(1.0).log2();
    let low = (0..bins).find(used).map_or(0.0, |bin| edge(bin).floor());
    let high = (0..bins)
        .rev()
        .find(used)
        .map_or(1.0, |bin| edge(bin + 1).ceil());
    let room = f64::from(WIDTH as i32 - LEFT - 40);
    let at = |position: f64| LEFT + ((position - low) / (high - low).max(1.0) * room) as i32;
    draw(u32::try_from(rows * ROW + 112)?, |area| {
        let floor = rows * ROW;
        let steps = (high - low).max(1.0) as i32;
        let every = (steps / 5).max(1);
        for step in 0..=steps {
            let position = low + f64::from(step);
            let x = at(position);
            area.draw(&PathElement::new(
                vec![(x, 4), (x, floor)],
                GRID.stroke_width(2),
            ))?;
            if step % every == 0 {
                text(
                    area,
                    &number(position.exp2()),
                    (x, floor + 28),
                    FAINT,
                    HPos::Center,
                )?;
            }
        }
        for (ridge, row) in ridges.iter().zip(0..) {
            let (top, base) = (row * ROW + 10, (row + 1) * ROW);
            text(
                area,
                &ridge.name,
                (LEFT - 14, i32::midpoint(top, base)),
                INK,
                HPos::Right,
            )?;
            let fullest = ridge.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
            for (bin, &count) in ridge
                .counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
            {
                let height = (count as f64 / fullest * f64::from(base - top)).max(2.0) as i32;
                let corners = [
                    (at(edge(bin)), base - height),
                    (at(edge(bin + 1)) - 1, base),
                ];
                area.draw(&Rectangle::new(corners, ridge.colour.filled()))?;
            }
            let x = at(ridge.median.max(1e-9).log2().clamp(low, high));
            area.draw(&PathElement::new(
                vec![(x, top - 6), (x, base)],
                INK.stroke_width(3),
            ))?;
            area.draw(&PathElement::new(
                vec![(LEFT, base), (WIDTH as i32 - 40, base)],
                FAINT.stroke_width(2),
            ))?;
        }
        let middle = LEFT + room as i32 / 2;
        text(
            area,
            "milliseconds, each step doubles",
            (middle, floor + 82),
            INK,
            HPos::Center,
        )
    })
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), colour: RGBColor, side: HPos) -> Result<()> {
    let style = ("sans-serif", FONT).into_font().color(&colour);
    let style = style.pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn draw(height: u32, paint: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        paint(&area)?;
        area.present().map_err(|err| anyhow!("no plot: {err}"))?;
    }
    Ok(svg)
}

/// Returns a number as short as it may be.
fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        _ if size >= 100.0 => crate::table::grouped(value.round() as u64),
        _ if size >= 1.0 => format!("{value:.1}"),
        // Three digits that count: no step is rounded to a false one.
        _ => {
            let digits = (2.0 - size.log10().floor()).clamp(2.0, 6.0) as usize;
            format!("{value:.digits$}")
        }
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let said = [0.0, 0.005, 0.0625, 0.125, 0.5, 1.0, 2.5, 64.0, 1024.0].map(number);
        let short = [
            "0", "0.005", "0.0625", "0.125", "0.5", "1", "2.5", "64", "1,024",
        ];
        assert_eq!(said, short);
    }
}
