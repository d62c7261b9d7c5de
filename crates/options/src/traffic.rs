//! Rules and routes in addition to the routes to peers.

use std::time::Duration;

use clap::{ArgAction, Args};
use flannel_traffic::{MasqueradeFamilies, TrafficOptions};
use ipnet::IpNet;

use super::{check::Checks, warning::OptionWarning};
use crate::values::{families, prefixes};

/// The form of a value of `--ip-masq-exclude`.
const EXEMPT: &str = "an IP address, or a prefix such as 10.0.0.0/8";

/// Flags of the rules and routes in addition to the routes to peers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Traffic rules and routes")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct TrafficFlags {
    /// Masquerade what pods send out of the pod network: `true` for both families, `ipv4` or `ipv6`
    /// for one, `false`
    #[arg(
        long,
        value_name = "BOOL|FAMILY",
        default_value = "false",
        value_parser = families::parser(),
        hide_possible_values = true,
    )]
    ip_masq: MasqueradeFamilies,
    /// Addresses or prefixes outside the pod network to which pods keep their own address,
    /// between commas; may be repeated
    #[arg(long, value_name = "IP|CIDR")]
    ip_masq_exclude: Vec<String>,
    /// Masquerade without --random-fully, which is used where the tool knows it: pods keep their
    /// source ports where they can
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    ip_masq_fully_random_disable: bool,
    /// Accept forwarded packets from and to pods, by nftables too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    iptables_forward_rules: bool,
    /// Seconds between two checks of iptables rules and the blackhole route, 1 at least: foreign
    /// changes are repaired by then
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        allow_negative_numbers = true
    )]
    iptables_resync: i64,
    /// Keep a blackhole route for our own subnet, for what no pod has taken
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set)]
    ip_blackhole_route: bool,
    /// Keep an unreachable route for the whole pod network, with the largest metric: packets that
    /// no peer's route matches end here with ICMP unreachable, and do not leave unencapsulated by
    /// the default route. Not made where another program has a route to the same prefix, or where
    /// the address of this node or of the store is in the pod network
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) unreachable_route: bool,
    /// Switch forwarding on where it is off, for the address families of the pod network
    /// (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`), and keep it on; `false` only
    /// reports it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(super) set_forwarding: bool,
    /// IPv4 peers from which on routes are made by nexthop objects; below half of it they are plain
    /// again
    #[arg(
        long,
        value_name = "PEERS",
        default_value_t = 2000,
        hide = true,
        allow_negative_numbers = true
    )]
    nexthops_from: i64,
}

impl TrafficFlags {
    /// A period of no time would keep a processor busy.
    pub(super) fn check(&self, checks: &mut Checks) -> TrafficOptions {
        let seconds = u32::try_from(self.iptables_resync)
            .ok()
            .filter(|seconds| *seconds > 0);
        if seconds.is_none() {
            checks.refuse(
                "iptables-resync",
                self.iptables_resync,
                "1 to 4294967295 seconds",
            );
        }
        TrafficOptions {
            masquerade: self.ip_masq,
            exempt: self.exempt(checks),
            random_fully: !self.ip_masq_fully_random_disable,
            forward: self.iptables_forward_rules,
            blackhole: self.ip_blackhole_route,
            resync: Duration::from_secs(seconds.unwrap_or(1).into()),
        }
    }

    /// Reads the exempt prefixes. A prefix of length 0 is refused, because it would exempt all
    /// packets.
    fn exempt(&self, checks: &mut Checks) -> Vec<IpNet> {
        const FLAG: &str = "ip-masq-exclude";
        let exempt = prefixes::read(checks, FLAG, &self.ip_masq_exclude, EXEMPT);
        for all in exempt.iter().filter(|prefix| prefix.prefix_len() == 0) {
            checks.refuse(
                FLAG,
                all,
                "a longer prefix; --ip-masq=ipv4 and --ip-masq=ipv6 leave out a whole family",
            );
        }
        exempt
    }

    /// An exemption without the rule that it is from.
    pub(super) fn warning(&self) -> Option<OptionWarning> {
        let idle =
            !self.ip_masq.any() && self.ip_masq_exclude.iter().any(|value| !value.is_empty());
        idle.then_some(OptionWarning::NothingToExempt)
    }

    pub(super) fn check_nexthops_from(&self, checks: &mut Checks) -> usize {
        usize::try_from(self.nexthops_from).unwrap_or_else(|_negative| {
            checks.refuse("nexthops-from", self.nexthops_from, "a number of peers");
            0
        })
    }
}
