//! Errors of choosing the external interface, each with the interfaces there are to choose from.

use std::net::IpAddr;

use flannel_host::family::Family;
use flannel_netlink::NetlinkError;
use thiserror::Error;

use super::{Candidates, PodDevice};

/// No external interface.
#[derive(Debug, Error)]
pub enum IfaceError {
    /// None of the values of `--iface`, `--iface-regex` and `--iface-can-reach` led to an
    /// interface.
    #[error(
        "no interface fits what was asked for:{}\npass --iface with the name or a local address of \
         one of:{candidates}",
        lines(tried)
    )]
    NoneFits {
        /// Each value with the reason it was passed over, in the order given.
        tried: Vec<(String, Rejection)>,
        /// One of them can come to fit when the host changes.
        can_come: bool,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// Only `--public-ip` and `--public-ipv6` pick the interface, and lead to none.
    #[error(
        "{option} {public} without --iface has to be an address of this host: {why}; pass --iface \
         as well, with \
         the name or a local address of one of:{candidates}",
        option = if public.is_ipv4() { "--public-ip" } else { "--public-ipv6" }
    )]
    PublicNotLocal {
        /// The value given.
        public: IpAddr,
        /// The reason it does not pick an interface.
        why: Rejection,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// Without options the default route decides, and the host has none.
    #[error(
        "there is no {family} default route; pass --iface with the name or a local address of one \
         of:{candidates}"
    )]
    NoDefaultRoute {
        /// The family asked for.
        family: Family,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// Each default route leads into pods or a tunnel.
    #[error(
        "the {family} default route leaves by {name}, which is {role} and not an external \
         interface; pass --iface \
         with the name or a local address of one of:{candidates}"
    )]
    DefaultRouteOfPods {
        /// The family asked for.
        family: Family,
        /// The device.
        name: String,
        /// The role of the device.
        role: PodDevice,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// One interface has to serve both families, and the default routes leave by two.
    #[error(
        "the IPv4 default route leaves by {v4} and the IPv6 default route by {v6}; pass --iface \
         with the name of the \
         one that serves both:{candidates}"
    )]
    DefaultRoutesDiffer {
        /// The interface of the IPv4 default route.
        v4: String,
        /// The interface of the IPv6 default route.
        v6: String,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// The interface was found but cannot be used.
    #[error(
        "interface {name} cannot be used: {why}; pass --iface with the name or a local address of \
         one of:{candidates}"
    )]
    Unusable {
        /// The interface.
        name: String,
        /// The reason it cannot be used.
        why: Rejection,
        /// The interfaces to choose from.
        candidates: Candidates,
    },
    /// The kernel's state could not be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl IfaceError {
    /// Returns true if there can be an interface once the host has changed, as when DHCP is done.
    pub const fn can_pass(&self) -> bool {
        match self {
            Self::NoneFits { can_come, .. } => *can_come,
            Self::PublicNotLocal { why, .. } => !why.is_of_the_value(),
            Self::NoDefaultRoute { .. }
            | Self::DefaultRouteOfPods { .. }
            | Self::DefaultRoutesDiffer { .. }
            | Self::Unusable { .. }
            | Self::Netlink(_) => true,
        }
    }

    /// Returns the whole message on one line, for the status and the log.
    pub fn on_one_line(&self) -> String {
        self.to_string()
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Reasons to pass over one interface, or one value that names it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Rejection {
    /// No link has that name.
    #[error("no such interface")]
    NoSuchName,
    /// The device carries pods or tunnels.
    #[error("{name} is {role}, and not an external interface")]
    OfPods {
        /// The device.
        name: String,
        /// The role of the device.
        role: PodDevice,
    },
    /// The address is of link scope.
    #[error("an IPv6 address of link scope, by which other nodes cannot send")]
    LinkScope,
    /// No link has that address.
    #[error("no interface has this address")]
    NoSuchAddress,
    /// The other family led to another interface, and one has to serve both.
    #[error("it is not an address of {0}, which has the public IPv4 address")]
    NotOn(String),
    /// No usable address and no name matches the pattern.
    #[error("it matches no usable address and no interface name")]
    NoMatch,
    /// The kernel knows no way to the address.
    #[error("no route to this address")]
    NoRoute,
    /// The value is an address of the other family.
    #[error("not an {0} address")]
    OtherFamily(Family),
    /// No address that peers could reach.
    #[error("no usable {0} address")]
    NoAddress(Family),
    /// The address in use went away a moment ago.
    #[error("its address {0} is gone; {1} takes its place unless it comes back")]
    AddressAway(IpAddr, IpAddr),
    /// The interface is administratively down.
    #[error("it is down")]
    Down,
    /// The interface is up without a carrier.
    #[error("it has no carrier")]
    NoCarrier,
    /// The kernel reports MTU 0.
    #[error("its MTU is 0")]
    NoMtu,
}

impl Rejection {
    /// Returns true for a reason that lies in the value itself, on any host.
    pub(super) const fn is_of_the_value(&self) -> bool {
        matches!(self, Self::OtherFamily(_) | Self::LinkScope)
    }
}

fn lines(tried: &[(String, Rejection)]) -> String {
    let lines: Vec<_> = tried
        .iter()
        .map(|(value, why)| format!("\n  {value}: {why}"))
        .collect();
    lines.concat()
}
