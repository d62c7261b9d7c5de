//! The wanted traffic rules of the node, as data.

use std::time::Duration;

use flannel_claims::networks_of_others;
use flannel_host::{family::Family, networks::overlap};
use flannel_store::{LeaseKey, config::NetworkConfig};
use ipnet::IpNet;

/// The tools that filter and translate packets on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `iptables` and `ip6tables`, of either variant.
    Iptables,
    /// `nft`, with separate tables for our rules (`EnableNFTables`).
    Nftables,
}

/// The address families whose packets are masqueraded (`--ip-masq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasqueradeFamilies {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl MasqueradeFamilies {
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };
    /// None.
    pub const NONE: Self = Self {
        v4: false,
        v6: false,
    };

    /// Returns true if packets of this family are masqueraded.
    pub const fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Returns true if packets of any family are masqueraded.
    pub const fn any(self) -> bool {
        self.v4 || self.v6
    }
}

/// The operator's options for the traffic rules of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficOptions {
    /// The families for which packets of pods out of the pod network are masqueraded
    /// (`--ip-masq`).
    pub masquerade: MasqueradeFamilies,
    /// Destinations to which pods keep their address (`--ip-masq-exclude`): prefixes without host
    /// bits, each once, none of length 0.
    pub exempt: Vec<IpNet>,
    /// Choose source ports at random where the tools can (off by `--ip-masq-fully-random-disable`).
    pub random_fully: bool,
    /// Accept forwarded packets from and to pods (`--iptables-forward-rules`).
    pub forward: bool,
    /// Keep a blackhole route for our own subnet (`--ip-blackhole-route`).
    pub blackhole: bool,
    /// Between two looks at rules that no event announces (`--iptables-resync`).
    pub resync: Duration,
}

impl Default for TrafficOptions {
    /// Flannel's.
    fn default() -> Self {
        let resync = Duration::from_secs(5);
        Self {
            masquerade: MasqueradeFamilies::NONE,
            exempt: Vec::new(),
            random_fully: true,
            forward: true,
            blackhole: false,
            resync,
        }
    }
}

impl TrafficOptions {
    /// Returns true if any rule is asked for.
    pub const fn any_rule(&self) -> bool {
        self.masquerade.any() || self.forward
    }

    /// Returns true if any rule is asked for in this family.
    pub const fn any_rule_of(&self, family: Family) -> bool {
        self.masquerade.has(family) || self.forward
    }

    /// The exempt destinations of a family.
    pub(super) fn exempt_of(&self, family: Family) -> impl Iterator<Item = IpNet> {
        self.exempt
            .iter()
            .copied()
            .filter(move |prefix| Family::of(prefix.addr()) == family)
    }
}

/// An address family of the cluster, as its rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyScope {
    /// The pod network.
    pub network: IpNet,
    /// Our subnet in it.
    pub subnet: IpNet,
}

impl FamilyScope {
    /// Its address family.
    pub const fn family(&self) -> Family {
        match self.network {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }
}

/// The desired state. A family without a scope is not enabled, and must not have any of our rules
/// or routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedTraffic {
    /// The enabled families, at most one scope each.
    pub scopes: Vec<FamilyScope>,
    /// Pod networks of an earlier life, whose rules are ours to remove.
    pub former: Vec<IpNet>,
}

impl WantedTraffic {
    /// Returns the state that a configuration and our lease under it ask for.
    pub fn of(config: &NetworkConfig, own: LeaseKey, former: &[IpNet]) -> Self {
        let scope = |network: IpNet| {
            let subnet = own.subnet(Family::of(network.addr()))?;
            Some(FamilyScope { network, subnet })
        };
        Self {
            scopes: config.networks().filter_map(scope).collect(),
            former: former.to_vec(),
        }
    }

    /// The scope of a family, when it is enabled.
    pub(super) fn scope(&self, family: Family) -> Option<&FamilyScope> {
        self.scopes.iter().find(|scope| scope.family() == family)
    }

    /// The same without former networks that another agent of this host has now.
    #[must_use]
    pub(super) fn without_others(mut self) -> Self {
        if !self.former.is_empty() {
            let own: Vec<IpNet> = self.scopes.iter().map(|scope| scope.network).collect();
            // Without the list of claims it is not known whose they are.
            let others = networks_of_others(&own);
            self.former.retain(|network| {
                others
                    .as_ref()
                    .is_ok_and(|others| !others.iter().any(|other| overlap(*other, *network)))
            });
        }
        self
    }

    /// The networks whose rules are ours.
    pub(super) fn networks(&self) -> Vec<IpNet> {
        self.scopes
            .iter()
            .map(|scope| scope.network)
            .chain(self.former.iter().copied())
            .collect()
    }

    /// Returns true if a route to this destination concerns our own subnet.
    pub(super) fn concerns(&self, destination: IpNet) -> bool {
        self.scopes.iter().any(|scope| scope.subnet == destination)
    }
}
