//! A rule of kube-proxy: the packets it is for, and where it leads. Pure.
//!
//! It is read from the expressions of nf_tables, or from a line of `iptables-save`. Only conditions
//! of Services are read; the reader of all conditions is `crate::nft`.

use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use flannel_firewall_tools::words;
use flannel_netfilter::{Attributes, Expression};
use ipnet::IpNet;

use crate::{
    nft::rule::{bytes, register, verdict_chain},
    xtables,
};

/// Protocols of Services, by the names of iptables.
const PROTOCOLS: [(&str, u8); 3] = [("tcp", 6), ("udp", 17), ("sctp", 132)];
/// The key `l4proto` of `NFT_META_*`.
const L4PROTO: u64 = 16;
/// Anonymous maps have names of this beginning, from nft and iptables.
const ANONYMOUS_MAP: &str = "__map";

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceRule {
    /// The destination, if the rule names a whole address.
    pub(super) address: Option<IpAddr>,
    pub(super) protocol: Option<u8>,
    pub(super) port: Option<u16>,
    pub(super) comment: Option<String>,
    /// True if a condition excludes packets.
    pub(super) is_negated: bool,
    /// The chains and anonymous maps it leads to.
    pub(super) targets: Vec<Target>,
    /// The destinations it translates to.
    pub(super) ends: Vec<SocketAddr>,
    pub(super) rejects: bool,
}

/// The place where a packet goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Chain(String),
    /// One of the chains in an anonymous map.
    Map(String),
}

/// The contents of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Address,
    Protocol,
    Port,
    Other,
}

impl ServiceRule {
    /// Returns true if the rule is for packets to this address by this protocol.
    pub(super) fn is_for(&self, address: IpAddr, protocol: u8) -> bool {
        self.address == Some(address) && self.protocol == Some(protocol) && !self.is_negated
    }

    /// Returns the name in the comment: `default/web:http` of `default/web:http cluster IP`.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.comment.as_deref()?.split(' ').next();
        name.filter(|name| name.contains('/')).map(str::to_owned)
    }

    /// Reads the options of a line of `iptables-save`.
    pub(crate) fn of_options(options: &str) -> Self {
        let (mut rule, mut words) = (Self::default(), words::split(options).into_iter());
        while let Some(word) = words.next() {
            match word.as_ref() {
                "!" => rule.is_negated = true,
                "-d" => rule.address = words.next().and_then(|text| whole_address(&text)),
                "-p" => rule.protocol = words.next().and_then(|text| protocol(&text)),
                "--dport" => rule.port = words.next().and_then(|text| text.parse().ok()),
                "--comment" => rule.comment = words.next().map(Cow::into_owned),
                "--to-destination" => rule.ends.extend(
                    words
                        .next()
                        .and_then(|text| text.parse::<SocketAddr>().ok()),
                ),
                "-j" => match words.next().as_deref() {
                    Some("REJECT") => rule.rejects = true,
                    Some("DNAT") | None => {}
                    Some(chain) => rule.targets.push(Target::Chain(chain.to_owned())),
                },
                _ => {}
            }
        }
        rule
    }

    /// Reads the expressions of a rule of nf_tables.
    pub(crate) fn of_expressions(expressions: &[Expression<'_>]) -> Self {
        let mut rule = Self::default();
        let (mut fields, mut values) = (HashMap::new(), HashMap::new());
        for expression in expressions {
            let data = expression.data;
            match expression.name.as_str() {
                "payload" => drop(fields.insert(register(data, 1), field(data))),
                "meta" => {
                    let field = if data.number(2) == Some(L4PROTO) {
                        Field::Protocol
                    } else {
                        Field::Other
                    };
                    fields.insert(register(data, 1), field);
                }
                "bitwise" => drop(fields.insert(register(data, 2), Field::Other)),
                "cmp" => rule.compare(fields.get(&register(data, 1)).copied(), data),
                "lookup" if data.number(3) == Some(0) => {
                    let map = data.text(1).filter(|name| name.starts_with(ANONYMOUS_MAP));
                    rule.targets.extend(map.map(Target::Map));
                }
                "immediate" => match data.nested(2).and_then(|value| value.nested(2)) {
                    Some(verdict) => rule
                        .targets
                        .extend(verdict_chain(verdict).map(Target::Chain)),
                    None => drop(values.insert(register(data, 1), bytes(data, 2).to_vec())),
                },
                "nat" => rule.ends.extend(translation(data, &values)),
                "reject" => rule.rejects = true,
                "match" => rule.add_match(data),
                "target" => rule.add_target(data),
                _ => {}
            }
        }
        rule
    }

    /// Adds a comparison. `NFT_CMP_EQ` is zero.
    fn compare(&mut self, field: Option<Field>, data: Attributes<'_>) {
        let value = bytes(data, 3);
        if data.number(2) != Some(0) {
            self.is_negated = true;
            return;
        }
        match field {
            Some(Field::Address) => self.address = address(value),
            Some(Field::Protocol) => self.protocol = value.first().copied(),
            Some(Field::Port) => self.port = port(value),
            Some(Field::Other) | None => {}
        }
    }

    /// Adds a match of iptables.
    fn add_match(&mut self, data: Attributes<'_>) {
        let (Some(name), info) = (data.text(1), data.get(3).unwrap_or_default()) else {
            return;
        };
        match name.as_str() {
            // struct xt_comment_info is the text.
            "comment" => self.comment = data.text(3),
            "tcp" | "udp" => {
                let words = xtables::match_options(&name, data.number(2).unwrap_or_default(), info)
                    .unwrap_or_default();
                self.is_negated |= words.iter().any(|word| word == "!");
                let port = words.iter().skip_while(|word| *word != "--dport").nth(1);
                self.port = port.and_then(|port| port.parse().ok()).or(self.port);
            }
            _ => {}
        }
    }

    /// Adds a target of iptables that is not a chain.
    fn add_target(&mut self, data: Attributes<'_>) {
        let (revision, info) = (
            data.number(2).unwrap_or_default(),
            data.get(3).unwrap_or_default(),
        );
        match data.text(1).as_deref() {
            Some("DNAT") => self.ends.extend(xtables::translation(revision, info)),
            Some("REJECT") => self.rejects = true,
            _ => {}
        }
    }
}

