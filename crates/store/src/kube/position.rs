//! Our place in the server's history.

use super::{error::Problem, stream::Change};
use crate::kube::connection::requests::ListFrom;

/// A point in the server's history of one kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position(String);

impl Position {
    pub(super) fn new(version: String) -> Self {
        Self(version)
    }

    pub(super) fn version(&self) -> &str {
        &self.0
    }

    /// Returns what a list has to have that is not to go back behind this point.
    pub(super) fn list_from(&self) -> ListFrom {
        if self.0.is_empty() {
            ListFrom::Cache
        } else {
            ListFrom::NotOlderThan(self.0.clone())
        }
    }

    /// Moves on to the version of a change.
    pub(super) fn advance<T>(
        &mut self,
        change: &Change<T>,
        version_of: fn(&T) -> &str,
    ) -> Result<(), Problem> {
        self.advance_to(match change {
            Change::Put(object) | Change::Deleted(object) => version_of(object),
            Change::Bookmark { version } => version,
        })
    }

    /// A server that is behind us has lost history, and would let us wait for changes that were.
    fn advance_to(&mut self, version: &str) -> Result<(), Problem> {
        if is_older(version, &self.0) {
            return Err(Problem::WentBack {
                from: self.0.clone(),
                to: version.to_owned(),
            });
        }
        if !version.is_empty() {
            version.clone_into(&mut self.0);
        }
        Ok(())
    }
}

/// Returns true if `version` precedes `than`. Versions are numbers on every server seen so far;
/// returns false for any other form.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    matches!(
        (version.parse::<u64>(), than.parse::<u64>()),
        (Ok(version), Ok(than)) if version < than,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_forward() {
        let mut position = Position::new("9".to_owned());
        for version in ["10", "", "10", "11"] {
            position.advance_to(version).expect("forward");
        }
        assert_eq!(position.version(), "11");
        let back = position.advance_to("9").expect_err("back");
        assert!(back.is_outdated(), "{back}");
        position.advance_to("opaque").expect("who knows");
        position.advance_to("1").expect("who knows");
    }
}
