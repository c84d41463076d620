//! The page of arrays.

use anyhow::Result;

use super::{
    COLOURS, Colour, Figure, Page,
    plot::{self, Bar},
};
use crate::{
    Spread,
    table::grouped,
    zarr::{Beside, Measured, OURS, OURS_LZ4, Report, Row, case_table},
};

impl Report {
    /// Returns the report as one HTML page.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub(crate) fn html(&self) -> Result<String> {
        let mut page = Page::new("Sharded arrays, written, read and cut");
        page.origin(&self.origin);
        for note in self.failures().iter().chain(self.notes().iter().take(6)) {
            page.text(note);
        }
        for beside in [Beside::BestOther, Beside::Wkw] {
            let table = self.beside_table(beside);
            if !table.rows.is_empty() {
                page.table(&table);
            }
        }
        for rows in self.cases() {
            let Some(first) = rows.first() else { continue };
            page.head(&first.case());
            page.plots(self.figures(rows)?);
            page.table(&case_table(rows));
        }
        Ok(page.finish())
    }

    fn figures(&self, rows: &[Row]) -> Result<Vec<Figure>> {
        let second = |value: f64| format!("{value:.3}");
        let mut figures = vec![
            self.figure(
                rows,
                "write",
                "Write",
                "seconds by the clock",
                second,
                |m| Some(m.write.wall_s),
            )?,
            self.figure(
                rows,
                "read",
                "Read all",
                "seconds by the clock",
                second,
                |m| Some(m.read.wall_s),
            )?,
        ];
        let cutouts = rows.iter().find_map(|row| row.measured.as_ref());
        let cutouts = cutouts.map_or(&[][..], |measured| &measured.cutouts);
        let micro = |value: f64| grouped(value.round() as u64);
        for (at, cutout) in cutouts.iter().enumerate() {
            let lengths: Vec<String> = cutout.shape.iter().map(u64::to_string).collect();
            let title = |how: &str| format!("A {} of {}, {how}", cutout.name, lengths.join(" x "));
            figures.push(self.figure(
                rows,
                &format!("{}-fresh", cutout.name),
                &title("fresh open"),
                "microseconds",
                micro,
                |m| Some(m.cutouts.get(at)?.fresh_us),
            )?);
            figures.push(self.figure(
                rows,
                &format!("{}-open", cutout.name),
                &title("open array"),
                "microseconds",
                micro,
                |m| Some(m.cutouts.get(at)?.open_us),
            )?);
        }
        let mega = |value: f64| format!("{value:.2}");
        figures.push(self.figure(rows, "size", "Size", "MB stored", mega, |m| {
            Some(Spread::of([m.bytes as f64 / 1e6]))
        })?);
        Ok(figures)
    }

    fn figure(
        &self,
        rows: &[Row],
        id: &str,
        title: &str,
        unit: &str,
        label: impl Fn(f64) -> String,
        value: impl Fn(&Measured) -> Option<Spread>,
    ) -> Result<Figure> {
        let bar = |row: &Row| {
            let spread = value(row.measured.as_ref()?)?;
            Some(Bar {
                name: row.system.clone(),
                colour: self.colour(&row.system),
                value: spread.median,
                spread: (spread.min < spread.max).then_some([spread.min, spread.max]),
                label: label(spread.median),
            })
        };
        let bars: Vec<Bar> = rows.iter().filter_map(bar).collect();
        let chunk: Vec<String> = rows.first().map_or(Vec::new(), |row| {
            row.chunk.iter().map(u64::to_string).collect()
        });
        let data = rows.first().map_or("", |row| row.data.name());
        let failed = rows.iter().filter(|row| row.measured.is_none());
        let failed: Vec<&str> = failed.map(|row| row.system.as_str()).collect();
        let missing = match failed.is_empty() {
            true => String::new(),
            false => format!(" Not here: {}.", failed.join(", ")),
        };
        Ok(Figure {
            id: format!("{data}-{}-{id}", chunk.join("-")),
            title: title.to_owned(),
            caption: match id {
                "size" => format!("All files. Less is better.{missing}"),
                _ => format!("Median; the whisker spans all times. Less is better.{missing}"),
            },
            legend: Vec::new(),
            svg: plot::bars(&bars, unit)?,
        })
    }

    /// Returns the colour of a system: ours are blue, and no other is.
    fn colour(&self, system: &str) -> Colour {
        const OTHERS: [usize; 4] = [4, 0, 1, 2];
        let at = match system {
            OURS => 3,
            OURS_LZ4 => 5,
            _ => {
                let place = self.systems.iter().position(|one| one.name == system);
                // The first two are ours.
                let place = place.unwrap_or(0) + OTHERS.len() - 2;
                OTHERS.get(place % OTHERS.len()).copied().unwrap_or(0)
            }
        };
        COLOURS.get(at).copied().unwrap_or(COLOURS[0])
    }
}
