//! Points of a table of text (CSV).

use std::collections::HashSet;

use super::{
    features::{DEGREES, checked},
    points::Points,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crs,
};

/// Options of reading points of CSV.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CsvOptions {
    /// The CRS of the coordinates, x then y; none is longitude and latitude of WGS 84.
    pub crs: Option<Crs>,
    /// The columns of x and y; none are those with a usual name: `lon` and `lat`, `longitude` and `latitude`, `lng` and
    /// `lat`, `x` and `y`, `easting` and `northing`, in any case.
    pub columns: Option<[String; 2]>,
    /// The column that holds names, in addition to the ids; names need not be unique.
    pub name: Option<String>,
}

impl CsvOptions {
    /// Returns the defaults: degrees in columns of usual names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the CRS of the coordinates.
    #[must_use]
    pub fn with_crs(mut self, crs: Crs) -> Self {
        self.crs = Some(crs);
        self
    }

    /// Sets the columns of x and y.
    #[must_use]
    pub fn with_columns(mut self, x: impl Into<String>, y: impl Into<String>) -> Self {
        self.columns = Some([x.into(), y.into()]);
        self
    }

    /// Sets the column that holds names.
    #[must_use]
    pub fn with_name(mut self, column: impl Into<String>) -> Self {
        self.name = Some(column.into());
        self
    }
}

/// The usual names of the columns of x and y.
const USUAL: [[&str; 2]; 6] = [
    ["lon", "lat"],
    ["longitude", "latitude"],
    ["lng", "lat"],
    ["long", "lat"],
    ["x", "y"],
    ["easting", "northing"],
];

/// The column of ids, in any case.
const ID: &str = "id";

impl Points {
    /// Reads points of CSV with a header ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180)); fields may also be separated by
    /// semicolons or tabs. The column `id` is the id of a point; without one it is its number, counted from 0.
    ///
    /// ```
    /// use rss_core::apply::sample::{CsvOptions, Points};
    ///
    /// let text = "plot,lon,lat\nnorth,153.02,-25.33\nsouth,153.05,-25.35\n";
    /// let plots = Points::from_csv(text, &CsvOptions::new().with_name("plot"))?;
    /// assert_eq!(plots.named()[1].name.as_deref(), Some("south"));
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no header with the columns, no point, a line with more or fewer fields than the
    /// header, a coordinate that is no number or not valid in degrees, or two points with one id. The error names line and
    /// column.
    pub fn from_csv(text: &str, options: &CsvOptions) -> Result<Self> {
        // Some programs write a byte order mark first.
        let text = text.trim_start_matches('\u{feff}');
        let first = text.lines().next().unwrap_or_default();
        // Names of columns hold none of them, as a rule; of several the most frequent separates.
        let separator = [',', ';', '\t']
            .into_iter()
            .rev()
            .max_by_key(|separator| first.matches(*separator).count())
            .unwrap_or(',');
        let mut lines = Lines {
            rest: text,
            line: 1,
            separator,
        };
        let header = lines.next().transpose()?.map(|line| line.fields);
        let header = header.ok_or_else(|| wrong("CSV without a header"))?;
        let columns = Columns::of(&header, options)?;
        let crs = options.crs.clone().unwrap_or(DEGREES);
        let mut made = Self::none(crs.clone());
        let mut ids = HashSet::new();
        for line in lines {
            let Line { number, fields } = line?;
            if fields.iter().all(|field| field.trim().is_empty()) {
                continue;
            }
            if fields.len() != header.len() {
                return Err(wrong(format!(
                    "line {number} has {} fields, expected {} as in the header",
                    fields.len(),
                    header.len()
                )));
            }
            let field = |column: usize| fields.get(column).map_or("", |field| field.trim());
            let coordinate = |column: usize| {
                let text = field(column);
                text.parse::<f64>().map_err(|_| {
                    let name = header.get(column).map_or("", |name| name.trim());
                    wrong(format!(
                        "line {number}, column {}: `{}` is not a number",
                        name.escape_debug(),
                        text.escape_debug()
                    ))
                })
            };
            let place = [coordinate(columns.x)?, coordinate(columns.y)?];
            let id = match columns.id {
                Some(column) => field(column).to_owned(),
                None => made.named().len().to_string(),
            };
            if !ids.insert(id.clone()) {
                let shown = id.escape_debug();
                return Err(wrong(format!(
                    "line {number}, column id: another point has the id `{shown}`"
                )));
            }
            let place = checked(&id, &crs, place)
                .map_err(|err| wrong(format!("line {number}: {}", err.message())))?;
            let name = columns.name.map(field).filter(|name| !name.is_empty());
            made.push(id, name.map(str::to_owned), place);
        }
        match made.named().is_empty() {
            true => Err(wrong("CSV without points")),
            false => Ok(made),
        }
    }
}

/// The places of the columns that are read.
struct Columns {
    x: usize,
    y: usize,
    id: Option<usize>,
    name: Option<usize>,
}

