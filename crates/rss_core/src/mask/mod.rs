//! Masks: classes of QA bands by name, and morphology (dilation, erosion, opening).
//!
//! Each provider classifies pixels in a QA band of its own, as values or as bits. [`MaskClasses`] names the classes to
//! mask in words that mean the same for all providers, a manifest lists the QA assets, and [`BandMask`] computes a
//! boolean mask from their samples: true where a pixel is masked. Pure arithmetic: the caller reads the band and
//! resamples it to another grid (by nearest, since classes have no mean).
//!
//! ```
//! use rss_core::{Collection, DataType, ELEMENT84, Manifest, Pixels, Size, mask::MaskClasses};
//!
//! let manifest = Manifest::builtin(&ELEMENT84, &Collection::Landsat8).unwrap();
//! let masks = "clouds,saturated".parse::<MaskClasses>()?.of_manifest(&manifest)?;
//! assert_eq!(masks[0].asset(), "qa_pixel");
//! assert_eq!(masks[1].asset(), "qa_radsat");
//! let fill = Pixels::zeros(DataType::U16, 1, Size { width: 4, height: 2 })?;
//! let left_out = masks[0].leave_out(&fill, 0, Some(0.0.into()))?;
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
