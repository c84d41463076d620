//! The compression that a user chooses for chunks.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// How the chunks of an array are compressed.
///
/// As text: `auto`, `none`, `zstd`, `zstd:LEVEL`, `gzip:LEVEL`, `blosc-zstd`, `blosc-lz4:LEVEL:SHUFFLE`, where
/// SHUFFLE is `auto`, `none`, `byte` or `bit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// Blosc with Zstandard, small and fast to read: the level (1 or 5), the shuffle and the block size are chosen by
    /// encoding a sample of each shard. Each frame holds its settings, so readers need not know them.
    #[default]
    Auto,
    /// No compression.
    None,
    /// Zstandard, [RFC 8878](https://www.rfc-editor.org/rfc/rfc8878). Level -7 (fast) to 22 (small).
    Zstd {
        /// The level.
        level: i32,
    },
    /// DEFLATE, [RFC 1952](https://www.rfc-editor.org/rfc/rfc1952). Level 0 to 9.
    Gzip {
        /// The level.
        level: i32,
    },
    /// A [Blosc](https://www.blosc.org) frame: shuffled blocks, which can be decoded one by one.
    Blosc {
        /// The compressor of the blocks.
        compressor: Compressor,
        /// 0 (store) to 9: Blosc's levels. They are Zstandard's 1, 3, 5, .. 15 and 22; above 1, LZ4 becomes LZ4 HC
        /// of that level.
        level: i32,
        /// The filter before compression.
        shuffle: Shuffle,
    },
}

/// The compressor of the blocks of a Blosc frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compressor {
    /// LZ4: the fastest.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

/// The filter that Blosc applies to the bytes of samples before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shuffle {
    /// The filter that compresses a sample of each shard best. Each frame holds its filter, so readers need not
    /// know it.
    Auto,
    /// No filter.
    None,
    /// Byte shuffle: bytes of the same significance come together.
    Byte,
    /// Bit shuffle: bits of the same significance come together.
    Bit,
}

impl Codec {
    /// Checks the level.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which states the valid levels.
    pub(crate) fn check(self) -> Result<Self> {
        let (level, levels) = match self {
            Self::Auto | Self::None => return Ok(self),
            Self::Zstd { level } => (level, -7..=22),
            Self::Gzip { level } | Self::Blosc { level, .. } => (level, 0..=9),
        };
        if levels.contains(&level) {
            return Ok(self);
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "level {level} of `{self}` is not one of {} to {}",
                levels.start(),
                levels.end()
            ),
        ))
    }
}

impl fmt::Display for Shuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Byte => "byte",
            Self::Bit => "bit",
        })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Zstd { level } => write!(f, "zstd:{level}"),
            Self::Gzip { level } => write!(f, "gzip:{level}"),
            Self::Blosc {
                compressor,
                level,
                shuffle,
            } => {
                let name = match compressor {
                    Compressor::Lz4 => "lz4",
                    Compressor::Zstd => "zstd",
                };
                write!(f, "blosc-{name}:{level}:{shuffle}")
            }
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "codec `{text}` is not one of auto, none, zstd[:LEVEL], gzip[:LEVEL], \
                     blosc-zstd[:LEVEL[:SHUFFLE]], blosc-lz4[:LEVEL[:SHUFFLE]]; \
                     SHUFFLE is auto, none, byte or bit"
                ),
            )
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut level = |usual: i32| match parts.next() {
            Some(level) => level.parse().map_err(|_| wrong()),
            None => Ok(usual),
        };
        let codec = match name {
            "auto" => Self::Auto,
            "none" => Self::None,
            "zstd" => Self::Zstd { level: level(1)? },
            "gzip" => Self::Gzip { level: level(6)? },
            "blosc-zstd" | "blosc-lz4" => Self::Blosc {
                compressor: match name {
                    "blosc-lz4" => Compressor::Lz4,
                    _ => Compressor::Zstd,
                },
                level: level(1)?,
                shuffle: match parts.next() {
                    None | Some("auto") => Shuffle::Auto,
                    Some("none") => Shuffle::None,
                    Some("byte") => Shuffle::Byte,
                    Some("bit") => Shuffle::Bit,
                    Some(_) => return Err(wrong()),
                },
            },
            _ => return Err(wrong()),
        };
        match parts.next() {
            Some(_) => Err(wrong()),
            None => codec.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_codec_is_read_as_it_is_written() {
        for text in [
            "auto",
            "none",
            "zstd:-3",
            "gzip:9",
            "blosc-lz4:1:none",
            "blosc-zstd:5:bit",
        ] {
            assert_eq!(text.parse::<Codec>().unwrap().to_string(), text);
        }
        assert_eq!(
            "blosc-zstd".parse::<Codec>().unwrap().to_string(),
            "blosc-zstd:1:auto"
        );
    }

    #[test]
    fn a_codec_that_cannot_be_is_refused() {
        for text in [
            "",
            "lz4",
            "zstd:x",
            "zstd:1:2",
            "none:1",
            "blosc-zstd:1:both",
        ] {
            let err = text.parse::<Codec>().unwrap_err();
            assert!(err.message().contains(&format!("codec `{text}`")), "{err}");
        }
        for (text, levels) in [
            ("zstd:23", "-7 to 22"),
            ("gzip:10", "0 to 9"),
            ("blosc-lz4:-1", "0 to 9"),
        ] {
            let err = text.parse::<Codec>().unwrap_err();
            assert!(err.message().contains(levels), "{err}");
        }
    }
}