impl Columns {
    fn of(header: &[String], options: &CsvOptions) -> Result<Self> {
        let usual = |name: &str| {
            let is_it = |column: &String| column.trim().eq_ignore_ascii_case(name);
            header.iter().position(is_it)
        };
        let all = || header.join(", ").escape_debug().to_string();
        let named = |name: &str| {
            let column = header.iter().position(|column| column.trim() == name);
            column.ok_or_else(|| {
                let name = name.escape_debug();
                wrong(format!("no column `{name}`: the header has {}", all()))
            })
        };
        let [x, y] = match &options.columns {
            Some([x, y]) => [named(x)?, named(y)?],
            None => {
                let mut known = USUAL.iter();
                let pair = known.find_map(|[x, y]| Some([usual(x)?, usual(y)?]));
                pair.ok_or_else(|| {
                    wrong(format!(
                        "no columns lon and lat, or x and y, among {}: name those of the coordinates",
                        all()
                    ))
                })?
            }
        };
        for column in [x, y] {
            let name = header.get(column).map_or("", |name| name.trim());
            if header.iter().filter(|other| other.trim() == name).count() > 1 {
                let name = name.escape_debug();
                return Err(wrong(format!(
                    "two columns are named `{name}`: expected one of the coordinates"
                )));
            }
        }
        Ok(Self {
            x,
            y,
            id: usual(ID),
            name: options.name.as_deref().map(named).transpose()?,
        })
    }
}

/// The fields of a line, which quoted ones may continue over several.
struct Line {
    /// Counted from 1.
    number: usize,
    fields: Vec<String>,
}

/// The lines of a text.
struct Lines<'a> {
    rest: &'a str,
    /// The number of the next line.
    line: usize,
    separator: char,
}

impl Iterator for Lines<'_> {
    type Item = Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let number = self.line;
        let mut fields = Vec::new();
        let mut field = String::new();
        // Whether a quote is open, and whether the field was quoted.
        let (mut is_open, mut is_quoted) = (false, false);
        let mut chars = self.rest.char_indices().peekable();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            self.line += usize::from(c == '\n');
            match c {
                '"' if is_open && chars.next_if(|(_, next)| *next == '"').is_some() => {
                    field.push('"')
                }
                '"' if is_open => is_open = false,
                '"' if field.trim().is_empty() && !is_quoted => {
                    field.clear();
                    (is_open, is_quoted) = (true, true);
                }
                c if is_open => field.push(c),
                '\n' => {
                    end = at + 1;
                    break;
                }
                '\r' => {}
                c if c == self.separator => {
                    fields.push(std::mem::take(&mut field));
                    is_quoted = false;
                }
                c => field.push(c),
            }
        }
        self.rest = self.rest.get(end..).unwrap_or_default();
        if is_open {
            self.rest = "";
            let message = format!("line {number}: a quote is not closed");
            return Some(Err(wrong(message)));
        }
        fields.push(field);
        Some(Ok(Line { number, fields }))
    }
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Points> {
        Points::from_csv(text, &CsvOptions::new())
    }

    fn places(points: &Points) -> Vec<[f64; 2]> {
        let named = points.named().iter();
        named.filter_map(|one| one.place).collect()
    }

    #[test]
    fn columns_of_usual_names_are_found() {
        for text in [
            "lon,lat\n1.5,2\n-3,4e0\n",
            "\u{feff}id;LATITUDE;Longitude\r\n0;2;1.5\r\n1;4;-3",
            "y\tx\tnote\n2\t1.5\t\n\n4\t-3\t\"a \"\"b\"\"\tc\nd\"\n",
            "Northing,\"Easting\"\n \"2\",1.5\n4, -3 \n\n",
            "lat,lng\n2,1.5\n4,-3",
        ] {
            let points = read(text).unwrap();
            assert_eq!(places(&points), [[1.5, 2.0], [-3.0, 4.0]], "{text}");
            assert_eq!(points.named()[1].id, "1", "{text}");
        }
        // A column that is named by the user, in another CRS.
        let options = CsvOptions::new()
            .with_columns("E", "N")
            .with_name("plot, old")
            .with_crs(Crs::Epsg(32756));
        let text =
            "lon,lat,E,N,Id,\"plot, old\"\n1,2,500000,7000000,a7,north\n1,2,500010,7000000,b,\n";
        let points = Points::from_csv(text, &options).unwrap();
        assert_eq!(places(&points)[0], [500_000.0, 7_000_000.0]);
        let named: Vec<_> = points
            .named()
            .iter()
            .map(|one| (one.id.as_str(), one.name.as_deref()))
            .collect();
        assert_eq!(named, [("a7", Some("north")), ("b", None)]);
    }

    #[test]
    fn an_error_names_line_and_column() {
        for (text, expected) in [
            ("", "CSV without a header"),
            ("lon,lat\n", "CSV without points"),
            ("lon,lat,lat\n1,2,3\n", "two columns are named `lat`"),
            (
                "a,b\n1,2\n",
                "no columns lon and lat, or x and y, among a, b: name those of the coordinates",
            ),
            (
                "lon,lat\n1,2\n3\n",
                "line 3 has 1 fields, expected 2 as in the header",
            ),
            (
                "lon,lat,n\n1,2,\"a\nb\"\n1,two,\n",
                "line 4, column lat: `two` is not a number",
            ),
            ("lon,lat\n,2\n", "line 2, column lon: `` is not a number"),
            (
                "id,lon,lat\na,1,2\na,1,2\n",
                "line 3, column id: another point has the id `a`",
            ),
            (
                "lon,lat\n1,2\n-25,153\n",
                "line 3: feature 1 has a point at -25,153, which is not on the globe",
            ),
            (
                "lon,lat\nnan,2\n",
                "line 2: feature 0 has a point at NaN,2, expected finite coordinates",
            ),
            ("lon,lat\n\"1,2\n", "line 2: a quote is not closed"),
        ] {
            let err = read(text).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().starts_with(expected), "{err}");
        }
        let options = CsvOptions::new().with_columns("lon", "north");
        let err = Points::from_csv("lon,lat\n1,2\n", &options).unwrap_err();
        assert_eq!(err.message(), "no column `north`: the header has lon, lat");
    }
}
