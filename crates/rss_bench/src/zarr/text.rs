//! A report of arrays as text.

use std::fmt;

use super::{Beside, Finding, Measure, Report, Row, report::case_name};
use crate::{
    Spread,
    table::{Table, grouped},
};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for rows in self.cases() {
            writeln!(f, "{}", case_table(rows))?;
        }
        for beside in [Beside::BestOther, Beside::Wkw] {
            let table = self.beside_table(beside);
            if !table.rows.is_empty() {
                writeln!(f, "{table}")?;
            }
        }
        for line in self.failures().iter().chain(&self.notes()) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl Row {
    /// Returns the name of the row's case.
    pub(crate) fn case(&self) -> String {
        case_name(self.data, &self.chunk)
    }
}

/// Returns the rows of a case.
pub(crate) fn case_table(rows: &[Row]) -> Table {
    let case = rows.first().map(Row::case).unwrap_or_default();
    let cutouts = rows.iter().find_map(|row| row.measured.as_ref());
    let cutouts = cutouts.map_or(&[][..], |measured| &measured.cutouts);
    let mut heads: Vec<String> = [&case, "write s", "CPU s", "read s", "CPU s", "MB", "files"]
        .map(str::to_owned)
        .to_vec();
    for cutout in cutouts {
        heads.push(format!("{} us, fresh open", cutout.name));
        heads.push(format!("{} us, open array", cutout.name));
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads);
    for row in rows {
        let Some(measured) = &row.measured else {
            let failed = [row.system.clone(), "failed, see below".to_owned()];
            let nothing = std::iter::repeat_n(String::new(), heads.len() - 2);
            table.row(failed.into_iter().chain(nothing));
            continue;
        };
        let mut cells = vec![
            row.system.clone(),
            seconds(measured.write.wall_s),
            format!("{:.3}", measured.write.cpu_s.median),
            seconds(measured.read.wall_s),
            format!("{:.3}", measured.read.cpu_s.median),
            format!("{:.2}", measured.bytes as f64 / 1e6),
            grouped(measured.files),
        ];
        for cutout in &measured.cutouts {
            cells.push(micros(cutout.fresh_us));
            cells.push(micros(cutout.open_us));
        }
        table.row(cells);
    }
    table
}

fn seconds(spread: Spread) -> String {
    format!("{spread:.3}")
}

fn micros(spread: Spread) -> String {
    let whole = |value: f64| grouped(value.round() as u64);
    format!(
        "{} [{} .. {}]",
        whole(spread.median),
        whole(spread.min),
        whole(spread.max)
    )
}

impl Report {
    /// Returns our rows beside others, a column for each measure.
    pub(crate) fn beside_table(&self, beside: Beside) -> Table {
        let found = |measure: Measure| {
            let is = |one: &&Finding| one.beside == beside && one.measure == measure;
            self.findings.iter().any(|one| is(&one))
        };
        let measures: Vec<Measure> = Measure::ALL
            .iter()
            .copied()
            .filter(|&measure| found(measure))
            .collect();
        let head = match beside {
            Beside::BestOther => "rss_core beside the best",
            Beside::Wkw => "rss_core lz4 beside wkw",
        };
        let mut heads = vec![head];
        heads.extend(measures.iter().map(|measure| measure.head()));
        let mut table = Table::new(&heads);
        let ours: Vec<&Finding> = self
            .findings
            .iter()
            .filter(|one| one.beside == beside)
            .collect();
        for case in ours.chunk_by(|a, b| a.data == b.data && a.chunk == b.chunk) {
            let name = case.first().map(|one| case_name(one.data, &one.chunk));
            let cells = measures.iter().map(|&measure| {
                let one = case.iter().find(|one| one.measure == measure);
                one.map_or_else(String::new, |one| one.words())
            });
            table.row(std::iter::once(name.unwrap_or_default()).chain(cells));
        }
        table
    }

