//! Flannel's rules, before anybody writes them down. Pure.
//!
//! Two of them differ between the engines, because they do in flannel: see [`masquerade`].

use std::net::{Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::wanted::{Engine, FamilyScope};

/// The mark of packets that kube-proxy masquerades itself.
pub(super) const KUBE_PROXY_MARK: u32 = 0x4000;

const MULTICAST_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);
const MULTICAST_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// The purpose of one of our chains.
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
pub(super) enum AddressMatch {
    Any,
    In(IpNet),
    NotIn(IpNet),
}

/// The verdict on a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleVerdict {
    Return,
    Accept,
    Masquerade { random_fully: bool },
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrafficRule {
    /// Only packets with kube-proxy's mark.
    pub(super) marked: bool,
    pub(super) source: AddressMatch,
    pub(super) destination: AddressMatch,
    pub(super) verdict: RuleVerdict,
}

/// The wanted chains of one family. `None` removes the chain; a chain that is not listed is left
/// alone.
pub(super) type Chains = Vec<(Purpose, Option<Vec<TrafficRule>>)>;

/// The parts of the masquerade rules that options and tools decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Masquerade {
    /// Source ports are chosen at random.
    pub(super) random_fully: bool,
    /// Destinations to which pods keep their address.
    pub(super) exempt: Vec<IpNet>,
}

/// All chains removed.
pub(super) fn nothing() -> Chains {
    Purpose::ALL.map(|purpose| (purpose, None)).into()
}

/// The rules of a chain.
pub(super) fn rules(
    purpose: Purpose,
    engine: Engine,
    scope: &FamilyScope,
    options: &Masquerade,
) -> Vec<TrafficRule> {
    match purpose {
        Purpose::Masquerade => masquerade(engine, scope, options),
        Purpose::Forward => forward(scope),
    }
}

/// Marked packets are left to kube-proxy. Between pods, and from outside to our own pods, addresses
/// stay; what pods send elsewhere is masqueraded, and with iptables also what others send through
/// us to pods of other nodes. With nftables flannel returns before that last rule, which makes it
/// dead; we keep its text.
///
/// The rules of exempt destinations are not flannel's. They name the pod network, so they are
/// recognised as ours, and removed, when they are no longer asked for.
fn masquerade(engine: Engine, scope: &FamilyScope, options: &Masquerade) -> Vec<TrafficRule> {
    let FamilyScope { network, subnet } = *scope;
    let rule = |source, destination, verdict| TrafficRule {
        marked: false,
        source,
        destination,
        verdict,
    };
    let masquerade = RuleVerdict::Masquerade {
        random_fully: options.random_fully,
    };
    let from_outside = match engine {
        Engine::Iptables => rule(
            AddressMatch::NotIn(network),
            AddressMatch::In(subnet),
            RuleVerdict::Return,
        ),
        Engine::Nftables => rule(
            AddressMatch::NotIn(subnet),
            AddressMatch::In(network),
            RuleVerdict::Return,
        ),
    };
    let mut rules = vec![
        TrafficRule {
            marked: true,
            ..rule(AddressMatch::Any, AddressMatch::Any, RuleVerdict::Return)
        },
        rule(
            AddressMatch::In(subnet),
            AddressMatch::In(network),
            RuleVerdict::Return,
        ),
        rule(
            AddressMatch::In(network),
            AddressMatch::In(subnet),
            RuleVerdict::Return,
        ),
        from_outside,
    ];
    let exempt = |prefix: &IpNet| {
        rule(
            AddressMatch::In(network),
            AddressMatch::In(*prefix),
            RuleVerdict::Return,
        )
    };
    rules.extend(options.exempt.iter().map(exempt));
    rules.extend([
        rule(
            AddressMatch::In(network),
            AddressMatch::NotIn(multicast(scope.family())),
            masquerade,
        ),
        rule(
            AddressMatch::NotIn(network),
            AddressMatch::In(network),
            masquerade,
        ),
    ]);
    rules
}

fn forward(scope: &FamilyScope) -> Vec<TrafficRule> {
    let accept = |source, destination| TrafficRule {
        marked: false,
        source,
        destination,
        verdict: RuleVerdict::Accept,
    };
    vec![
        accept(AddressMatch::In(scope.network), AddressMatch::Any),
        accept(AddressMatch::Any, AddressMatch::In(scope.network)),
    ]
}

fn multicast(family: Family) -> IpNet {
    match family {
        Family::V4 => MULTICAST_V4.into(),
        Family::V6 => MULTICAST_V6.into(),
    }
}
