//! The page of ranged reads.

use anyhow::Result;

use super::{
    COLOURS, Colour, Figure, Page,
    plot::{self, Bar},
};
use crate::{
    ranges::{File, Lane, Network, Report, Way},
    table::grouped,
};

impl Report {
    /// Returns the report as one HTML page.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub(crate) fn html(&self) -> Result<String> {
        let mut page = Page::new("One window by ranged requests");
        page.origin(&self.origin);
        for note in self.notes().iter().take(5) {
            page.text(note);
        }
        for &network in &self.settings.profiles {
            page.head(&format!("Network: {network}"));
            page.text(&format!("{}.", network.about()));
            let plots = File::ALL.iter().map(|&file| self.ways(network, file));
            page.plots(plots.collect::<Result<Vec<_>>>()?);
            for &file in File::ALL {
                page.table(&self.ways_table(network, file));
            }
            page.faint(
                "The serial way, range by range: median [least .. most] of the reads that count.",
            );
            for &file in File::ALL {
                let lanes = self.lanes_of(network, file).into_iter();
                for lane in lanes.filter(|lane| lane.way == Way::Serial) {
                    page.table(&crate::ranges::ranges_table(lane));
                }
            }
        }
        Ok(page.finish())
    }

    fn ways(&self, network: Network, file: File) -> Result<Figure> {
        let lanes = self.lanes_of(network, file);
        let bars: Vec<Bar> = lanes
            .iter()
            .enumerate()
            .map(|(n, lane)| Bar {
                name: lane.way.name(),
                colour: colour(n),
                value: lane.warm_ms.median,
                spread: Some([lane.warm_ms.min, lane.warm_ms.max]),
                label: grouped(lane.warm_ms.median.round() as u64),
            })
            .collect();
        let said = |lane: &&Lane| {
            let finding = self.finding(lane)?;
            Some(format!("{} {}", lane.way.name(), finding.words()))
        };
        let said: Vec<String> = lanes.iter().filter_map(said).collect();
        Ok(Figure {
            id: format!("ways-{network}-{}", file.name()),
            title: format!("{network}: the {} file", file.name()),
            caption: format!(
                "Median of {} reads, the whisker spans them; less is better. {}.",
                self.settings.iterations,
                said.join("; ")
            ),
            legend: Vec::new(),
            svg: plot::bars(&bars, "milliseconds for the window")?,
        })
    }
}

/// Returns the colour of a way, by its index.
fn colour(index: usize) -> Colour {
    // From the last on: serial is not the colour of a warning.
    let at = (index + 3) % COLOURS.len();
    COLOURS.get(at).copied().unwrap_or(COLOURS[0])
}
