//! Foreign changes to what a node has, and their repair.

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, ensure};

use crate::{Host, eventually};

/// The limit for repairs. Events announce foreign changes; the full resync runs only every 30 s.
const LIMIT: Duration = Duration::from_secs(10);

impl Host {
    /// Runs one command after the other. After each, waits until `read` reads what it read before
    /// the first.
    pub fn expect_repairs<T: PartialEq + Debug>(
        &self,
        changes: &[impl AsRef<str>],
        read: impl Fn() -> Result<T>,
    ) -> Result<()> {
        let wanted = read()?;
        for change in changes.iter().map(AsRef::as_ref) {
            self.sh(change)?;
            eventually(&format!("recovery from `{change}`"), LIMIT, || {
                let now = read()?;
                ensure!(now == wanted, "{now:#?}\ninstead of {wanted:#?}");
                Ok(())
            })?;
        }
        Ok(())
    }
}
