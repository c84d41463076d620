//! Which pixels to leave out: classes of QA bands by name, and masks grown by pixels.
//!
//! Every provider says in a band of its own what a pixel shows: as a class, or in bits. [`MaskClasses`] names
//! what is not wanted in words that mean the same everywhere, a manifest says which assets tell it, and
//! [`BandMask`] makes booleans of their samples: true where a pixel is left out. Pure arithmetic: reading the
//! band and bringing it to another grid (by nearest, as classes have no mean) is for others.
//!
//! ```
//! use rss_core::{Collection, DataType, ELEMENT84, Manifest, Pixels, Size, mask::MaskClasses};
//!
//! let manifest = Manifest::builtin(&ELEMENT84, &Collection::Landsat8).unwrap();
//! let masks = "clouds,saturated".parse::<MaskClasses>()?.of_manifest(&manifest)?;
//! assert_eq!(masks[0].asset(), "qa_pixel");
//! assert_eq!(masks[1].asset(), "qa_radsat");
//! let fill = Pixels::zeros(DataType::U16, 1, Size { width: 4, height: 2 })?;
//! let left_out = masks[0].leave_out(&fill, 0, Some(0.0))?;
//! assert!(left_out.iter().all(|&pixel| pixel));
//! # Ok::<_, rss_core::Error>(())
//! ```

mod classes;
mod morphology;
mod table;

pub(crate) use self::classes::{Verdict, left_out};
pub use self::{
    classes::{BandMask, MaskClasses},
    morphology::{Cleanup, Element, dilated, eroded},
    table::QaTable,
};
