//! The xfrm policies that send packets between two prefixes through one ESP tunnel.
//!
//! Without an association for its template a policy drops the packets it covers: they do not leave
//! in the clear.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_xfrm::{
    AF_INET, AF_INET6, Address, Selector, UserPolicyId, UserPolicyInfo, UserTemplate,
    XFRM_MODE_TUNNEL, XFRM_POLICY_ALLOW, XFRM_POLICY_FWD, XFRM_POLICY_IN, XFRM_POLICY_OUT,
    XfrmAttrs, XfrmMessage,
    policy::{DelGetMessage, ModifyMessage},
};

use super::{
    Netlink,
    error::{Fault, NetlinkError, Verb},
    transport::{Dump, Transport},
};

/// `IPPROTO_ESP`.
pub(super) const ESP: u8 = 50;

/// The packets of a host that a policy applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyDirection {
    /// Those it receives for itself.
    In,
    /// Those it sends or forwards.
    Out,
    /// Those it has received and forwards.
    Forward,
}

impl PolicyDirection {
    const fn number(self) -> u8 {
        match self {
            Self::In => XFRM_POLICY_IN,
            Self::Out => XFRM_POLICY_OUT,
            Self::Forward => XFRM_POLICY_FWD,
        }
    }

    const fn of(number: u8) -> Option<Self> {
        match number {
            XFRM_POLICY_IN => Some(Self::In),
            XFRM_POLICY_OUT => Some(Self::Out),
            XFRM_POLICY_FWD => Some(Self::Forward),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Forward => "fwd",
        }
    }
}

/// The identity of a policy: its direction, and all packets from one prefix to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TunnelPolicyKey {
    /// Its direction.
    pub direction: PolicyDirection,
    /// The sources.
    pub src: IpNet,
    /// The destinations.
    pub dst: IpNet,
}

impl fmt::Display for TunnelPolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "xfrm policy {} from {} to {}",
            self.direction.name(),
            self.src,
            self.dst
        )
    }
}

/// The tunnel that a policy demands: ESP in tunnel mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPolicy {
    /// Source address of outer packets.
    pub src: IpAddr,
    /// Their destination address.
    pub dst: IpAddr,
    /// The number that associations have in common with their policies.
    pub reqid: u32,
    /// The lowest wins.
    pub priority: u32,
}

impl Netlink {
    /// Returns the policies with plain prefixes and one template of ESP in tunnel mode; empty on a
    /// kernel without XFRM. Other policies are left out.
    pub async fn tunnel_policies(
        &self,
    ) -> Result<Vec<(TunnelPolicyKey, TunnelPolicy)>, NetlinkError> {
        let Some(xfrm) = &self.xfrm else {
            return Ok(Vec::new());
        };
        let entries = xfrm
            .dump(XfrmMessage::GetPolicy(DelGetMessage::default()))
            .await
            .map(Dump::readable);
        let entries = entries.map_err(|fault| fault.on(Verb::Read, "the xfrm policies"))?;
        Ok(entries.iter().filter_map(policy_of).collect())
    }

    /// Creates a policy, or changes an existing one. A policy with the same identity that does not
    /// demand a tunnel of this `reqid` belongs to another program: it stays, and the error says
    /// that it exists.
    pub async fn replace_tunnel_policy(
        &self,
        key: &TunnelPolicyKey,
        policy: &TunnelPolicy,
    ) -> Result<(), NetlinkError> {
        let xfrm = self.xfrm_or(Verb::Replace, key)?;
        let message = message_of(key, policy);
        match xfrm
            .command(XfrmMessage::AddPolicy(message.clone()), 0)
            .await
            .map_err(|fault| fault.on(Verb::Create, key))
        {
            Err(taken) if taken.is_exists() => {
                if !is_ours(xfrm, key, policy.reqid).await {
                    return Err(taken);
                }
                let changed = xfrm.command(XfrmMessage::UpdatePolicy(message), 0).await;
                changed.map_err(|fault| fault.on(Verb::Replace, key))
            }
            other => other,
        }
    }

    /// Removes a policy.
    pub async fn del_tunnel_policy(&self, key: &TunnelPolicyKey) -> Result<(), NetlinkError> {
        let removed = self
            .xfrm_or(Verb::Delete, key)?
            .command(XfrmMessage::DeletePolicy(id_of(key)), 0)
            .await;
        removed.map_err(|fault| fault.on(Verb::Delete, key))
    }

    /// The transport; without XFRM an error that names the object.
    pub(super) fn xfrm_or(
        &self,
        verb: Verb,
        object: impl fmt::Display,
    ) -> Result<&Transport<XfrmMessage>, NetlinkError> {
        self.xfrm
            .as_ref()
            .ok_or_else(|| Fault::NoXfrm.on(verb, object))
    }
}

/// Returns true if the policy there demands a tunnel of this `reqid`.
async fn is_ours(xfrm: &Transport<XfrmMessage>, key: &TunnelPolicyKey, reqid: u32) -> bool {
    let found = xfrm.fetch(XfrmMessage::GetPolicy(id_of(key))).await;
    found
        .ok()
        .as_ref()
        .and_then(policy_of)
        .is_some_and(|(_, policy)| policy.reqid == reqid)
}

