//! The mistakes and warnings found while reading a configuration.

use super::{
    error::{ConfigMistake, Result},
    warning::ConfigWarning,
};

/// Collects mistakes and warnings, so that all are reported at once. A value that follows a mistake
/// is never used.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) mistakes: Vec<ConfigMistake>,
    pub(super) warnings: Vec<ConfigWarning>,
}

impl Findings {
    /// The value, or `None` after a mistake.
    pub(super) fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|mistake| self.mistake(mistake)).ok()
    }

    pub(super) fn mistake(&mut self, mistake: ConfigMistake) {
        self.mistakes.push(mistake);
    }

    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = ConfigWarning>) {
        self.warnings.extend(warnings);
    }
}