/// The field that a `payload` expression loads, by base (`NFT_PAYLOAD_*`), offset and length.
fn field(data: Attributes<'_>) -> Field {
    match [2, 3, 4].map(|kind| data.number32(kind).unwrap_or_default()) {
        [1, 16, 4] | [1, 24, 16] => Field::Address,
        [1, 9 | 6, 1] => Field::Protocol,
        [2, 2, 2] => Field::Port,
        _ => Field::Other,
    }
}

/// The destination of a `nat` expression; `None` of one that is not written in the rule.
/// `NFT_NAT_DNAT` is one.
fn translation(data: Attributes<'_>, values: &HashMap<u32, Vec<u8>>) -> Option<SocketAddr> {
    let value = |kind| values.get(&register(data, kind)).map(Vec::as_slice);
    (data.number(1) == Some(1)).then_some(())?;
    data.get(3)?;
    data.get(5)?;
    Some(SocketAddr::new(address(value(3)?)?, port(value(5)?)?))
}

/// An address in network byte order.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// A port in network byte order.
pub(super) fn port(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn whole_address(text: &str) -> Option<IpAddr> {
    let network = text
        .parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    (network.prefix_len() == network.max_prefix_len()).then(|| network.addr())
}

fn protocol(name: &str) -> Option<u8> {
    PROTOCOLS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_destination_and_targets() {
        let options = r#"-d 10.96.0.1/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-WEB"#;
        let rule = ServiceRule::of_options(options);
        let address = IpAddr::from([10, 96, 0, 1]);
        assert!(rule.is_for(address, 6) && !rule.is_for(address, 17));
        assert_eq!(
            (rule.port, rule.name().as_deref()),
            (Some(80), Some("default/web:http"))
        );
        assert_eq!(rule.targets, [Target::Chain("KUBE-SVC-WEB".to_owned())]);
        let negated =
            ServiceRule::of_options("! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp --dport 80 -j MARK");
        assert!(!negated.is_for(address, 6));
        let network = ServiceRule::of_options("-d 10.96.0.0/16 -p tcp -j DROP");
        assert_eq!(network.address, None);
        let end = ServiceRule::of_options("-p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080");
        assert_eq!((end.ends.len(), end.targets.len()), (1, 0));
    }
}
