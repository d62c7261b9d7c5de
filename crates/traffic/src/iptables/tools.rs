//! The iptables of this host: its version, its variant, and which one to use where there are
//! several.

use std::{fmt, path::PathBuf};

use flannel_firewall_tools::{
    ToolError, legacy,
    saved::{self, SavedLine},
    tool,
};
use flannel_host::family::Family;

use super::{
    TrafficError,
    place::Place,
    save::{SavedChain, is_incompatible},
};

/// The first version whose `MASQUERADE` knows `--random-fully`, and whose `iptables-restore` waits
/// for the lock (`-w`).
const RANDOM_FULLY: [u32; 3] = [1, 6, 2];
/// Chains that kubelet makes with the iptables this host uses.
const KUBELET_CHAINS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// The part of the kernel that iptables writes its rules to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    NfTables,
    Legacy,
}

/// One iptables of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    main: PathBuf,
    pub(super) save: PathBuf,
    pub(super) restore: PathBuf,
    family: Family,
    variant: Variant,
    version: [u32; 3],
}

/// Those of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    /// The one to use.
    pub(crate) chosen: Option<Tool>,
    /// The tools of another variant, which must not have our rules.
    pub(crate) others: Vec<Tool>,
}

impl Tools {
    /// Looks for them. `iptables` is the one to use, unless kubelet uses the other variant, as it
    /// may when one of the two sits in a container.
    pub(crate) async fn find(family: Family) -> Self {
        let mut found: Vec<Tool> = Vec::new();
        for suffix in ["", "-nft", "-legacy"] {
            if let Some(tool) = Tool::probe(family, suffix).await
                && found.iter().all(|known| known.variant != tool.variant)
            {
                found.push(tool);
            }
        }
        if let [first, second] = &*found
            && !first.is_kubelets().await
            && second.is_kubelets().await
        {
            found.swap(0, 1);
        }
        let mut found = found.into_iter();
        Self {
            chosen: found.next(),
            others: found.collect(),
        }
    }
}

impl Tool {
    async fn probe(family: Family, suffix: &str) -> Option<Self> {
        let base = match family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        let command = |verb: &str| tool::find(&format!("{base}{suffix}{verb}"));
        let (main, save, restore) = (command("")?, command("-save")?, command("-restore")?);
        match tool::run(&main, &["--version"], "").await {
            Ok(text) => {
                let (version, variant) = parse_version(&text)?;
                Some(Self {
                    main,
                    save,
                    restore,
                    family,
                    variant,
                    version,
                })
            }
            Err(error) => {
                tracing::warn!(%error, "cannot use this iptables");
                None
            }
        }
    }

    /// Returns true if it can choose ports at random.
    pub(crate) fn knows_random_fully(&self) -> bool {
        self.version >= RANDOM_FULLY
    }

    /// Returns true if its tables are tables of nftables.
    pub(crate) fn is_in_nftables(&self) -> bool {
        self.variant == Variant::NfTables
    }

    pub(super) fn restore_args(&self) -> &'static [&'static str] {
        if self.version >= RANDOM_FULLY {
            &["--noflush", "-w", "5"]
        } else {
            &["--noflush"]
        }
    }

    /// Returns true if the table may exist. Reading a table of the legacy variant would load it
    /// into the kernel.
    pub(super) fn may_have(&self, table: &str) -> bool {
        self.is_in_nftables() || legacy::tables(self.family).iter().any(|name| name == table)
    }

    async fn is_kubelets(&self) -> bool {
        if !self.may_have("mangle") {
            return false;
        }
        if self.is_in_nftables() {
            for chain in KUBELET_CHAINS {
                if tool::run(&self.main, &["-t", "mangle", "-S", chain], "")
                    .await
                    .is_ok()
                {
                    return true;
                }
            }
            return false;
        }
        let mut found = false;
        let listed = tool::each_line(&self.save, &["-t", "mangle"], |line| {
            let chain = saved::line(line);
            found |= matches!(
                chain,
                Some(SavedLine::Chain { name, .. }) if KUBELET_CHAINS.contains(&name),
            );
        });
        listed.await.is_ok() && found
    }

    /// Reads our chain of a table, and what leads to it.
    pub(super) async fn read(&self, place: &Place) -> Result<SavedChain, TrafficError> {
        if self.is_in_nftables() {
            self.read_chains(place).await
        } else {
            self.read_table(place).await
        }
    }

    async fn read_table(&self, place: &Place) -> Result<SavedChain, TrafficError> {
        let (mut found, mut result) = (SavedChain::default(), Ok(()));
        let each = |line: &str| {
            if result.is_ok() {
                result = found.add(line, place);
            }
        };
        tool::each_line(&self.save, &["-t", place.table], each).await?;
        result.map(|()| found)
    }

    /// Lists two chains. Those of others are not even fetched from the kernel: with 10,000 Services
    /// that is 13 MB of memory in place of 125.
    async fn read_chains(&self, place: &Place) -> Result<SavedChain, TrafficError> {
        let mut found = SavedChain::default();
        for chain in [place.parent, place.chain] {
            match tool::run(&self.main, &["-t", place.table, "-S", chain], "").await {
                Ok(text) => {
                    found.exists |= chain == place.chain;
                    text.lines().try_for_each(|line| found.add(line, place))?;
                }
                // iptables 1.8.9 says of a chain that does not exist that it is incompatible.
                Err(ToolError::Refused { message, .. })
                    if chain == place.parent && is_incompatible(&message) =>
                {
                    return Err(TrafficError::Incompatible { table: place.table });
                }
                Err(ToolError::Refused { .. }) if chain == place.chain => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.version;
        let variant = match self.variant {
            Variant::NfTables => "nf_tables",
            Variant::Legacy => "legacy",
        };
        write!(f, "iptables {major}.{minor}.{patch} ({variant})")
    }
}

/// Reads `iptables v1.8.9 (nf_tables)`. Before 1.8 there was one variant, and it was not named.
fn parse_version(text: &str) -> Option<([u32; 3], Variant)> {
    let number = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v'))?;
    let mut parts = number.splitn(3, '.').map(|part| part.parse().ok());
    let version = [parts.next()??, parts.next()??, parts.next()??];
    let variant = if text.contains("(nf_tables)") {
        Variant::NfTables
    } else {
        Variant::Legacy
    };
    Some((version, variant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_iptables_prints_them() {
        assert_eq!(
            parse_version("iptables v1.8.9 (nf_tables)\n"),
            Some(([1, 8, 9], Variant::NfTables))
        );
        assert_eq!(
            parse_version("ip6tables v1.8.11 (legacy)\n"),
            Some(([1, 8, 11], Variant::Legacy))
        );
        assert_eq!(
            parse_version("iptables v1.4.21\n"),
            Some(([1, 4, 21], Variant::Legacy))
        );
        assert_eq!(parse_version("iptables\n"), None);
    }
}
