//! The xfrm policies for packets that leave this host, and for packets that it forwards.
//!
//! The programs send outer packets past the host's transformations, and put packets into pods past
//! its checks of what has to be transformed. What a policy may cover must be left to the kernel. A
//! kernel without XFRM has no policies; that is an answer, not an error.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_xfrm::{
    AF_INET, AF_INET6, Selector, UserPolicyInfo, XFRM_POLICY_BLOCK, XFRM_POLICY_FWD,
    XFRM_POLICY_OUT, XFRM_USERPOLICY_BLOCK, XfrmAttrs, XfrmMessage,
    policy::{DefaultMessage, DelGetMessage, ModifyMessage},
};
use nix::errno::Errno;

use super::{
    Netlink,
    error::{Fault, NetlinkError, Verb},
    reply::Prune,
    transport::{Dump, Transport},
};

/// `IPPROTO_UDP`.
const UDP: u8 = 17;

/// The action of a policy for a packet it covers, templates apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XfrmAction {
    /// Let it through, transformed when the policy has templates.
    Allow,
    /// Drop it.
    Block,
}

/// A port and the bits of it that count, host order; mask 0 is any port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortMask {
    /// The port.
    pub port: u16,
    /// The bits that must be equal.
    pub mask: u16,
}

impl PortMask {
    /// Returns true if a port matches; host order.
    pub const fn matches(self, port: u16) -> bool {
        (port ^ self.port) & self.mask == 0
    }
}

/// The packets that a policy applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XfrmSelector {
    /// Source and destination prefix; `None` for a selector of no family, which takes both.
    pub prefixes: Option<(IpNet, IpNet)>,
    /// IP protocol number; 0 is any.
    pub proto: u8,
    /// Source port.
    pub sport: PortMask,
    /// Destination port.
    pub dport: PortMask,
    /// Output interface index; 0 is any.
    pub ifindex: u32,
}

/// The outer packets of one peer. Their source port differs from flow to flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelFlow {
    /// Our own VTEP.
    pub src: IpAddr,
    /// The peer's VTEP.
    pub dst: IpAddr,
    /// UDP destination port, host order.
    pub dport: u16,
}

impl XfrmSelector {
    /// Returns true if some of the flow's packets may match. Unknown properties count as a match.
    /// Pure.
    pub fn covers(&self, flow: &TunnelFlow) -> bool {
        let addressed = self
            .prefixes
            .is_none_or(|(src, dst)| src.contains(&flow.src) && dst.contains(&flow.dst));
        addressed && (self.proto == 0 || self.proto == UDP) && self.dport.matches(flow.dport)
    }

    /// Returns true if some packets from or to this network may match. Pure.
    pub fn touches(&self, network: IpNet) -> bool {
        let meets = |prefix: IpNet| prefix.contains(&network) || network.contains(&prefix);
        self.prefixes
            .is_none_or(|(src, dst)| meets(src) || meets(dst))
    }

    /// `None` when the kernel's prefixes make no sense.
    fn from_kernel(selector: &Selector) -> Option<Self> {
        let net = |addr: netlink_packet_xfrm::Address, len| match selector.family {
            AF_INET => IpNet::new(addr.to_ipv4().into(), len).ok(),
            AF_INET6 => IpNet::new(addr.to_ipv6().into(), len).ok(),
            _ => None,
        };
        let prefixes = match selector.family {
            AF_INET | AF_INET6 => Some((
                net(selector.saddr, selector.prefixlen_s)?,
                net(selector.daddr, selector.prefixlen_d)?,
            )),
            _ => None,
        };
        Some(Self {
            prefixes,
            proto: selector.proto,
            sport: PortMask {
                port: selector.sport,
                mask: selector.sport_mask,
            },
            dport: PortMask {
                port: selector.dport,
                mask: selector.dport_mask,
            },
            ifindex: selector.ifindex.unsigned_abs(),
        })
    }
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XfrmPolicy {
    /// The packets it applies to.
    pub selector: XfrmSelector,
    /// The action for them.
    pub action: XfrmAction,
    /// They are transformed: encrypted, authenticated, compressed or tunnelled.
    pub has_templates: bool,
    /// The lowest wins.
    pub priority: u32,
    /// The kernel's number of the policy.
    pub index: u32,
    /// For packets of the xfrm interface with this id only; 0 is any other packet.
    pub if_id: u32,
}

impl XfrmPolicy {
    /// Returns true if some of the flow's packets may meet this policy; never one of an xfrm
    /// interface. Pure.
    pub fn covers(&self, flow: &TunnelFlow) -> bool {
        self.if_id == 0 && self.selector.covers(flow)
    }