    /// Says what each system could not do, once.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut lines: Vec<(&str, &str, Vec<String>)> = Vec::new();
        for row in &self.rows {
            let Some(error) = &row.error else { continue };
            let known = lines
                .iter_mut()
                .find(|(system, said, _)| *system == row.system && said == error);
            match known {
                Some((.., cases)) => cases.push(row.case()),
                None => lines.push((&row.system, error, vec![row.case()])),
            }
        }
        lines
            .into_iter()
            .map(|(system, error, cases)| {
                format!("{system} failed at {}: {error}", cases.join("; "))
            })
            .collect()
    }

    /// Says what was measured, and on what.
    pub(crate) fn notes(&self) -> Vec<String> {
        let (origin, machine, settings) = (&self.origin, &self.origin.machine, &self.settings);
        let sources = self.sources.iter().map(|source| {
            let lengths: Vec<String> = source.shape.iter().map(u64::to_string).collect();
            format!(
                "{}: {} ({}), {:.1} MB, crc32 {:08x}",
                source.data.name(),
                source.dtype,
                lengths.join(", "),
                source.bytes as f64 / 1e6,
                source.crc32
            )
        });
        let sources: Vec<String> = sources.collect();
        let shards = self.rows.first().map(|row| row.shard.clone());
        let shards = match shards {
            Some(shard) => {
                let lengths: Vec<String> = shard.iter().map(u64::to_string).collect();
                format!("shards of {}", lengths.join(" x "))
            }
            None => "shards".to_owned(),
        };
        let systems = self.systems.iter().map(|system| {
            let version = match &system.version {
                Some(version) => format!(" {version}"),
                None => String::new(),
            };
            let codec = match (system.codec.as_str(), &system.says) {
                ("native" | "default", Some(says)) => says.clone(),
                (codec, _) => codec.to_owned(),
            };
            format!("{}{version} ({codec})", system.name)
        });
        let systems: Vec<String> = systems.collect();
        vec![
            format!("Data made from a fixed seed. {}.", sources.join("; ")),
            format!(
                "Each system is a process of its own, with as many threads as it takes by itself. {} rounds, in \
                 each of which all have their turn, another the first: write {shards}, open and read all, cut boxes out {} times each. \
                 Median [least .. most]; CPU is user and system time of the system's process.",
                settings.rounds,
                super::TIMES
            ),
            "The page cache is warm: files were just written, and nothing waits for the disk. Samples lie in memory \
             before a write, and are in memory after a read. A box lies in no more chunks than it needs, and in \
             another place each round. A fresh open reads the metadata again; what a process learnt of libraries and \
             threads stays."
                .to_owned(),
            "Beside another: times as fast, the other's median over ours; ~ where the spreads overlap. Of sizes, ours as \
             a share of the other's. The best is the best of all others but WKW, which stores with LZ4 and is put beside \
             our LZ4."
                .to_owned(),
            "All systems read the samples that were stored: each digest is compared with the source's.".to_owned(),
            format!("Systems: {}.", systems.join("; ")),
            format!(
                "{}, {} cores, {}. {} build of version {}. {}, {:.0} s",
                machine.cpu,
                machine.cores,
                machine.os,
                origin.build,
                origin.version,
                origin.date,
                self.took_s
            ),
            origin.command.clone(),
        ]
    }
}

impl Measure {
    /// Returns the head of its column.
    fn head(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteCpu => "write CPU",
            Self::Read => "read",
            Self::ReadCpu => "read CPU",
            Self::CutFresh => "cutout or series, fresh",
            Self::CutOpen => "open array",
            Self::MapFresh => "map, fresh",
            Self::MapOpen => "open array",
            Self::Size => "size",
        }
    }
}

impl Finding {
    /// Returns the number, and whom it is beside where that is not said already.
    fn words(&self) -> String {
        let ratio = match self.measure {
            Measure::Size => format!("{:.3}", self.ratio),
            _ => format!("{:.2}", self.ratio),
        };
        let sure = match self.verdict {
            super::Verdict::Same if self.measure != Measure::Size => "~",
            _ => "",
        };
        match self.beside {
            Beside::Wkw => format!("{sure}{ratio}"),
            Beside::BestOther => format!("{sure}{ratio} {}", self.other),
        }
    }
}
