//! The kinds of findings.

use flannel_status::ProblemCode;
use serde::Serialize;

/// The kind of a finding that is not as it should be. The names are an interface: scripts compare
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum FindingCode {
    /// A finding about the host.
    Host(HostCode),
    /// A problem that the running agent reports.
    Problem(
        #[cfg_attr(test, schemars(with = "flannel_json_schema::types::ProblemCode"))] ProblemCode,
    ),
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $topic:literal,)*) => {
        /// The kinds of findings about the host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
                pub enum HostCode {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl HostCode {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in documents.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The topic of its findings.
            pub const fn topic(self) -> &'static str {
                match self { $(Self::$variant => $topic,)* }
            }
        }
    };
}

codes! {
    /// The kernel is older than the agent supports.
    OldKernel "old_kernel" "kernel",
    /// A capability is missing.
    Privileges "privileges" "privileges",
    /// The kernel lacks the vxlan module.
    VxlanModule "vxlan_module" "vxlan",
    /// The kernel refuses programs, or limits them.
    Programs "programs" "programs",
    /// The kernel does not report NAPI polls.
    NapiPolls "napi_polls" "fast",
    /// The flow table is small.
    FlowTable "flow_table" "flows",
    /// The kernel's type information has no conntrack entry of a packet.
    Btf "btf" "btf",
    /// Conntrack keeps mode fast from TCP.
    Conntrack "conntrack" "conntrack",
    /// The node has no guard.
    Unguarded "unguarded" "guard",
    /// Nexthop objects cannot be read.
    NexthopObjects "nexthop_objects" "nexthops",
    /// Programs cannot be pinned.
    PinRoot "pin_root" "pins",
    /// The host does not forward packets.
    Forwarding "forwarding" "forwarding",
    /// A tunnel device carries no packets of pods.
    TunnelSysctl "tunnel_sysctl" "forwarding",
    /// Bridges do not show their packets to iptables.
    BridgeFiltering "bridge_filtering" "br_netfilter",
    /// The record of changed sysctls cannot be read.
    SysctlRecord "sysctl_record" "sysctls",
    /// `rp_filter` is strict on a tunnel device.
    StrictRpFilter "strict_rp_filter" "rp_filter",
    /// No interface fits as the external one.
    NoInterface "no_interface" "interface",
    /// The external interface is not an Ethernet device.
    NotEthernet "not_ethernet" "interface",
    /// The external interface is down.
    InterfaceDown "interface_down" "interface",
    /// An address of the external interface is in the pod network.
    AddressInPods "address_in_pods" "addresses",
    /// Filters of other programs, or IPsec policies, on the ingress of packets from peers.
    ForeignFilter "foreign_filter" "ingress",
    /// An offload setting of a tunnel device.
    TunnelOffload "tunnel_offload" "offload",
    /// The external interface has no offload that matters.
    NicOffload "nic_offload" "offload",
    /// The tunnel's packets do not fit into the external interface.
    TunnelMtu "tunnel_mtu" "mtu",
    /// Packets of pods do not fit into the tunnel.
    PodMtu "pod_mtu" "mtu",
    /// The IPv6 tunnel refuses packets without a UDP checksum.
    ZeroChecksum "zero_checksum" "udp6zerocsumrx",
    /// Another device or program has the tunnel's port.
    PortTaken "port_taken" "port",
    /// Tools for traffic rules are missing.
    RuleTools "rule_tools" "tools",
    /// Firewall rules cannot be read.
    UnreadableRules "unreadable_rules" "firewall",
    /// Not all rules could be looked at for those that judge packets one by one.
    IncompleteRules "incomplete_rules" "rules",
    /// A forward chain drops what no rule accepts.
    ForwardPolicy "forward_policy" "firewall",
    /// A rule drops packets at the tunnel's port.
    PortDropped "port_dropped" "firewall",
    /// No rule accepts packets at the tunnel's port, and the policy is to drop.
    PortNotAccepted "port_not_accepted" "firewall",
    /// Rules judge packets one by one.
    PerPacketRules "per_packet_rules" "rules",
    /// A BPF program at a netfilter hook.
    NetfilterProgram "netfilter_program" "rules",
    /// BPF programs at netfilter's hooks are not known.
    UnknownPrograms "unknown_programs" "rules",
    /// CNI plugins are missing.
    CniPlugins "cni_plugins" "cni",
    /// The agent does not answer.
    AgentSilent "agent_silent" "agent",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_on_the_page_of_problems() {
        let page = include_str!("../../../../docs/reference/problems.md");
        for code in HostCode::ALL {
            let (name, topic) = (code.name(), code.topic());
            let row = format!("\n| `{name}` | `{topic}` | ");
            assert!(
                page.contains(&row),
                "docs/reference/problems.md lacks {row}"
            );
        }
    }
}
