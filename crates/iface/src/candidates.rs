//! The interfaces to choose from, for the errors.

use std::fmt;

use flannel_netlink::{Address, Link};

use super::{Host, link_scope::is_link_scope};

/// The interfaces of the host, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates(Vec<String>);

impl Candidates {
    pub(super) fn of(host: &Host) -> Self {
        let is_listed = |link: &&Link| {
            !link.loopback && host.role(link).is_none() && !is_bare_veth(link, &host.addresses)
        };
        let external = host.links.iter().filter(is_listed);
        Self(
            external
                .map(|link| describe(link, &host.addresses))
                .collect(),
        )
    }
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("\n  (this host has no interface but the loopback)");
        }
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Veths of pods that no bridge has are many, and have no address that other hosts could use.
fn is_bare_veth(link: &Link, addresses: &[Address]) -> bool {
    let serves = |own: &Address| own.key.ifindex == link.index && !is_link_scope(own.key.addr);
    link.kind.as_deref() == Some("veth") && !addresses.iter().any(serves)
}

fn describe(link: &Link, addresses: &[Address]) -> String {
    let state = match (link.up, link.running) {
        (false, _) => "down",
        (true, false) => "up, no carrier",
        (true, true) => "up",
    };
    let own: Vec<_> = addresses
        .iter()
        .filter(|a| a.key.ifindex == link.index)
        .map(|a| a.key.addr.to_string())
        .collect();
    let own = if own.is_empty() {
        "no address".to_owned()
    } else {
        own.join(", ")
    };
    format!("{} ({state}): {own}", link.name)
}

impl Host {
    pub(super) fn candidates(&self) -> Candidates {
        Candidates::of(self)
    }
}
