//! Files of the user's with one setting on each line, for a host or a bucket: `PLACE NAME: VALUE`, `PLACE NAME=VALUE`.

use crate::error::{Error, ErrorKind, Result};

/// Hands the place, the name and the value of each line to `set`. Empty lines and those that begin with `#` are left out.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] naming the line, and `example` where it has another form. Never the value: it is a secret.
pub(super) fn each(
    text: &str,
    between: char,
    example: &str,
    mut set: impl FnMut(&str, &str, &str) -> Result<()>,
) -> Result<()> {
    // A byte order mark, which some editors write, is no part of a place.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| {
            let message = format!("line {}: {what}", number + 1);
            Error::new(ErrorKind::InvalidInput, message)
        };
        let parts = line.split_once(char::is_whitespace);
        let parts = parts.and_then(|(place, setting)| Some((place, setting.split_once(between)?)));
        let Some((place, (name, value))) = parts else {
            return Err(wrong(&format!("expected such as `{example}`")));
        };
        set(place, name.trim(), value.trim()).map_err(|err| wrong(err.message()))?;
    }
    Ok(())
}
