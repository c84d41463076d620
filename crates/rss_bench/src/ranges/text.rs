//! A report of ranged reads as text.

use std::fmt;

use super::{File, Lane, Network, Report, Way, report::LEAST_READS};
use crate::table::{Table, grouped};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &network in &self.settings.profiles {
            writeln!(f, "{network}: {}\n", network.about())?;
            for &file in File::ALL {
                writeln!(f, "{}", self.ways_table(network, file))?;
            }
        }
        for &network in &self.settings.profiles {
            for lane in File::ALL
                .iter()
                .flat_map(|&file| self.lanes_of(network, file))
            {
                if lane.way == Way::Serial {
                    writeln!(f, "{}", ranges_table(lane))?;
                }
            }
        }
        for finding in &self.findings {
            let (network, file, way) = (finding.network, finding.file.name(), finding.way.name());
            writeln!(f, "{network}, {file}: {way} {}", finding.words())?;
        }
        writeln!(f)?;
        for line in self.notes() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Returns the ways of a network and a file.
    pub(crate) fn ways_table(&self, network: Network, file: File) -> Table {
        let mut table = Table::new(&[
            &format!("{network}, {}", file.name()),
            "requests",
            "bytes",
            "first read ms",
            "median ms",
            "min ms",
            "max ms",
            "beside serial",
        ]);
        for lane in self.lanes_of(network, file) {
            let warm = lane.warm_ms;
            table.row([
                lane.way.name(),
                format!("{:.0}", lane.requests),
                grouped(lane.bytes),
                format!("{:.0}", lane.cold_ms),
                format!("{:.0}", warm.median),
                format!("{:.0}", warm.min),
                format!("{:.0}", warm.max),
                match self.finding(lane) {
                    Some(finding) => format!("{:.2} times as fast", finding.speedup),
                    None => String::new(),
                },
            ]);
        }
        table
    }

    /// Says what was measured, and on what.
    pub(crate) fn notes(&self) -> Vec<String> {
        let iterations = self.settings.iterations;
        let (origin, machine) = (&self.origin, &self.origin.machine);
        let windows = self.windows.iter().map(|read| {
            let [width, height] = read.window;
            format!("{}: {width} x {height} pixels", read.network)
        });
        let windows: Vec<String> = windows.collect();
        let digests: Vec<&str> = self
            .windows
            .iter()
            .map(|read| read.sha256.as_str())
            .collect();
        vec![
            format!(
                "A window of a striped and of a tiled file: int16, DEFLATE, predictor 2. {}. The published \
                 measurement read 12.6 MB, about what 3072 x 2560 pixels come to here. A narrower window keeps the \
                 time short (--scale 1 reads all); waiting for first bytes weighs more in it, so side by side \
                 gains more than it would with all. Each row of tiles, or its strips, is a pair of ranges: 64 KiB, \
                 and the rest.",
                windows.join("; ")
            ),
            format!(
                "All ways know the header before, and end with decoded pixels. The first read makes new \
                 connections; a second one warms up; then {iterations} reads count. Coalesced is the COG reader: \
                 it merges neighbours and cuts at 2 MiB, and decodes while bytes still arrive. At most 256 \
                 requests are under way. The ways run side by side, each with a server and a line of its own: \
                 first those over slow lines, which leave the machine idle, then those over the same region's, \
                 which share its cores."
            ),
            "The networks are models on loopback, made from the numbers of the published measurement; the \
             requests, the connections and the decoding are real. Of the same region it gives no log, and says \
             that requests side by side gain nothing there: the model's line carries no more than one \
             connection. Where a line carries more, reading side by side would gain there too. \
             From another region its parallel pieces took 5.04 s and its serial reads 4.91 s in the mean, no \
             gain; the model's line carries what its fastest answer did, and gains."
                .to_owned(),
            "A way pays where its slowest read was faster than the fastest serial one, and its median is a fifth \
             faster or more; by less it gains little."
                .to_owned()
                + &match iterations < LEAST_READS {
                    true => format!(
                        " Of fewer than {LEAST_READS} reads that count nothing is said."
                    ),
                    false => String::new(),
                },
            format!("All ways of a network returned the same pixels: sha256 {}.", digests.join(", ")),
            format!(
                "{}, {} cores, {}. {}. {}, {:.0} s",
                machine.cpu,
                machine.cores,
                machine.os,
                origin.built(),
                origin.date,
                self.took_s
            ),
            origin.command.clone(),
        ]
    }
}

/// Returns each range of a serial lane.
pub(crate) fn ranges_table(lane: &Lane) -> Table {
    let mut table = Table::new(&[
        &format!("{}, {}: range", lane.network, lane.file.name()),
        "bytes",
        "first read: first byte ms",
        "body ms",
        "then: first byte ms",
        "body ms",
    ]);
    for row in &lane.ranges {
        table.row([
            format!("{}-{}", row.start, row.start + row.bytes - 1),
            grouped(row.bytes),
            format!("{:.0}", row.cold_first_byte_ms),
            format!("{:.0}", row.cold_body_ms),
            format!("{:.0}", row.first_byte_ms),
            format!("{:.0}", row.body_ms),
        ]);
    }
    table
}
