//! One HTML file that needs nothing else: no script, no font, no address.

mod gather;
mod plot;
mod ranges;

use crate::{Origin, table::Table};

/// A colour of a series, the same in every plot: Okabe and Ito's, which the colour-blind tell apart.
/// The page lightens them where the scheme is dark.
pub(super) type Colour = plotters::style::RGBColor;

/// The colours of series, in order.
pub(super) const COLOURS: [Colour; 6] = [
    plotters::style::RGBColor(0xD5, 0x5E, 0x00),
    plotters::style::RGBColor(0xE6, 0x9F, 0x00),
    plotters::style::RGBColor(0xCC, 0x79, 0xA7),
    plotters::style::RGBColor(0x00, 0x72, 0xB2),
    plotters::style::RGBColor(0x00, 0x9E, 0x73),
    plotters::style::RGBColor(0x56, 0xB4, 0xE9),
];

const STYLE: &str = "
:root{--paper:#fff;--ink:#1a1d21;--faint:#5a626b;--grid:#d9dde2;--box:#f5f6f8;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e8eaed;--faint:#a4acb5;--grid:#3a4047;--box:#1d2125}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;background:var(--paper);color:var(--ink);
 font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere;-webkit-text-size-adjust:100%}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.2rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:0}
p{max-width:46rem;margin:.5rem 0}
.faint,figcaption{color:var(--faint);font-size:.9rem}
.plots{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.plots>*{min-width:0}
figure{margin:0;max-width:38rem;padding:.75rem;background:var(--box);border-radius:.5rem}
svg{display:block;width:100%;height:auto}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.25rem 0;padding:0;font-size:.9rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.4em}
.scroll{overflow-x:auto;margin:.75rem 0;border:1px solid var(--grid);border-radius:.5rem}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.35rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{font-weight:600;background:var(--box)}
th:first-child,td:first-child{text-align:left}
tr:last-child td{border-bottom:0}
dt{font-weight:600}dd{margin:0 0 .4rem}
svg [fill=\"#1A1D21\"]{fill:var(--ink)}svg [stroke=\"#1A1D21\"]{stroke:var(--ink)}
svg [fill=\"#5A626B\"]{fill:var(--faint)}svg [stroke=\"#5A626B\"]{stroke:var(--faint)}
svg [fill=\"#D9DDE2\"]{fill:var(--grid)}svg [stroke=\"#D9DDE2\"]{stroke:var(--grid)}
";

/// A page that is being written.
pub(super) struct Page {
    title: String,
    body: String,
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let mut page = Self {
            title: title.to_owned(),
            body: String::new(),
        };
        page.push(&format!("<h1>{}</h1>\n", escaped(title)));
        page
    }

    fn push(&mut self, html: &str) {
        self.body.push_str(html);
    }

    pub(super) fn head(&mut self, text: &str) {
        self.push(&format!("<h2>{}</h2>\n", escaped(text)));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.push(&format!("<p>{}</p>\n", escaped(text)));
    }

    pub(super) fn faint(&mut self, text: &str) {
        self.push(&format!("<p class=\"faint\">{}</p>\n", escaped(text)));
    }

    /// Adds names and what they mean.
    pub(super) fn words<'a>(&mut self, words: impl IntoIterator<Item = (&'a str, String)>) {
        self.push("<dl>\n");
        for (name, meaning) in words {
            let (name, meaning) = (escaped(name), escaped(&meaning));
            self.push(&format!("<dt>{name}</dt><dd>{meaning}</dd>\n"));
        }
        self.push("</dl>\n");
    }

    /// Adds plots side by side, where there is room.
    pub(super) fn plots(&mut self, plots: impl IntoIterator<Item = Figure>) {
        self.push("<div class=\"plots\">\n");
        for plot in plots {
            self.push(&plot.html());
        }
        self.push("</div>\n");
    }

    /// Adds a table that scrolls in its own box.
    pub(super) fn table(&mut self, table: &Table) {
        let cells = |tag: &str, cells: &[String]| -> String {
            let cells = cells
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            cells.collect()
        };
        self.push("<div class=\"scroll\" tabindex=\"0\"><table>\n");
        self.push(&format!(
            "<thead><tr>{}</tr></thead>\n<tbody>\n",
            cells("th", &table.heads)
        ));
        for row in &table.rows {
            self.push(&format!("<tr>{}</tr>\n", cells("td", row)));
        }
        self.push("</tbody></table></div>\n");
    }

    /// Adds where and how it was measured.
    pub(super) fn origin(&mut self, origin: &Origin) {
        let machine = &origin.machine;
        let memory = match machine.memory_bytes {
            Some(bytes) => format!(", {:.0} GB of memory", bytes as f64 / 1e9),
            None => String::new(),
        };
        self.faint(&format!(
            "{}. {}, {} cores{memory}, {}. {}. Command: {}",
            origin.date,
            machine.cpu,
            machine.cores,
            machine.os,
            origin.built(),
            origin.command
        ));
    }

    pub(super) fn finish(self) -> String {
        let dark: String = COLOURS
            .iter()
            .map(|colour| {
                let (plain, light) = (hex(*colour), hex(lighter(*colour)));
                format!(
                    "svg [fill=\"{plain}\"]{{fill:{light}}}svg [stroke=\"{plain}\"]{{stroke:{light}}}\
                     .legend [data-colour=\"{plain}\"]{{background:{light}!important}}\n"
                )
            })
            .collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>{STYLE}@media(prefers-color-scheme:dark){{{dark}}}</style>\n\
             </head>\n<body>\n{}</body>\n</html>\n",
            escaped(&self.title),
            self.body
        )
    }
}

/// A plot, with what stands around it.
pub(super) struct Figure {
    /// A name for links and tests.
    pub(super) id: String,
    pub(super) title: String,
    /// What it says, for those who do not see it and those who do.
    pub(super) caption: String,
    pub(super) legend: Vec<(String, Colour)>,
    pub(super) svg: String,
}

impl Figure {
    fn html(&self) -> String {
        let (title, caption) = (escaped(&self.title), escaped(&self.caption));
        let legend: String = self
            .legend
            .iter()
            .map(|(name, colour)| {
                let (name, colour) = (escaped(name), hex(*colour));
                format!(
                    "<li><i data-colour=\"{colour}\" style=\"background:{colour}\"></i>{name}</li>"
                )
            })
            .collect();
        let legend = match legend.is_empty() {
            true => legend,
            false => format!("<ul class=\"legend\">{legend}</ul>\n"),
        };
        // The page sets the size, the drawing its proportions.
        let svg = match self.svg.find("viewBox") {
            Some(at) => format!(
                "<svg role=\"img\" aria-label=\"{title}\" {}",
                self.svg.get(at..).unwrap_or_default()
            ),
            None => String::new(),
        };
        format!(
            "<figure id=\"{}\"><h3>{title}</h3>\n{legend}{svg}<figcaption>{caption}</figcaption></figure>\n",
            escaped(&self.id)
        )
    }
}

fn hex(colour: Colour) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// Returns a colour for a dark ground.
fn lighter(colour: Colour) -> Colour {
    let lift = |part: u8| part + ((255 - part) as f64 * 0.3) as u8;
    plotters::style::RGBColor(lift(colour.0), lift(colour.1), lift(colour.2))
}

/// Returns text that HTML shows as it stands.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_outside_are_shown_and_not_run() {
        let mut page = Page::new("<script>");
        page.words([("a\"b", "<img src=x>".to_owned())]);
        let html = page.finish();
        assert!(
            !html.contains("<script>") && !html.contains("<img"),
            "{html}"
        );
    }
}
