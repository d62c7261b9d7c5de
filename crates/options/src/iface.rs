//! The choice of the external interface.

use clap::Args;
use flannel_iface::{IfaceOptions, NamePattern};

use super::check::{Checks, OptionMistake};

/// Flags that choose the external interface and its addresses.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "External interface")]
pub(super) struct IfaceFlags {
    /// Interface name or local address for traffic between nodes; tried in order when repeated
    /// [default: the default route's interface]
    #[arg(long, value_name = "NAME|IP")]
    iface: Vec<String>,
    /// Regular expression (RE2) on local addresses, then on interface names; tried after every
    /// --iface, in order when repeated
    #[arg(long, value_name = "REGEX")]
    iface_regex: Vec<String>,
    /// Take the interface and address that packets to this IP leave by; tried last
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    iface_can_reach: String,
    /// IPv4 address other nodes reach us at, and who we are in etcd; without --iface it has to be a
    /// local one, and picks the interface [default: the interface's]
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    public_ip: String,
    /// IPv6 address other nodes reach us at; both families use one interface [default: the
    /// interface's]
    #[arg(long, value_name = "IP", default_value = "", hide_default_value = true)]
    public_ipv6: String,
}

impl IfaceFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> IfaceOptions {
        IfaceOptions {
            patterns: self.patterns(checks),
            can_reach: checks.optional("iface-can-reach", &self.iface_can_reach, "an IP address"),
            public_ip: checks.optional("public-ip", &self.public_ip, "an IPv4 address"),
            public_ipv6: checks.optional("public-ipv6", &self.public_ipv6, "an IPv6 address"),
            iface: self
                .iface
                .iter()
                .filter(|iface| !iface.is_empty())
                .cloned()
                .collect(),
        }
    }

    /// The patterns that can be used; the others are mistakes.
    fn patterns(&self, checks: &mut Checks) -> Vec<NamePattern> {
        let mut patterns = Vec::new();
        for text in self.iface_regex.iter().filter(|text| !text.is_empty()) {
            match NamePattern::new(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => checks.mistakes.push(OptionMistake::Regex(error)),
            }
        }
        patterns
    }
}
