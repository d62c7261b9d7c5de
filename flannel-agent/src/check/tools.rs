//! The tools that keep masquerade and forward rules.

use super::{Finding, HostCode};
use crate::traffic::{InstalledTools, installed_tools};

pub(super) async fn look() -> Finding {
    judge(installed_tools().await)
}

fn judge(tools: InstalledTools) -> Finding {
    let remedy = "install iptables, or nftables and set EnableNFTables in the network configuration";
    match tools {
        InstalledTools { iptables: Some(iptables), .. } => {
            Finding::ok("tools", format!("{iptables} can keep masquerade and forward rules"))
        }
        InstalledTools { nft: true, .. } => Finding::warn(
            HostCode::RuleTools,
            "iptables is not installed, so masquerade and forward rules take EnableNFTables",
            "set EnableNFTables in the network configuration, or install iptables; without, `run --ip-masq` ends with 1",
        ),
        _ => Finding::warn(
            HostCode::RuleTools,
            "neither iptables nor nft is installed: `run --ip-masq` ends with 1, and no forward rules are kept",
            remedy,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Level;

    #[test]
    fn a_host_without_tools_is_warned_about() {
        let judge = |iptables: Option<&str>, nft| judge(InstalledTools { iptables: iptables.map(str::to_owned), nft });
        assert_eq!(judge(Some("iptables 1.8.9"), false).level, Level::Ok);
        for (nft, part) in [(true, "take EnableNFTables"), (false, "neither iptables nor nft is installed")] {
            let found = judge(None, nft);
            assert_eq!(found.level, Level::Warn);
            assert!(found.text.contains(part) && found.remedy.is_some(), "{found:?}");
        }
    }
}
