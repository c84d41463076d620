//! The page of a gather.

use anyhow::Result;

use super::{
    COLOURS, Colour, Figure, Page,
    plot::{self, Axis, Bar, Line, Marks, Point, Ridge, Scale},
};
use crate::{
    Spread,
    gather::{Backend, Counts, Report, Run},
};

impl Report {
    /// Returns the report as one HTML page.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub(crate) fn html(&self) -> Result<String> {
        let mut page = Page::new("One tile from each of many files");
        page.origin(&self.origin);
        for note in self.notes().iter().take(4) {
            page.text(note);
        }
        let backends = self.settings.backends.iter();
        page.words(backends.map(|backend| (backend.name(), backend.about().to_owned())));

        page.head("Best runs");
        page.plots(self.comparison()?);
        page.table(&self.best_table());
        page.head("Throughput against files at once");
        page.plots([self.throughput()?, self.progress()?]);
        page.table(&self.all_table());
        page.head("Latency of the best runs");
        page.faint(
            "Each histogram is as high as its fullest bin; the stroke is the median. Bins are a quarter of a \
             doubling wide.",
        );
        page.plots([
            self.latency("open", |run| (&run.histogram.open, run.open_ms))?,
            self.latency("read", |run| (&run.histogram.read, run.read_ms))?,
            self.latency("total", |run| (&run.histogram.total, run.total_ms))?,
        ]);
        page.head("Warm-up");
        page.plots([self.warm_up()?]);
        Ok(page.finish())
    }

    fn fastest_runs(&self) -> Vec<&Run> {
        let backends = self.settings.backends.iter();
        backends
            .filter_map(|&backend| self.fastest(backend))
            .collect()
    }

    fn legend(&self) -> Vec<(String, Colour)> {
        let backends = self.settings.backends.iter();
        backends
            .map(|&backend| (backend.to_string(), colour(backend)))
            .collect()
    }

    fn comparison(&self) -> Result<Vec<Figure>> {
        let runs = self.fastest_runs();
        let figure =
            |id: &str, title: &str, unit: &str, caption: &str, bar: &dyn Fn(&Run) -> Bar| {
                let bars: Vec<Bar> = runs.iter().map(|run| bar(run)).collect();
                anyhow::Ok(Figure {
                    id: id.to_owned(),
                    title: title.to_owned(),
                    caption: caption.to_owned(),
                    legend: Vec::new(),
                    svg: plot::bars(&bars, unit)?,
                })
            };
        let bar = |run: &Run, value: f64, spread: Option<[f64; 2]>, label: String| Bar {
            name: run.backend.to_string(),
            colour: colour(run.backend),
            value,
            spread,
            label,
        };
        Ok(vec![
            figure(
                "best-throughput",
                "Peak throughput",
                "tiles per second",
                "More is better. The whisker spans the repeats of the run that is shown; the number of files at \
                 once stands behind the peak.",
                &|run| {
                    let Spread { min, max, .. } = self.repeats(run);
                    let label = format!("{:.0} at {}", run.peak_tiles_per_s, run.concurrency);
                    bar(run, run.peak_tiles_per_s, Some([min, max]), label)
                },
            )?,
            figure(
                "best-cpu",
                "Processor time",
                "milliseconds of CPU per tile",
                "Less is better. User and system time of the client's process, all threads.",
                &|run| {
                    bar(
                        run,
                        run.cpu_ms_per_tile,
                        None,
                        format!("{:.2}", run.cpu_ms_per_tile),
                    )
                },
            )?,
            figure(
                "best-requests",
                "Requests",
                "requests per tile",
                "Less is better. Counted by the server.",
                &|run| {
                    bar(
                        run,
                        run.requests_per_tile,
                        None,
                        format!("{:.2}", run.requests_per_tile),
                    )
                },
            )?,
        ])
    }

    fn throughput(&self) -> Result<Figure> {
        let line = |&backend: &Backend| Line {
            colour: colour(backend),
            points: self
                .best_of(backend)
                .into_iter()
                .map(|run| self.point(run))
                .collect(),
        };
        let lines: Vec<Line> = self.settings.backends.iter().map(line).collect();
        Ok(Figure {
            id: "throughput".to_owned(),
            title: "Peak throughput against files at once".to_owned(),
            caption: format!(
                "Best of {} runs at each point, the stroke spans all of them. Decoding alone would allow {:.0} \
                 tiles/s on {} cores.",
                self.settings.repeats, self.decode_limit.tiles_per_s, self.decode_limit.cores
            ),
            legend: self.legend(),
            svg: plot::lines(
                &lines,
                Axis {
                    label: "files at once (threads, for GDAL)",
                    scale: Scale::Doubling,
                },
                Axis {
                    label: "tiles per second",
                    scale: Scale::Linear,
                },
                Marks::Points,
            )?,
        })
    }

    fn point(&self, run: &Run) -> Point {
        let Spread { min, max, .. } = self.repeats(run);
        Point {
            x: run.concurrency as f64,
            y: run.peak_tiles_per_s,
            spread: Some([min, max]),
        }
    }

    fn progress(&self) -> Result<Figure> {
        let line = |run: &&Run| Line {
            colour: colour(run.backend),
            points: run
                .finished
                .iter()
                .map(|point| Point {
                    x: point.seconds,
                    y: point.files as f64,
                    spread: None,
                })
                .collect(),
        };
        let lines: Vec<Line> = self.fastest_runs().iter().map(line).collect();
        Ok(Figure {
            id: "progress".to_owned(),
            title: "Files done over time".to_owned(),
            caption: "The best run of each. The flat start is warm-up: nothing is done yet."
                .to_owned(),
            legend: self.legend(),
            svg: plot::lines(
                &lines,
                Axis {
                    label: "seconds since the start",
                    scale: Scale::Linear,
                },
                Axis {
                    label: "files done",
                    scale: Scale::Linear,
                },
                Marks::None,
            )?,
        })
    }

    fn latency(&self, what: &str, of: impl Fn(&Run) -> (&Counts, Spread)) -> Result<Figure> {
        let runs = self.fastest_runs();
        let ridges: Vec<Ridge<'_>> = runs
            .iter()
            .map(|run| {
                let (counts, spread) = of(run);
                Ridge {
                    name: run.backend.to_string(),
                    colour: colour(run.backend),
                    counts: &counts.0,
                    median: spread.median,
                }
            })
            .collect();
        let said = runs.iter().map(|run| {
            let (_, spread) = of(run);
            format!("{} at {}: {spread} ms", run.backend, run.concurrency)
        });
        let said: Vec<String> = said.collect();
        Ok(Figure {
            id: format!("latency-{what}"),
            title: format!("Latency: {what}"),
            caption: format!("Median [least .. most]. {}.", said.join("; ")),
            legend: Vec::new(),
            svg: plot::ridges(&ridges, &self.latency_bins_ms)?,
        })
    }

    fn warm_up(&self) -> Result<Figure> {
        let line = |&backend: &Backend| Line {
            colour: colour(backend),
            points: self
                .best_of(backend)
                .into_iter()
                .map(|run| {
                    let Spread { min, median, max } = run.first_file_ms;
                    Point {
                        x: run.concurrency as f64,
                        y: median,
                        spread: Some([min, max]),
                    }
                })
                .collect(),
        };
        let lines: Vec<Line> = self.settings.backends.iter().map(line).collect();
        Ok(Figure {
            id: "warm-up".to_owned(),
            title: "The first file of each worker".to_owned(),
            caption: "Open and read of the first file: threads, connections and what a library sets up come on \
                      top. The point is the median of the workers, the stroke spans them all."
                .to_owned(),
            legend: self.legend(),
            svg: plot::lines(
                &lines,
                Axis {
                    label: "files at once (threads, for GDAL)",
                    scale: Scale::Doubling,
                },
                Axis {
                    label: "milliseconds",
                    scale: Scale::Linear,
                },
                Marks::Points,
            )?,
        })
    }
}

/// Returns the colour of a backend.
fn colour(backend: Backend) -> Colour {
    let at = Backend::ALL.iter().position(|other| *other == backend);
    at.and_then(|at| COLOURS.get(at))
        .copied()
        .unwrap_or(COLOURS[0])
}
