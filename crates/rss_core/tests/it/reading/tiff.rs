//! Small and huge TIFF files, made here: bytes in tiles, each tile of one value.

const GHOST: &str = "GDAL_STRUCTURAL_METADATA_SIZE=000140 bytes
LAYOUT=IFDS_BEFORE_DATA
BLOCK_ORDER=ROW_MAJOR
BLOCK_LEADER=SIZE_AS_UINT4
BLOCK_TRAILER=LAST_4_BYTES_REPEATED
KNOWN_INCOMPATIBLE_EDITION=NO
 ";

/// A tiled BigTIFF of one band of bytes, not compressed. Its tables come before its tiles.
#[derive(Clone, Debug)]
pub(crate) struct Tiff {
    width: u32,
    height: u32,
    side: u32,
    compression: u16,
    only: Option<u64>,
    ghost: bool,
}

impl Tiff {
    /// A square image of `width` in tiles of `side`.
    pub(crate) fn new(width: u32, side: u32) -> Self {
        Self {
            width,
            height: width,
            side,
            compression: 1,
            only: None,
            ghost: false,
        }
    }

    pub(crate) fn with_height(self, height: u32) -> Self {
        Self { height, ..self }
    }

    /// Stores one tile only; the others are sparse.
    pub(crate) fn with_only(self, tile: u64) -> Self {
        Self {
            only: Some(tile),
            ..self
        }
    }

    /// Writes as GDAL's COG driver: a text before the directory, and each tile between its size and its
    /// last bytes.
    pub(crate) fn with_ghost(self) -> Self {
        Self {
            ghost: true,
            ..self
        }
    }

    /// Says that the tiles are compressed, which they are not.
    pub(crate) fn with_compression(self, compression: u16) -> Self {
        Self {
            compression,
            ..self
        }
    }

    /// Returns the value of the pixels of a tile.
    pub(crate) fn value(col: u32, row: u32) -> u8 {
        u8::try_from((u64::from(col) * 7 + u64::from(row) * 13) % 250).unwrap() + 1
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let across = u64::from(self.width.div_ceil(self.side));
        let count = across * u64::from(self.height.div_ceil(self.side));
        let tags: [(u16, u16, u64, u64); 10] = [
            (256, 4, 1, u64::from(self.width)),
            (257, 4, 1, u64::from(self.height)),
            (258, 3, 1, 8),
            (259, 3, 1, u64::from(self.compression)),
            (262, 3, 1, 1),
            (277, 3, 1, 1),
            (322, 4, 1, u64::from(self.side)),
            (323, 4, 1, u64::from(self.side)),
            (324, 16, count, 0),
            (325, 4, count, 0),
        ];
        let ghost = match self.ghost {
            true => GHOST,
            false => "",
        };
        let around = if self.ghost { 4 } else { 0 };
        let directory = 16 + ghost.len() as u64;
        let tables = directory + 8 + 20 * tags.len() as u64 + 8;
        let tiles = tables + 12 * count + around;
        let bytes = u64::from(self.side) * u64::from(self.side);
        let is_stored = |n: u64| self.only.is_none_or(|only| only == n);

        let mut file = b"II\x2b\0\x08\0\0\0".to_vec();
        file.extend(directory.to_le_bytes());
        file.extend(ghost.bytes());
        file.extend((tags.len() as u64).to_le_bytes());
        for (tag, kind, values, value) in tags {
            let value = match (tag, values) {
                // One value stands in the entry itself, and is written there below.
                (324, 1) => tiles,
                (325, 1) => bytes,
                (324, _) => tables,
                (325, _) => tables + 8 * count,
                _ => value,
            };
            file.extend(tag.to_le_bytes());
            file.extend(kind.to_le_bytes());
            file.extend(values.to_le_bytes());
            file.extend(value.to_le_bytes());
        }
        file.extend(0_u64.to_le_bytes());
        let mut place = tiles;
        for n in 0..count {
            file.extend(if is_stored(n) { place } else { 0 }.to_le_bytes());
            place += if is_stored(n) { bytes + 2 * around } else { 0 };
        }
        for n in 0..count {
            let bytes = if is_stored(n) { bytes } else { 0 };
            file.extend(u32::try_from(bytes).unwrap().to_le_bytes());
        }
        for n in (0..count).filter(|&n| is_stored(n)) {
            let (col, row) = (n % across, n / across);
            let value = Self::value(u32::try_from(col).unwrap(), u32::try_from(row).unwrap());
            if self.ghost {
                file.extend(u32::try_from(bytes).unwrap().to_le_bytes());
            }
            file.resize(file.len() + usize::try_from(bytes).unwrap(), value);
            if self.ghost {
                file.extend([value; 4]);
            }
        }
        file
    }
}
