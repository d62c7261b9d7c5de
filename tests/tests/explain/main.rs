//! `explain`, `check`, `bugtool` and `maps dump --diff`: what they say agrees with what is.

mod bugtool;
mod check;
mod diff;
mod story;
