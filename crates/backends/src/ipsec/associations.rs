//! The tunnels to the peers, by what charon has. Pure.
//!
//! Between nodes with several subnets one IKE_SA, of any of their connections, may carry the
//! children of all. So those of a peer are found by its connection's name and by its address.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use flannel_status::{IpsecPeerState, IpsecPeerStatus};

use super::{
    names::{self, IpsecEnd},
    vici::{ChildSa, IkeSa},
};

/// The associations that charon has, by the names of connections and by the peers' addresses: a
/// look at each peer must not be one at all of them.
pub(super) struct Associations<'a> {
    by_connection: HashMap<&'a str, Vec<&'a IkeSa>>,
    by_address: HashMap<&'a str, Vec<&'a IkeSa>>,
}

impl<'a> Associations<'a> {
    pub(super) fn of(all: &'a [IkeSa]) -> Self {
        Self {
            by_connection: by(all, |ike| &ike.connection),
            by_address: by(all, |ike| &ike.remote_host),
        }
    }

    fn of_peer(&self, connection: &str, address: &str) -> Vec<&'a IkeSa> {
        let by_name = self.by_connection.get(connection).into_iter().flatten();
        let elsewhere = by_name.filter(|ike| ike.remote_host != address);
        elsewhere
            .chain(self.by_address.get(address).into_iter().flatten())
            .copied()
            .collect()
    }

    /// The tunnel to a peer.
    pub(super) fn status(&self, own: IpsecEnd, peer: IpsecEnd, now: SystemTime) -> IpsecPeerStatus {
        let child = names::child(own, peer);
        let all = self.of_peer(&names::connection(own, peer), &peer.address.to_string());
        let children: Vec<&ChildSa> = all
            .iter()
            .flat_map(|ike| &ike.children)
            .filter(|found| found.name == child)
            .collect();
        let is = |state: &str, states: &[&str]| states.contains(&state);
        let state = if children
            .iter()
            .any(|child| is(&child.state, &["INSTALLED", "REKEYING", "REKEYED"]))
        {
            IpsecPeerState::Installed
        } else if all
            .iter()
            .any(|ike| is(&ike.state, &["ESTABLISHED", "REKEYING", "REKEYED"]))
        {
            IpsecPeerState::Established
        } else if all
            .iter()
            .any(|ike| is(&ike.state, &["CREATED", "CONNECTING"]))
        {
            IpsecPeerState::Connecting
        } else {
            IpsecPeerState::Missing
        };
        let oldest = all.iter().filter_map(|ike| ike.established).max();
        let since = oldest.and_then(|seconds| now.checked_sub(Duration::from_secs(seconds)));
        IpsecPeerStatus {
            state,
            since: since
                .and_then(|at| Some(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())),
            received: children.iter().map(|child| child.received).sum(),
            sent: children.iter().map(|child| child.sent).sum(),
            error: None,
        }
    }
}

fn by<'a>(
    all: &'a [IkeSa],
    name: impl Fn(&'a IkeSa) -> &'a String,
) -> HashMap<&'a str, Vec<&'a IkeSa>> {
    let mut found: HashMap<&str, Vec<&IkeSa>> = HashMap::new();
    for ike in all {
        found.entry(name(ike)).or_default().push(ike);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(subnet: &str, address: &str) -> IpsecEnd {
        IpsecEnd {
            subnet: subnet.parse().expect("a subnet"),
            address: address.parse().expect("an address"),
        }
    }

    fn ike(state: &str, children: &[(&str, &str)]) -> IkeSa {
        let child = |(name, state): &(&str, &str)| ChildSa {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            received: 3,
            sent: 4,
        };
        IkeSa {
            // By the address: the connection of another subnet of the same node.
            connection: "another".to_owned(),
            state: state.to_owned(),
            remote_host: "192.0.2.9".to_owned(),
            established: (state == "ESTABLISHED").then_some(7),
            children: children.iter().map(child).collect(),
        }
    }

    #[test]
    fn a_tunnel_is_there_when_its_own_child_is() {
        let (own, peer) = (
            end("10.5.1.0/24", "192.0.2.1"),
            end("10.5.9.0/24", "192.0.2.9"),
        );
        let (child, other) = ("10.5.1.0/24-10.5.9.0/24", "10.5.1.0/24-10.5.8.0/24");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        for (ike_sa, state, since, received) in [
            (
                ike("ESTABLISHED", &[(child, "INSTALLED")]),
                IpsecPeerState::Installed,
                Some(993),
                3,
            ),
            (
                ike("ESTABLISHED", &[(child, "REKEYED"), (child, "INSTALLED")]),
                IpsecPeerState::Installed,
                Some(993),
                6,
            ),
            (
                ike("ESTABLISHED", &[(other, "INSTALLED")]),
                IpsecPeerState::Established,
                Some(993),
                0,
            ),
            (
                ike("ESTABLISHED", &[(child, "CREATED")]),
                IpsecPeerState::Established,
                Some(993),
                3,
            ),
            (ike("CONNECTING", &[]), IpsecPeerState::Connecting, None, 0),
            (ike("DELETING", &[]), IpsecPeerState::Missing, None, 0),
        ] {
            let named = ike_sa.state.clone();
            let status = Associations::of(&[ike_sa]).status(own, peer, now);
            assert_eq!(
                (status.state, status.since, status.received),
                (state, since, received),
                "{named}"
            );
        }
        assert_eq!(
            Associations::of(&[]).status(own, peer, now).state,
            IpsecPeerState::Missing
        );
    }

    #[test]
    fn associations_are_found_by_name_and_by_address_and_counted_once() {
        let (own, peer) = (
            end("10.5.1.0/24", "192.0.2.1"),
            end("10.5.9.0/24", "192.0.2.9"),
        );
        let name = names::connection(own, peer);
        for (connection, address, received) in [
            (name.as_str(), "192.0.2.9", 3),
            (name.as_str(), "198.51.100.9", 3),
            ("another", "192.0.2.9", 3),
            ("another", "198.51.100.9", 0),
        ] {
            let found = ike("ESTABLISHED", &[("10.5.1.0/24-10.5.9.0/24", "INSTALLED")]);
            let found = [IkeSa {
                connection: connection.to_owned(),
                remote_host: address.to_owned(),
                ..found
            }];
            let status = Associations::of(&found).status(own, peer, SystemTime::UNIX_EPOCH);
            assert_eq!(status.received, received, "{connection}, {address}");
        }
    }
}
