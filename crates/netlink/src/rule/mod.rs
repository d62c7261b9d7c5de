//! Routing rules: which table a packet is looked up in.
//!
//! [`Rule`] is what the kernel lists; [`tunnel`] judges what the rules mean for our outer packets.
//! A selector this module does not know is kept as such, never dropped: a rule must not look wider
//! or narrower than it is.

mod tunnel;

use std::{fmt, net::IpAddr, ops::RangeInclusive};

use flannel_host::family::Family;
use ipnet::IpNet;
use netlink_packet_core::Nla;
pub use netlink_packet_route::rule::RuleAction;
use netlink_packet_route::{
    RouteNetlinkMessage,
    rule::{RuleAttribute, RuleFlags, RuleMessage},
};

pub use self::tunnel::{Dependence, RuleSelector, tunnel_depends_on};
use super::{
    Netlink,
    error::{NetlinkError, Verb},
};
use crate::family::to_kernel;

/// The masks that come with every port selector since kernel 6.15; the library has no name for
/// them.
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;

/// A routing rule. Selectors that are `None`, zero or false match everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Rules are tried in ascending order.
    pub priority: u32,
    /// The action for a packet that matches.
    pub action: RuleAction,
    /// Table to look in, for [`RuleAction::ToTable`].
    pub table: u32,
    /// Source prefix.
    pub from: Option<IpNet>,
    /// Destination prefix.
    pub to: Option<IpNet>,
    /// Mark and mask; matches when `mark & mask` of the packet equals this mark.
    pub fwmark: Option<(u32, u32)>,
    /// Input interface; `lo` stands for packets made on this host.
    pub iif: Option<String>,
    /// Output interface the sender asked for.
    pub oif: Option<String>,
    /// User ids of the sending socket.
    pub uid_range: Option<RangeInclusive<u32>>,
    /// IP protocol number.
    pub ip_proto: Option<u8>,
    /// Source ports, host order.
    pub sport: Option<RangeInclusive<u16>>,
    /// Destination ports, host order.
    pub dport: Option<RangeInclusive<u16>>,
    /// TOS, without the ECN bits.
    pub tos: u8,
    /// Looks in the table of the VRF the packet's device is in.
    pub l3mdev: bool,
    /// Tunnel key of packets out of a metadata tunnel.
    pub tunnel_id: Option<u64>,
    /// The rule applies to what does not match.
    pub invert: bool,
    /// Carries an attribute this module does not know.
    pub unknown: bool,
}

impl Rule {
    /// A rule without selectors.
    pub const fn to_table(priority: u32, table: u32) -> Self {
        Self {
            priority,
            action: RuleAction::ToTable,
            table,
            from: None,
            to: None,
            fwmark: None,
            iif: None,
            oif: None,
            uid_range: None,
            ip_proto: None,
            sport: None,
            dport: None,
            tos: 0,
            l3mdev: false,
            tunnel_id: None,
            invert: false,
            unknown: false,
        }
    }

    fn from_message(message: &RuleMessage) -> Self {
        let header = &message.header;
        let mut rule = Self::to_table(0, header.table.into());
        rule.action = header.action;
        rule.tos = header.tos;
        rule.invert = header.flags.contains(RuleFlags::Invert);
        let (mut mark, mut mask) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Source(addr) => {
                    rule.take_prefix(*addr, header.src_len, |rule| &mut rule.from);
                }
                RuleAttribute::Destination(addr) => {
                    rule.take_prefix(*addr, header.dst_len, |rule| &mut rule.to);
                }
                RuleAttribute::FwMark(value) => mark = Some(*value),
                RuleAttribute::FwMask(value) => mask = Some(*value),
                other => rule.take(other),
            }
        }
        if mark.is_some() || mask.is_some() {
            rule.fwmark = Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX)));
        }
        rule
    }

    fn take_prefix(
        &mut self,
        addr: IpAddr,
        len: u8,
        field: impl Fn(&mut Self) -> &mut Option<IpNet>,
    ) {
        match IpNet::new(addr, len) {
            Ok(net) => *field(self) = Some(net),
            Err(_) => self.unknown = true,
        }
    }

    fn take(&mut self, attribute: &RuleAttribute) {
        match attribute {
            RuleAttribute::Priority(priority) => self.priority = *priority,
            RuleAttribute::Table(table) => self.table = *table,
            RuleAttribute::Iifname(name) => self.iif = Some(name.clone()),
            RuleAttribute::Oifname(name) => self.oif = Some(name.clone()),
            RuleAttribute::UidRange(range) => self.uid_range = Some(range.start..=range.end),
            RuleAttribute::IpProtocol(proto) => self.ip_proto = Some((*proto).into()),
            RuleAttribute::SourcePortRange(range) => self.sport = Some(range.start..=range.end),
            RuleAttribute::DestinationPortRange(range) => {
                self.dport = Some(range.start..=range.end);
            }
            RuleAttribute::L3MDev(on) => self.l3mdev = *on,
            RuleAttribute::TunId(id) => self.tunnel_id = Some(*id),
            // What is looked up and who made the rule, not which packets it selects.
            RuleAttribute::Goto(_)
            | RuleAttribute::Realm(_)
            | RuleAttribute::SuppressIfGroup(_)
            | RuleAttribute::SuppressPrefixLen(_)
            | RuleAttribute::Protocol(_) => {}
            // The mask of the port; the port itself is a separate attribute.
            RuleAttribute::Other(other)
                if matches!(other.kind(), FRA_SPORT_MASK | FRA_DPORT_MASK) => {}
            _ => self.unknown = true,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.priority)
    }
}

impl Netlink {
    /// All routing rules of a family, in the order the kernel tries them. Fails when one of them
    /// could not be decoded.
    pub async fn rules(&self, family: Family) -> Result<Vec<Rule>, NetlinkError> {
        let mut message = RuleMessage::default();
        message.header.family = to_kernel(family);
        let dump = self.route.dump(RouteNetlinkMessage::GetRule(message)).await;
        let entries = dump.and_then(super::transport::Dump::complete);
        let entries =
            entries.map_err(|fault| fault.on(Verb::Read, format_args!("the {family} rules")))?;
        Ok(entries.iter().filter_map(rule_of).collect())
    }
}

fn rule_of(message: &RouteNetlinkMessage) -> Option<Rule> {
    match message {
        RouteNetlinkMessage::NewRule(rule) => Some(Rule::from_message(rule)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DefaultNla;

    use super::*;

    #[test]
    fn an_attribute_of_a_newer_kernel_is_kept_as_unknown() {
        let mut message = RuleMessage::default();
        message.attributes.push(RuleAttribute::Priority(5));
        assert!(!Rule::from_message(&message).unknown);
        // The mask that comes with every port selector of kernel 6.15 is not unknown.
        message
            .attributes
            .push(RuleAttribute::Other(DefaultNla::new(
                FRA_DPORT_MASK,
                vec![0xff, 0xff],
            )));
        assert!(!Rule::from_message(&message).unknown);
        // FRA_DSCP, kernel 6.12.
        message
            .attributes
            .push(RuleAttribute::Other(DefaultNla::new(25, vec![46])));
        assert!(Rule::from_message(&message).unknown);
    }

    #[test]
    fn a_mask_without_a_mark_still_selects() {
        let mut message = RuleMessage::default();
        message.attributes.push(RuleAttribute::FwMask(0xff));
        assert_eq!(Rule::from_message(&message).fwmark, Some((0, 0xff)));
    }
}
