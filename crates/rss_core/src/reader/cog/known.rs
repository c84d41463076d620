//! Conversion between the parsed header of a file and its entry in an index. No IO.
//!
//! An entry may come from a file of someone else: its layout is checked as that of a header, and its lists
//! of tiles against the layout.

use std::sync::Arc;

use super::{
    directory::Stop,
    facts::Facts,
    index::Index,
    level::{Compression, Level, Stored, Tables, samples},
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::DataType,
    reader::{Header, Image, Tiles},
};

impl Index {
    /// Returns the header for an index, with the tiles of each image in the order of [`Index::images`].
    pub(super) fn header(&self, tiles: Vec<Tiles>) -> Result<Header> {
        let mut tiles = tiles.into_iter();
        let mut image = |level: &Level| {
            let tiles = tiles
                .next()
                .ok_or_else(|| contradiction("an image without tiles"))?;
            level.image(tiles)
        };
        let facts = &self.facts;
        Ok(Header {
            little_endian: self.little_endian,
            header_bytes: self.header_bytes,
            dtype: self
                .levels
                .first()
                .map_or(DataType::U8, |level| level.dtype),
            nodata: facts.nodata,
            crs: facts.crs.clone(),
            transform: facts.transform,
            pixel_is_point: facts.is_point,
            bands: facts.bands.clone(),
            palette: facts.palette.clone(),
            metadata: facts.metadata.clone(),
            levels: self.levels.iter().map(&mut image).collect::<Result<_>>()?,
            masks: self
                .masks
                .iter()
                .map(|mask| mask.as_ref().map(&mut image).transpose())
                .collect::<Result<_>>()?,
        })
    }

    /// Returns the index of an entry's header.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it contradicts itself, [`ErrorKind::Unsupported`] for a layout that the
    /// reader does not support.
    pub(super) fn of_header(header: &Header) -> Result<Self> {
        let levels = header.levels.iter().map(Level::of_image);
        let levels = levels.collect::<Result<Vec<_>>>()?;
        let masks = header
            .masks
            .iter()
            .map(|mask| mask.as_ref().map(Level::of_image).transpose());
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let Some(full) = levels.first() else {
            return Err(contradiction("no image"));
        };
        let alike = |level: &Level| level.bands == full.bands && level.dtype == full.dtype;
        if full.dtype != header.dtype || !levels.iter().all(alike) {
            return Err(contradiction("levels of different bands or types"));
        }
        if header.bands.len() != full.bands {
            return Err(contradiction(format!(
                "{} bands described, expected {}",
                header.bands.len(),
                full.bands
            )));
        }
        let pairs = masks.iter().zip(&levels);
        let fits = pairs
            .clone()
            .all(|(mask, level)| mask.as_ref().is_none_or(|mask| mask.is_mask_of(level)));
        if masks.len() != levels.len() || !fits {
            return Err(contradiction("masks that do not fit their levels"));
        }
        Ok(Self {
            levels,
            masks,
            little_endian: header.little_endian,
            facts: Facts {
                nodata: header.nodata,
                crs: header.crs.clone(),
                transform: header.transform,
                is_point: header.pixel_is_point,
                bands: header.bands.clone(),
                palette: header.palette.clone(),
                metadata: header.metadata.clone(),
                gcps: 0,
                notes: Vec::new(),
            },
            header_bytes: header.header_bytes,
            notes: Vec::new(),
            is_cut: false,
        })
    }

    /// Lists the images of the file: levels, then the masks that exist.
    pub(super) fn images(&self) -> impl Iterator<Item = &Level> {
        self.levels.iter().chain(self.masks.iter().flatten())
    }
}

impl Level {
    fn image(&self, tiles: Tiles) -> Result<Image> {
        let (sample_format, bits) = self.stored_as();
        let (compression, compression_option) = self.compression.code();
        Ok(Image {
            size: self.size,
            tile: self.tile,
            bands: u16::try_from(self.bands).map_err(|_| contradiction("more than 65535 bands"))?,
            bits,
            sample_format,
            compression,
            compression_option,
            predictor: self.predictor,
            planar: self.planar,
            photometric: self.photometric,
            bits_reversed: self.bits_reversed,
            jpeg_tables: self.jpeg_tables.clone(),
            tiles: Arc::new(tiles),
        })
    }

