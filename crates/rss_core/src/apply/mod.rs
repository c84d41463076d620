//! From a stack of dates to one picture: how dates are grouped, and what becomes of a group's pixels.

pub mod mosaic;
pub mod reduce;
pub mod time;
