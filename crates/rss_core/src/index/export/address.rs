//! Addresses of files in the syntax of other programs, without secrets.

use std::path::Path;

use super::unsupported;
use crate::{error::Result, location::Location, store::shareable};

/// Returns the address for fsspec: `file://` and the unescaped path, or the href.
pub(super) fn of_fsspec(location: &Location) -> Result<String> {
    let text = match location {
        Location::Local(path) => format!("file://{}", absolute(path)?),
        Location::Http(url) => shareable(url).to_string(),
        other => other.to_href(),
    };
    // Kerchunk readers expand `{{..}}` as a template, and fsspec splits chained URLs at `::`.
    for special in ["{{", "}}", "::"] {
        if text.contains(special) {
            return Err(unsupported(format!(
                "its address contains `{special}`, which fsspec interprets as syntax"
            )));
        }
    }
    Ok(text)
}

/// Returns the path that GDAL opens.
pub(super) fn of_gdal(location: &Location) -> Result<String> {
    let text = match location {
        Location::Local(path) => absolute(path)?,
        Location::Http(url) => format!("/vsicurl/{}", shareable(url)),
        other => other.to_vsi(),
    };
    // XML 1.0 cannot represent control characters, not even escaped.
    if text.contains(|c: char| c.is_control()) {
        return Err(unsupported("its address contains a control character"));
    }
    Ok(text)
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.into_os_string().into_string();
    text.map_err(|_| unsupported("its path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_without_its_secrets() {
        let location =
            Location::parse("https://me:CANARY@h/a.tif?sig=CANARY&se=1&v=2#CANARY").unwrap();
        assert_eq!(of_fsspec(&location).unwrap(), "https://h/a.tif?v=2");
        assert_eq!(of_gdal(&location).unwrap(), "/vsicurl/https://h/a.tif?v=2");
        for (href, fsspec, gdal) in [
            ("s3://b/k/a.tif", "s3://b/k/a.tif", "/vsis3/b/k/a.tif"),
            ("az://c/k/a.tif", "az://c/k/a.tif", "/vsiaz/c/k/a.tif"),
            ("/d/a b.tif", "file:///d/a b.tif", "/d/a b.tif"),
        ] {
            let location = Location::parse(href).unwrap();
            assert_eq!(of_fsspec(&location).unwrap(), fsspec);
            assert_eq!(of_gdal(&location).unwrap(), gdal);
        }
    }

    #[test]
    fn an_address_that_a_format_would_read_otherwise_is_refused() {
        let template = Location::parse("s3://b/{{k}}.tif").unwrap();
        assert!(of_fsspec(&template).is_err() && of_gdal(&template).is_ok());
        let control = Location::parse("s3://b/a\u{1}.tif").unwrap();
        assert!(of_gdal(&control).is_err());
    }
}