    fn of_image(image: &Image) -> Result<Self> {
        let sides = [
            image.size.width,
            image.size.height,
            image.tile.width,
            image.tile.height,
        ];
        if sides.contains(&0) || image.bands == 0 {
            return Err(contradiction("an image without pixels"));
        }
        let (dtype, stored) =
            samples(u64::from(image.sample_format), u64::from(image.bits)).map_err(refused)?;
        let option = || Ok(image.compression_option);
        let level = Self {
            size: image.size,
            tile: image.tile,
            bands: usize::from(image.bands),
            dtype,
            stored,
            compression: Compression::of_code(image.compression, option).map_err(refused)?,
            predictor: image.predictor,
            planar: image.planar && image.bands > 1,
            photometric: image.photometric,
            bits_reversed: image.bits_reversed,
            jpeg_tables: image.jpeg_tables.clone(),
            back_to_back: false,
            tables: Tables::Known(Arc::clone(&image.tiles)),
        };
        level.check().map_err(refused)?;
        let [offsets, counts] = [&image.tiles.offsets, &image.tiles.byte_counts];
        if level.tiles() != offsets.len() as u64 || offsets.len() != counts.len() {
            return Err(contradiction(format!(
                "{} offsets and {} byte counts of tiles, expected {}",
                offsets.len(),
                counts.len(),
                level.tiles()
            )));
        }
        Ok(level)
    }

    /// Returns the sample format (tag 339) and the bits (tag 258) of these samples.
    fn stored_as(&self) -> (u16, u16) {
        let whole = || u16::try_from(self.dtype.size() * 8).unwrap_or(u16::MAX);
        match (self.stored, self.dtype) {
            (Stored::Bits(bits), _) => (1, u16::from(bits)),
            (Stored::Half, _) => (3, 16),
            (Stored::ThreeByteFloat, _) => (3, 24),
            (Stored::ComplexInt(bits), _) => (5, u16::from(bits) * 2),
            (Stored::Whole, DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64) => {
                (2, whole())
            }
            (Stored::Whole, DataType::F32 | DataType::F64) => (3, whole()),
            (Stored::Whole, DataType::C64 | DataType::C128) => (6, whole()),
            (Stored::Whole, _) => (1, whole()),
        }
    }
}

fn contradiction(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("its entry in the index has {what}"),
    )
}

/// Returns the error of a [`Stop`]; `Missing` does not occur, since an entry is complete.
fn refused(stop: Stop) -> Error {
    match stop {
        Stop::Failed(err) => err,
        Stop::Missing(_) => contradiction("a gap"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::Size;

    #[test]
    fn every_kind_of_sample_comes_back() {
        let kinds = [
            (1, 8),
            (1, 16),
            (1, 32),
            (1, 64),
            (2, 8),
            (2, 16),
            (2, 32),
            (2, 64),
            (3, 16),
            (3, 24),
            (3, 32),
            (3, 64),
            (1, 1),
            (1, 7),
            (1, 12),
            (1, 31),
            (5, 32),
            (5, 64),
            (6, 64),
            (6, 128),
        ];
        for (sample_format, bits) in kinds {
            let side = Size {
                width: 8,
                height: 8,
            };
            let image = Image::new(
                side,
                side,
                bits,
                sample_format,
                Tiles::new(vec![8], vec![9]),
            );
            let level = Level::of_image(&image).unwrap();
            assert_eq!(level.stored_as(), (sample_format, bits));
        }
    }

    #[test]
    fn a_list_that_does_not_fit_is_refused() {
        let side = Size {
            width: 9,
            height: 8,
        };
        let tile = Size {
            width: 8,
            height: 8,
        };
        let image = Image::new(side, tile, 8, 1, Tiles::new(vec![8], vec![9]));
        let err = Level::of_image(&image).unwrap_err();
        assert_eq!(
            err.message(),
            "its entry in the index has 1 offsets and 1 byte counts of tiles, expected 2"
        );
    }
}