    /// Returns true if packets from or to this network may have to be transformed, or blocked,
    /// because of this policy. Pure.
    pub fn restricts(&self, network: IpNet) -> bool {
        (self.has_templates || self.action == XfrmAction::Block) && self.selector.touches(network)
    }

    fn from_message(message: &ModifyMessage) -> Option<Self> {
        let UserPolicyInfo {
            selector,
            priority,
            index,
            action,
            ..
        } = message.user_policy_info;
        let mut policy = Self {
            selector: XfrmSelector::from_kernel(&selector)?,
            action: if action == XFRM_POLICY_BLOCK {
                XfrmAction::Block
            } else {
                XfrmAction::Allow
            },
            has_templates: false,
            priority,
            index,
            if_id: 0,
        };
        for attribute in &message.nlas {
            match attribute {
                XfrmAttrs::Template(templates) => policy.has_templates = !templates.is_empty(),
                XfrmAttrs::IfId(id) => policy.if_id = *id,
                _ => {}
            }
        }
        Some(policy)
    }
}

impl Netlink {
    /// The policies for outgoing packets, per-socket ones left out. Empty on a kernel without XFRM.
    /// Fails when one of them could not be decoded.
    pub async fn out_policies(&self) -> Result<Vec<XfrmPolicy>, NetlinkError> {
        self.policies(&[XFRM_POLICY_OUT]).await
    }

    /// The same of packets that the host forwards: those that it checks when they come in, and
    /// those that it transforms when they leave.
    pub async fn forward_policies(&self) -> Result<Vec<XfrmPolicy>, NetlinkError> {
        self.policies(&[XFRM_POLICY_FWD, XFRM_POLICY_OUT]).await
    }

    async fn policies(&self, directions: &[u8]) -> Result<Vec<XfrmPolicy>, NetlinkError> {
        let Some(xfrm) = &self.xfrm else {
            return Ok(Vec::new());
        };
        read_policies(xfrm, directions)
            .await
            .map_err(|fault| fault.on(Verb::Read, "the xfrm policies"))
    }

