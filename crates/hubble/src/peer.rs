//! The messages of package `peer`
//! ([peer.proto](https://github.com/cilium/cilium/blob/v1.19.4/api/v1/peer/peer.proto), Cilium
//! 1.19.4), and the answer to `Notify`, by which `hubble-relay` finds the observers of all nodes.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    pin::Pin,
    time::Duration,
};

use futures::{Stream, stream};
use prost::{Enumeration, Message};
use tokio::time::sleep;
use tonic::Status;

/// Between two looks at the nodes.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// The end of each server name: the cluster is that of a Cilium without a name
/// (`TLSServerName` in [pkg/hubble/peer/handler.go, Cilium
/// 1.19.4](https://github.com/cilium/cilium/blob/v1.19.4/pkg/hubble/peer/handler.go)).
const DOMAIN: &str = "default.hubble-grpc.cilium.io";

/// The request of `Notify`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct NotifyRequest {}

/// A node that joined, has another address, or left.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ChangeNotification {
    /// The name of the node.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The address and the port of its observer.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The change.
    #[prost(enumeration = "ChangeNotificationType", tag = "3")]
    pub r#type: i32,
    /// TLS at that address; absent where it is not used.
    #[prost(message, optional, tag = "4")]
    pub tls: Option<PeerTls>,
}

/// The change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ChangeNotificationType {
    /// None of these.
    Unknown = 0,
    /// It joined.
    PeerAdded = 1,
    /// It left.
    PeerDeleted = 2,
    /// It has another address.
    PeerUpdated = 3,
}

/// TLS at a node's observer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PeerTls {
    /// The name in the certificate.
    #[prost(string, tag = "1")]
    pub server_name: String,
}

/// The addresses of all observers by the names of their nodes.
pub type PeerAddresses = BTreeMap<String, SocketAddr>;

/// The notifications for a client.
pub(crate) type Notifications =
    Pin<Box<dyn Stream<Item = Result<ChangeNotification, Status>> + Send>>;

/// All nodes, and then what changes. Ends once `nodes` has none any more.
pub(crate) fn notifications(
    nodes: impl Fn() -> Option<PeerAddresses> + Send + 'static,
    period: Duration,
) -> Notifications {
    let watch = Watch {
        nodes,
        period,
        known: None,
        ready: VecDeque::new(),
    };
    Box::pin(stream::unfold(watch, |mut watch| async move {
        Some((Ok(watch.next().await?), watch))
    }))
}

struct Watch<F> {
    nodes: F,
    period: Duration,
    /// The nodes that the client knows; `None` before the first look.
    known: Option<PeerAddresses>,
    ready: VecDeque<ChangeNotification>,
}

impl<F: Fn() -> Option<PeerAddresses>> Watch<F> {
    async fn next(&mut self) -> Option<ChangeNotification> {
        loop {
            if let Some(notification) = self.ready.pop_front() {
                return Some(notification);
            }
            let before = self.known.take();
            if before.is_some() {
                sleep(self.period).await;
            }
            let now = (self.nodes)()?;
            self.ready
                .extend(changes(&before.unwrap_or_default(), &now));
            self.known = Some(now);
        }
    }
}

/// The difference of two looks: nodes that left come first, because one of another name may have
/// their address.
fn changes(before: &PeerAddresses, now: &PeerAddresses) -> Vec<ChangeNotification> {
    let gone = before.iter().filter(|(name, _)| !now.contains_key(*name));
    let gone = gone
        .map(|(name, address)| notification(name, *address, ChangeNotificationType::PeerDeleted));
    let present = now.iter().filter_map(|(name, address)| {
        let kind = match before.get(name) {
            None => ChangeNotificationType::PeerAdded,
            Some(known) if known == address => return None,
            Some(_) => ChangeNotificationType::PeerUpdated,
        };
        Some(notification(name, *address, kind))
    });
    gone.chain(present).collect()
}

fn notification(
    name: &str,
    address: SocketAddr,
    kind: ChangeNotificationType,
) -> ChangeNotification {
    ChangeNotification {
        name: name.to_owned(),
        address: address.to_string(),
        r#type: kind.into(),
        tls: Some(PeerTls {
            server_name: server_name(name),
        }),
    }
}

/// The name in the certificate of a node. A dot would be another level, which a wildcard does not
/// match.
fn server_name(node: &str) -> String {
    format!("{}.{DOMAIN}", node.replace('.', "-"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::StreamExt as _;

    use super::*;

    fn nodes(pairs: &[(&str, &str)]) -> PeerAddresses {
        pairs
            .iter()
            .map(|(name, at)| ((*name).to_owned(), at.parse().expect("an address")))
            .collect()
    }

    fn shown(notifications: &[ChangeNotification]) -> Vec<String> {
        let text =
            |one: &ChangeNotification| format!("{:?} {} {}", one.r#type(), one.name, one.address);
        notifications.iter().map(text).collect()
    }

    /// Put together by hand from the numbers in peer.proto.
    const ADDED: &[u8] = b"\x0a\x03n.1\x12\x0e192.0.2.1:4244\x18\x01\
        \x22\x23\x0a\x21n-1.default.hubble-grpc.cilium.io";

    #[test]
    fn a_notification_has_the_published_bytes() {
        let added = notification(
            "n.1",
            "192.0.2.1:4244".parse().expect("an address"),
            ChangeNotificationType::PeerAdded,
        );
        assert_eq!(added.encode_to_vec(), ADDED);
        assert_eq!(ChangeNotification::decode(ADDED), Ok(added));
    }

    #[test]
    fn only_changes_are_sent_and_departures_first() {
        let before = nodes(&[
            ("a", "192.0.2.1:4244"),
            ("b", "192.0.2.2:4244"),
            ("c", "192.0.2.3:4244"),
        ]);
        let now = nodes(&[
            ("a", "192.0.2.1:4244"),
            ("b", "[fd00::2]:4244"),
            ("x", "192.0.2.3:4244"),
        ]);
        let expected = [
            "PeerDeleted c 192.0.2.3:4244",
            "PeerUpdated b [fd00::2]:4244",
            "PeerAdded x 192.0.2.3:4244",
        ];
        assert_eq!(shown(&changes(&before, &now)), expected);
        assert_eq!(changes(&now, &now), []);
    }

    #[tokio::test]
    async fn a_client_gets_all_nodes_at_once_and_then_each_change() {
        let present = Arc::new(Mutex::new(Some(nodes(&[
            ("a", "192.0.2.1:1"),
            ("b", "192.0.2.2:1"),
        ]))));
        let source = present.clone();
        let mut stream = notifications(
            move || source.lock().expect("nodes").clone(),
            Duration::from_millis(1),
        );
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(stream.next().await.expect("a node").expect("no error"));
        }
        *present.lock().expect("nodes") = Some(nodes(&[("b", "192.0.2.2:1")]));
        seen.push(stream.next().await.expect("a departure").expect("no error"));
        assert_eq!(
            shown(&seen),
            [
                "PeerAdded a 192.0.2.1:1",
                "PeerAdded b 192.0.2.2:1",
                "PeerDeleted a 192.0.2.1:1"
            ]
        );
        *present.lock().expect("nodes") = None;
        assert!(stream.next().await.is_none(), "it ends");
    }
}
