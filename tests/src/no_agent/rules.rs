//! The rules of a usual cluster, as kube-proxy and an agent leave them.

use anyhow::Result;

use super::{BareNode, SERVICE, SERVICE_PORT};
use crate::service_rules::Backend;

impl BareNode {
    /// Sets the conntrack sysctls that mode `fast` needs: windows are not tracked, and no reset is
    /// invalid.
    pub fn liberal_conntrack(&self) -> Result<()> {
        for key in [
            "nf_conntrack_tcp_be_liberal",
            "nf_conntrack_tcp_ignore_invalid_rst",
        ] {
            self.node.sh(&format!("sysctl -qw net.netfilter.{key}=1"))?;
        }
        Ok(())
    }

    /// Masquerade for what leaves the cluster; what conntrack calls invalid is dropped.
    pub fn usual_rules(&self, backend: Backend) -> Result<()> {
        match backend {
            Backend::Nftables => self.nft(
                "table ip cluster {
                    chain prerouting { type nat hook prerouting priority -100; }
                    chain forward { type filter hook forward priority 0; ct state invalid drop; }
                    chain postrouting {
                        type nat hook postrouting priority 100;
                        ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade
                    }
                }",
            ),
            Backend::Iptables => {
                self.iptables("-A FORWARD -m conntrack --ctstate INVALID -j DROP")?;
                self.iptables(
                    "-t nat -A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE",
                )
            }
        }
    }

    /// Makes the Service lead to `to`, an address and a port, for one protocol.
    pub fn service(&self, backend: Backend, protocol: &str, to: &str) -> Result<()> {
        match backend {
            Backend::Nftables => self.nft(&format!(
                "add rule ip cluster prerouting ip daddr {SERVICE} {protocol} dport {SERVICE_PORT} \
                 dnat to {to}"
            )),
            Backend::Iptables => self.iptables(&format!(
                "-t nat -A PREROUTING -d {SERVICE} -p {protocol} --dport {SERVICE_PORT} -j DNAT \
                 --to-destination {to}"
            )),
        }
    }

    /// Runs an nft script.
    pub fn nft(&self, script: &str) -> Result<()> {
        self.node.nft(script)
    }

    /// Runs an iptables command, written as one line.
    pub fn iptables(&self, line: &str) -> Result<()> {
        self.node
            .sh(&format!("iptables-legacy -w {line}"))
            .map(drop)
    }

    /// Conntrack's table.
    pub fn conntrack(&self) -> Result<Vec<String>> {
        let text = self.node.sh("cat /proc/net/nf_conntrack")?.stdout;
        Ok(text.lines().map(str::to_owned).collect())
    }
}
