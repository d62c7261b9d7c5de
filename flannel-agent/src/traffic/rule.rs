//! Flannel's rules, before anybody writes them down. Pure.
//!
//! Two of them differ between the engines, because they do in flannel: see [`masquerade`].

use std::net::{Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::wanted::{Engine, Scope};

/// The mark of packets that kube-proxy masquerades itself.
pub(super) const KUBE_PROXY_MARK: u32 = 0x4000;

const MULTICAST_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);
const MULTICAST_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// The purpose of a chain of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Source translation on the way out.
    Masquerade,
    /// Letting pods' packets through.
    Forward,
}

impl Purpose {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Masquerade, Self::Forward];
}

/// The condition on the source or destination address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Any,
    In(IpNet),
    NotIn(IpNet),
}

/// The verdict on a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Return,
    Accept,
    Masquerade { random_fully: bool },
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Only packets with kube-proxy's mark.
    pub(super) marked: bool,
    pub(super) source: Side,
    pub(super) destination: Side,
    pub(super) verdict: Verdict,
}

/// The wanted chains of one family. `None` removes the chain; a chain that is not listed is left
/// alone.
pub(super) type Chains = Vec<(Purpose, Option<Vec<Rule>>)>;

/// All chains removed.
pub(super) fn nothing() -> Chains {
    Purpose::ALL.map(|purpose| (purpose, None)).into()
}

/// The rules of a chain.
pub(super) fn rules(purpose: Purpose, engine: Engine, scope: &Scope, random_fully: bool) -> Vec<Rule> {
    match purpose {
        Purpose::Masquerade => masquerade(engine, scope, random_fully),
        Purpose::Forward => forward(scope),
    }
}

/// Marked packets are left to kube-proxy. Between pods, and from outside to our own pods, addresses
/// stay; what pods send elsewhere is masqueraded, and with iptables also what others send through
/// us to pods of other nodes. With nftables flannel returns before that last rule, which makes it
/// dead; we keep its text.
fn masquerade(engine: Engine, scope: &Scope, random_fully: bool) -> Vec<Rule> {
    let Scope { network, subnet } = *scope;
    let rule = |source, destination, verdict| Rule { marked: false, source, destination, verdict };
    let masquerade = Verdict::Masquerade { random_fully };
    let from_outside = match engine {
        Engine::Iptables => rule(Side::NotIn(network), Side::In(subnet), Verdict::Return),
        Engine::Nftables => rule(Side::NotIn(subnet), Side::In(network), Verdict::Return),
    };
    vec![
        Rule { marked: true, ..rule(Side::Any, Side::Any, Verdict::Return) },
        rule(Side::In(subnet), Side::In(network), Verdict::Return),
        rule(Side::In(network), Side::In(subnet), Verdict::Return),
        from_outside,
        rule(Side::In(network), Side::NotIn(multicast(scope.family())), masquerade),
        rule(Side::NotIn(network), Side::In(network), masquerade),
    ]
}

fn forward(scope: &Scope) -> Vec<Rule> {
    let accept = |source, destination| Rule { marked: false, source, destination, verdict: Verdict::Accept };
    vec![accept(Side::In(scope.network), Side::Any), accept(Side::Any, Side::In(scope.network))]
}

fn multicast(family: Family) -> IpNet {
    match family {
        Family::V4 => MULTICAST_V4.into(),
        Family::V6 => MULTICAST_V6.into(),
    }
}