fn selector_of(key: &TunnelPolicyKey) -> Selector {
    let mut selector = Selector::default();
    selector.source_prefix(&key.src.network(), key.src.prefix_len());
    selector.destination_prefix(&key.dst.network(), key.dst.prefix_len());
    selector
}

fn id_of(key: &TunnelPolicyKey) -> DelGetMessage {
    let id = UserPolicyId {
        selector: selector_of(key),
        direction: key.direction.number(),
        ..UserPolicyId::default()
    };
    DelGetMessage {
        user_policy_id: id,
        nlas: Vec::new(),
    }
}

fn message_of(key: &TunnelPolicyKey, policy: &TunnelPolicy) -> ModifyMessage {
    let mut template = UserTemplate {
        reqid: policy.reqid,
        mode: XFRM_MODE_TUNNEL,
        ..UserTemplate::default()
    };
    template.source(&policy.src);
    template.destination(&policy.dst);
    template.protocol(ESP);
    let info = UserPolicyInfo {
        selector: selector_of(key),
        priority: policy.priority,
        direction: key.direction.number(),
        action: XFRM_POLICY_ALLOW,
        ..UserPolicyInfo::default()
    };
    ModifyMessage {
        user_policy_info: info,
        nlas: vec![XfrmAttrs::Template(vec![template])],
    }
}

/// `None` for a policy of another form.
fn policy_of(message: &XfrmMessage) -> Option<(TunnelPolicyKey, TunnelPolicy)> {
    let XfrmMessage::AddPolicy(ModifyMessage {
        user_policy_info: info,
        nlas,
    }) = message
    else {
        return None;
    };
    let Selector {
        saddr,
        daddr,
        prefixlen_s,
        prefixlen_d,
        family,
        ..
    } = info.selector;
    let plain = Selector {
        saddr,
        daddr,
        prefixlen_s,
        prefixlen_d,
        family,
        ..Selector::default()
    };
    if info.selector != plain || info.action != XFRM_POLICY_ALLOW {
        return None;
    }
    let template = only_template(nlas)?;
    if template.id.proto != ESP || template.mode != XFRM_MODE_TUNNEL || template.optional != 0 {
        return None;
    }
    let net = |address, length| IpNet::new(ip(address, family)?, length).ok();
    let direction = PolicyDirection::of(info.direction)?;
    let key = TunnelPolicyKey {
        direction,
        src: net(saddr, prefixlen_s)?,
        dst: net(daddr, prefixlen_d)?,
    };
    let (src, dst) = (
        ip(template.saddr, template.family)?,
        ip(template.id.daddr, template.family)?,
    );
    Some((
        key,
        TunnelPolicy {
            src,
            dst,
            reqid: template.reqid,
            priority: info.priority,
        },
    ))
}

/// The one template; `None` where there are others, and for packets of a mark or an interface.
fn only_template(attributes: &[XfrmAttrs]) -> Option<&UserTemplate> {
    let mut found = None;
    for attribute in attributes {
        match attribute {
            XfrmAttrs::Template(templates) => {
                found = templates.first().filter(|_| templates.len() == 1);
            }
            XfrmAttrs::Mark(mark) if mark.mask != 0 => return None,
            XfrmAttrs::IfId(id) if *id != 0 => return None,
            _ => {}
        }
    }
    found
}

pub(super) fn ip(address: Address, family: u16) -> Option<IpAddr> {
    match family {
        AF_INET => Some(address.to_ipv4().into()),
        AF_INET6 => Some(address.to_ipv6().into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TunnelPolicyKey {
        let net = |text: &str| text.parse().expect("a prefix");
        TunnelPolicyKey {
            direction: PolicyDirection::Forward,
            src: net("10.5.2.0/24"),
            dst: net("10.5.1.0/24"),
        }
    }

    fn policy() -> TunnelPolicy {
        let ip = |text: &str| text.parse().expect("an address");
        TunnelPolicy {
            src: ip("192.0.2.2"),
            dst: ip("192.0.2.1"),
            reqid: 11,
            priority: 0,
        }
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        let message = message_of(&key(), &policy());
        assert_eq!(
            policy_of(&XfrmMessage::AddPolicy(message)),
            Some((key(), policy()))
        );
        assert_eq!(
            key().to_string(),
            "xfrm policy fwd from 10.5.2.0/24 to 10.5.1.0/24"
        );
    }

    #[test]
    fn policies_of_another_form_are_left_out() {
        let message = message_of(&key(), &policy());
        let changed = |change: &dyn Fn(&mut ModifyMessage)| {
            let mut message = message.clone();
            change(&mut message);
            policy_of(&XfrmMessage::AddPolicy(message))
        };
        assert_eq!(
            changed(&|message| message.user_policy_info.action = 1),
            None,
            "drops"
        );
        assert_eq!(
            changed(&|message| message.user_policy_info.selector.proto = 17),
            None,
            "one protocol"
        );
        assert_eq!(changed(&|message| message.nlas.clear()), None, "no tunnel");
        assert_eq!(
            changed(&|message| message.nlas.push(XfrmAttrs::IfId(7))),
            None,
            "of an interface"
        );
        let transport = |message: &mut ModifyMessage| {
            if let Some(XfrmAttrs::Template(templates)) = message.nlas.first_mut() {
                templates[0].mode = 0;
            }
        };
        assert_eq!(changed(&transport), None, "transport mode");
    }
}
