//! `explain`, `check` and `maps dump --diff`: what they say agrees with what is.

mod check;
mod diff;
mod story;
