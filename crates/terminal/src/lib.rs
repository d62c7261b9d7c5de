//! Text for people on a terminal: colours, tables, and lines as wide as the terminal is.

#![forbid(unsafe_code)]

pub mod color;
pub mod table;
pub mod wrap;
