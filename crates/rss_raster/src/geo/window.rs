//! Rectangles of pixels, and indices of the tiles that contain them.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// A width and a height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// The index of a tile in a level's grid of tiles, from the top left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TileIndex {
    /// Tile column, from 0 at the left.
    pub col: u32,
    /// Tile row, from 0 at the top.
    pub row: u32,
}

/// A rectangle of pixels of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The first pixel column, from 0 at the left.
    pub col: u32,
    /// The first pixel row, from 0 at the top.
    pub row: u32,
    /// Columns; at least 1 in a valid window.
    pub width: u32,
    /// Rows; at least 1 in a valid window.
    pub height: u32,
}

impl Window {
    /// Returns the window that covers a complete raster.
    pub fn whole(size: Size) -> Self {
        Self {
            col: 0,
            row: 0,
            width: size.width,
            height: size.height,
        }
    }

    /// Returns this window's width and height.
    pub fn size(&self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    /// Checks that the window is not empty and lies inside a raster of `size`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the window and the raster's size.
    pub fn check_inside(&self, size: Size) -> Result<()> {
        let inside = |start: u32, length: u32, limit: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= limit)
        };
        if inside(self.col, self.width, size.width) && inside(self.row, self.height, size.height) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "window {self} is not inside the {} x {} pixels of this level",
                size.width, size.height
            ),
        ))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{},{},{},{}",
            self.col, self.row, self.width, self.height
        )
    }
}

impl FromStr for Window {
    type Err = Error;

    /// Parses `col,row,width,height` in pixels.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!("window `{text}` is not four whole numbers col,row,width,height"),
            )
        };
        let numbers: Vec<u32> = text
            .split(',')
            .map(|part| part.trim().parse().map_err(|_| wrong()))
            .collect::<Result<_>>()?;
        match numbers[..] {
            [col, row, width, height] => Ok(Self {
                col,
                row,
                width,
                height,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_past_the_edge_is_refused() {
        let size = Size {
            width: 100,
            height: 50,
        };
        assert!(Window::whole(size).check_inside(size).is_ok());
        for text in ["0,0,101,50", "99,0,2,1", "0,0,0,1", "4294967295,0,2,1"] {
            let window: Window = text.parse().unwrap();
            let err = window.check_inside(size).unwrap_err();
            assert_eq!(
                err.to_string(),
                format!("window {text} is not inside the 100 x 50 pixels of this level")
            );
        }
    }
}
