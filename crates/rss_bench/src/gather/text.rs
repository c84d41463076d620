//! A gather's report as text.

use std::fmt;

use super::{Backend, Report, Run};
use crate::table::{Table, grouped};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &backend in &self.settings.backends {
            let runs = self.best_of(backend);
            let (Some(first), Some(best)) = (
                runs.iter().min_by_key(|run| run.concurrency),
                self.fastest(backend),
            ) else {
                continue;
            };
            writeln!(f, "{}", "-".repeat(103))?;
            if std::ptr::eq(*first, best) {
                for line in self.block(best, "best run") {
                    writeln!(f, "{}", line.trim_end())?;
                }
                continue;
            }
            let left = self.block(first, "fewest at once");
            let right = self.block(best, "highest peak");
            for (left, right) in left.iter().zip(&right) {
                writeln!(f, "{}", format!("{left:<50} | {right}").trim_end())?;
            }
        }
        writeln!(f, "{}\n", "-".repeat(103))?;
        writeln!(f, "{}", self.all_table())?;
        writeln!(f, "{}", self.best_table())?;
        for line in self.notes() {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Returns one run in the manner of the published report.
    fn block(&self, run: &Run, what: &str) -> Vec<String> {
        let chunk = self.workload.chunk_bytes;
        let [width, height] = self.workload.tile;
        let (open, read) = (run.open_share * 100.0, 100.0 - run.open_share * 100.0);
        let digest = |from: usize, to: usize| run.sha256.get(from..to).unwrap_or_default();
        vec![
            format!("{}: {what}", run.backend),
            format!("   - blocks  : {width}x{height}@{}", self.workload.dtype),
            format!("   - at once : {}", run.concurrency),
            String::new(),
            format!("Files read             : {}", run.files),
            format!(
                "Total data bytes       : {}",
                grouped(self.workload.total_bytes)
            ),
            "  (excluding headers)".to_owned(),
            format!("Bytes per chunk        : {chunk:.0}"),
            format!("Requests per tile      : {:.2}", run.requests_per_tile),
            String::new(),
            "Time:".to_owned(),
            " per tile:".to_owned(),
            format!("  - total  {} ms", run.total_ms),
            format!("  - open   {} ms {open:.1}%", run.open_ms),
            format!("  - read   {} ms {read:.1}%", run.read_ms),
            format!("  - first file of a worker {} ms", run.first_file_ms),
            String::new(),
            format!("  {}..{}", digest(0, 32), digest(56, 64)),
            format!(
                "  total_cpu: {:.2} sec, {:.2} ms per tile",
                run.cpu_s, run.cpu_ms_per_tile
            ),
            format!("  walltime : {:.2} sec", run.wall_s),
            format!(
                "  peak     : {:.1} tiles/s, {:.0}% of decoding alone",
                run.peak_tiles_per_s,
                run.decode_limit_share * 100.0
            ),
        ]
    }

    /// Returns the peak of each backend at each concurrency.
    pub(crate) fn all_table(&self) -> Table {
        let mut heads = vec!["peak tiles/s, at once:".to_owned()];
        heads.extend(self.settings.concurrency.iter().map(usize::to_string));
        // A reader that finds the number by itself has a column of its own.
        let finds = !self
            .settings
            .backends
            .iter()
            .all(|backend| backend.is_told());
        heads.extend(finds.then(|| "found".to_owned()));
        let mut table = Table {
            heads,
            rows: Vec::new(),
        };
        for &backend in &self.settings.backends {
            let blank = || "-".to_owned();
            let runs = self.best_of(backend);
            let mut cells = vec![backend.to_string()];
            if backend.is_told() {
                let peaks = runs
                    .iter()
                    .map(|run| format!("{:.1}", run.peak_tiles_per_s));
                cells.extend(peaks);
                cells.extend(finds.then(blank));
            } else {
                cells.extend(self.settings.concurrency.iter().map(|_| blank()));
                let found = runs.first();
                cells.extend(
                    found.map(|run| format!("{:.1} at {}", run.peak_tiles_per_s, run.concurrency)),
                );
            }
            table.row(cells);
        }
        table
    }

    /// Returns the best run of each backend.
    pub(crate) fn best_table(&self) -> Table {
        let mut table = Table::new(&[
            "best run",
            "at once",
            "peak tiles/s",
            "its repeats",
            "of decode limit",
            "CPU ms/tile",
            "requests/tile",
            "open ms",
            "read ms",
            "total ms",
            "first file ms",
            "wall s",
        ]);
        let best = |backend: &Backend| self.fastest(*backend);
        for run in self.settings.backends.iter().filter_map(best) {
            let repeats = self.repeats(run);
            table.row([
                run.backend.to_string(),
                run.concurrency.to_string(),
                format!("{:.1}", run.peak_tiles_per_s),
                format!("{:.1} .. {:.1}", repeats.min, repeats.max),
                format!("{:.0}%", run.decode_limit_share * 100.0),
                format!("{:.2}", run.cpu_ms_per_tile),
                format!("{:.2}", run.requests_per_tile),
                run.open_ms.to_string(),
                run.read_ms.to_string(),
                run.total_ms.to_string(),
                run.first_file_ms.to_string(),
                format!("{:.2}", run.wall_s),
            ]);
        }
        table
    }

    /// Says what was measured, and on what.
    pub(crate) fn notes(&self) -> Vec<String> {
        let (settings, work, limit) = (&self.settings, &self.workload, &self.decode_limit);
        let (origin, machine) = (&self.origin, &self.origin.machine);
        let [width, height] = work.tile;
        vec![
            format!(
                "One tile of {width} x {height} pixels, the centre one, from each of {} files ({} distinct contents \
                 under as many keys): {}, {}, predictor {}, {:.0} bytes as stored (median [least .. most]), {} in the mean.",
                work.files,
                work.contents,
                work.dtype,
                work.compression,
                work.predictor,
                work.chunk_bytes,
                grouped(work.total_bytes / work.files.max(1) as u64)
            ),
            format!(
                "Servers on loopback in another process; each answer begins after {} ms. Bandwidth is that of \
                 loopback. New threads and connections in each run; {} threads decode, each \
                 GDAL worker has a thread of its own. Runs: {} of each, interleaved; the best by peak is shown, all are in the JSON.",
                settings.latency_ms, settings.threads, settings.repeats
            ),
            format!(
                "Peak: the most that files done over seconds since the start came to. Decoding alone (libdeflate, \
                 predictor undone, one thread): {:.2} ms per tile, {:.0} tiles/s on {} cores, if cores did not \
                 slow each other; servers and client share them here.",
                limit.ms_per_tile, limit.tiles_per_s, limit.cores
            ),
            format!("All runs returned the same pixels: sha256 {}.", self.sha256),
            format!(
                "{}, {} cores, {}. {}. {}",
                machine.cpu,
                machine.cores,
                machine.os,
                origin.built(),
                origin.date
            ),
            origin.command.clone(),
        ]
    }
}
