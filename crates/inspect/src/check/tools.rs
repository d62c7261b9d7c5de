//! The tools that keep masquerade and forward rules.

use flannel_traffic::{InstalledTools, installed_tools};

use super::{code::HostCode, finding::Finding};

pub(super) async fn look() -> Finding {
    judge(installed_tools().await)
}

fn judge(tools: InstalledTools) -> Finding {
    match tools {
        InstalledTools {
            iptables: Some(iptables),
            ..
        } => Finding::ok(
            "tools",
            format!("{iptables} can keep masquerade and forward rules"),
        ),
        InstalledTools { nft: true, .. } => Finding::ok(
            "tools",
            "nft can keep masquerade and forward rules; iptables is not installed",
        ),
        _ => Finding::warn(
            HostCode::RuleTools,
            "neither iptables nor nft is installed: `run --ip-masq` ends with 1, and no forward \
             rules are kept",
            "install iptables or nftables",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Level;

    #[test]
    fn a_host_without_tools_is_warned_about() {
        let judge = |iptables: Option<&str>, nft| {
            judge(InstalledTools {
                iptables: iptables.map(str::to_owned),
                nft,
            })
        };
        assert_eq!(judge(Some("iptables 1.8.9"), false).level, Level::Ok);
        assert_eq!(judge(None, true).level, Level::Ok);
        let found = judge(None, false);
        assert_eq!(found.level, Level::Warn);
        assert!(
            found.text.contains("neither iptables nor nft is installed") && found.remedy.is_some(),
            "{found:?}"
        );
    }
}