    /// Returns true if packets that no policy covers are dropped (`ip xfrm policy setdefault out
    /// block`, kernel 5.14; `xfrm_get_default()` in [net/xfrm/xfrm_user.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/xfrm/xfrm_user.c)); false on a kernel
    /// without XFRM.
    pub async fn out_policy_default_blocks(&self) -> Result<bool, NetlinkError> {
        let Some(xfrm) = &self.xfrm else {
            return Ok(false);
        };
        match xfrm
            .fetch(XfrmMessage::GetPolicyDefault(DefaultMessage::default()))
            .await
        {
            Ok(XfrmMessage::GetPolicyDefault(answer)) => {
                Ok(answer.user_policy.output == XFRM_USERPOLICY_BLOCK)
            }
            // An older kernel does not know the message.
            Err(fault) if fault.errno() == Some(Errno::EINVAL) => Ok(false),
            other => {
                let fault = other.err().unwrap_or(Fault::NoAnswer);
                Err(fault.on(Verb::Read, "the default xfrm policy"))
            }
        }
    }
}

impl Prune for XfrmMessage {}

async fn read_policies(
    xfrm: &Transport<XfrmMessage>,
    directions: &[u8],
) -> Result<Vec<XfrmPolicy>, Fault> {
    let entries = xfrm
        .dump(XfrmMessage::GetPolicy(DelGetMessage::default()))
        .await
        .and_then(Dump::complete)?;
    let mut policies = Vec::new();
    for entry in &entries {
        if let XfrmMessage::AddPolicy(message) = entry
            && directions.contains(&message.user_policy_info.direction)
        {
            let gap = Fault::Undecodable {
                message_type: entry.message_type(),
                count: 1,
            };
            policies.push(XfrmPolicy::from_message(message).ok_or(gap)?);
        }
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn flow(src: &str, dst: &str) -> TunnelFlow {
        TunnelFlow {
            src: src.parse().expect("src"),
            dst: dst.parse().expect("dst"),
            dport: 8472,
        }
    }

    fn between(src: &str, dst: &str) -> XfrmSelector {
        let any = PortMask::default();
        XfrmSelector {
            prefixes: Some((net(src), net(dst))),
            proto: 0,
            sport: any,
            dport: any,
            ifindex: 0,
        }
    }

    #[test]
    fn a_selector_covers_what_it_may_match() {
        let hosts = between("10.9.0.1/32", "10.9.0.2/32");
        let port = |port, mask| PortMask { port, mask };
        let any = XfrmSelector {
            prefixes: None,
            ..hosts
        };
        for (name, selector, covers) in [
            ("hosts", hosts, true),
            ("everything", between("0.0.0.0/0", "0.0.0.0/0"), true),
            ("no family", any, true),
            (
                "other destination",
                between("0.0.0.0/0", "10.9.0.3/32"),
                false,
            ),
            ("other source", between("10.9.0.7/32", "0.0.0.0/0"), false),
            ("other family", between("::/0", "::/0"), false),
            ("udp", XfrmSelector { proto: 17, ..hosts }, true),
            ("tcp", XfrmSelector { proto: 6, ..hosts }, false),
            (
                "our port",
                XfrmSelector {
                    dport: port(8472, 0xffff),
                    ..hosts
                },
                true,
            ),
            (
                "other port",
                XfrmSelector {
                    dport: port(4789, 0xffff),
                    ..hosts
                },
                false,
            ),
            (
                "some source port",
                XfrmSelector {
                    sport: port(500, 0xffff),
                    ..hosts
                },
                true,
            ),
            (
                "some interface",
                XfrmSelector {
                    ifindex: 3,
                    ..hosts
                },
                true,
            ),
        ] {
            assert_eq!(
                selector.covers(&flow("10.9.0.1", "10.9.0.2")),
                covers,
                "{name}"
            );
        }
    }

    #[test]
    fn a_policy_restricts_the_networks_that_its_prefixes_meet() {
        let policy = |src, dst| XfrmPolicy {
            selector: between(src, dst),
            action: XfrmAction::Allow,
            has_templates: true,
            priority: 0,
            index: 1,
            if_id: 0,
        };
        let pods = net("10.244.1.0/24");
        assert!(policy("0.0.0.0/0", "0.0.0.0/0").restricts(pods));
        assert!(
            policy("192.0.2.0/24", "10.244.0.0/16").restricts(pods),
            "the whole network of pods"
        );
        assert!(
            policy("10.244.1.7/32", "192.0.2.0/24").restricts(pods),
            "one pod"
        );
        assert!(!policy("10.244.2.0/24", "10.244.3.0/24").restricts(pods));
        assert!(!policy("::/0", "::/0").restricts(pods));
        let allows = XfrmPolicy {
            has_templates: false,
            ..policy("0.0.0.0/0", "0.0.0.0/0")
        };
        assert!(!allows.restricts(pods), "as if there were none");
        assert!(
            XfrmPolicy {
                action: XfrmAction::Block,
                ..allows
            }
            .restricts(pods)
        );
    }

    #[test]
    fn ipv6_prefixes_are_compared_as_prefixes() {
        let selector = between("fd00:9::/64", "fd00:9::2/128");
        assert!(selector.covers(&flow("fd00:9::1", "fd00:9::2")));
        assert!(!selector.covers(&flow("fd00:9:0:1::1", "fd00:9::2")));
    }

    #[test]
    fn a_policy_of_an_xfrm_interface_covers_nothing_of_ours() {
        let mut policy = XfrmPolicy {
            selector: between("0.0.0.0/0", "0.0.0.0/0"),
            action: XfrmAction::Allow,
            has_templates: true,
            priority: 0,
            index: 1,
            if_id: 0,
        };
        assert!(policy.covers(&flow("10.9.0.1", "10.9.0.2")));
        policy.if_id = 42;
        assert!(!policy.covers(&flow("10.9.0.1", "10.9.0.2")));
    }
}
