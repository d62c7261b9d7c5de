//! Rules by `nft`: a separate table per family, with a base chain per purpose.
//!
//! Reading is one listing of our table; writing is one `nft -f` transaction for both chains, and
//! only where something differs. The task in `traffic::sync` listens to the kernel's announcements
//! of changes.

mod family_names;
mod transaction;

use std::path::PathBuf;

use flannel_firewall_tools::{ToolError, listed::ListedTable, tool};
use flannel_host::family::Family;
use ipnet::IpNet;

pub use self::family_names::table;
use super::{TrafficError, chain::Ours, rule::Chains};

/// The command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nft {
    path: PathBuf,
    random_fully: bool,
}

/// A table with a name that no other program would use. It is checked and never created.
const PROBE: &str = "add table ip flannel-probe\n\
    add chain ip flannel-probe probe { type nat hook postrouting priority srcnat; }\n\
    add rule ip flannel-probe probe masquerade fully-random\n";

impl Nft {
    /// Looks for it.
    pub(super) fn find() -> Option<Self> {
        tool::find("nft").map(|path| Self {
            path,
            random_fully: false,
        })
    }

    /// Finds out whether tool and kernel can choose ports at random.
    pub(super) async fn probe(&mut self) {
        self.random_fully = tool::run(&self.path, &["--check", "-f", "-"], PROBE)
            .await
            .is_ok();
    }

    /// Returns true if [`Self::probe`] found that nft can choose ports at random.
    pub(super) const fn knows_random_fully(&self) -> bool {
        self.random_fully
    }

    /// Brings the table of a family into the wanted state. Returns true if it had to be changed.
    ///
    /// `networks` are those whose rules are ours; without any, all that is in our table is.
    pub(super) async fn keep(
        &self,
        family: Family,
        chains: &Chains,
        networks: Option<&[IpNet]>,
    ) -> Result<bool, TrafficError> {
        let text = self.difference(family, chains, networks).await?;
        if text.is_empty() {
            return Ok(false);
        }
        tool::run(&self.path, &["-f", "-"], &text).await?;
        if !self.difference(family, chains, networks).await?.is_empty() {
            return Err(TrafficError::NotKept {
                what: format!("the nftables table {}", table(family)),
            });
        }
        Ok(true)
    }

    /// The transaction that is missing, as the input of `nft -f -`; empty when there is nothing to
    /// do.
    pub(super) async fn difference(
        &self,
        family: Family,
        chains: &Chains,
        networks: Option<&[IpNet]>,
    ) -> Result<String, TrafficError> {
        let found = self.list(family).await?;
        let ours = networks.map_or(Ours::All, |networks| Ours::Naming {
            networks: networks.to_vec(),
            remark: None,
        });
        Ok(transaction::text(family, found.as_ref(), chains, &ours))
    }

    async fn list(&self, family: Family) -> Result<Option<ListedTable>, TrafficError> {
        match tool::run(
            &self.path,
            &[
                "-s",
                "list",
                "table",
                family_names::protocol(family),
                table(family),
            ],
            "",
        )
        .await
        {
            Ok(text) => Ok(Some(ListedTable::parse(&text))),
            Err(ToolError::Refused { message, .. })
                if message.contains("No such file or directory") =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
