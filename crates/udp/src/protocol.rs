//! Requests and replies on the control socket: one line of JSON each. Fields are added and not
//! changed, because agent and process may be of different versions.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The state.
    State,
    /// The peers.
    Peers,
    /// Change the peers by a difference.
    Change {
        /// Our own subnet.
        own: Option<Ipv4Net>,
        /// New and changed peers: each subnet, and the node that has it.
        upserts: BTreeMap<Ipv4Net, Ipv4Addr>,
        /// Subnets that no node has any more.
        removals: Vec<Ipv4Net>,
    },
    /// Hand over device and socket to the asking process, and end.
    TakeOver,
    /// End, and remove the device.
    Stop,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// The state.
    State(State),
    /// The peers.
    Peers(Peers),
    /// All that a successor needs.
    Handover {
        /// The state.
        state: State,
        /// The peers.
        peers: Peers,
    },
    /// It is done.
    Done,
    /// It is not done.
    Refused {
        /// The reason, in words.
        reason: String,
    },
}

/// The state of a tunnel process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// [`build`](fn@crate::build) of its program.
    pub build: String,
    /// Its process id.
    pub pid: u32,
    /// The TUN device.
    pub device: String,
    /// Its interface index.
    #[serde(default)]
    pub index: u32,
    /// The pod network.
    pub network: Ipv4Net,
    /// The address of its UDP socket.
    pub source: Ipv4Addr,
    /// The UDP port, its own and that of all peers.
    pub port: u16,
    /// Packets.
    #[serde(default)]
    pub counts: Counts,
}

/// The subnets of a node and its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// Our own subnet; `None` until it is known.
    pub own: Option<Ipv4Net>,
    /// Each peer's subnet, and the node that has it.
    pub peers: BTreeMap<Ipv4Net, Ipv4Addr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_these_texts() {
        let upserts = [(
            "10.5.2.0/24".parse().expect("a subnet"),
            Ipv4Addr::new(192, 0, 2, 2),
        )]
        .into();
        let change = Request::Change {
            own: None,
            upserts,
            removals: vec!["10.5.3.0/24".parse().expect("a subnet")],
        };
        for (request, text) in [
            (Request::State, r#"{"request":"state"}"#),
            (Request::TakeOver, r#"{"request":"take_over"}"#),
            (
                change,
                r#"{"request":"change","own":null,"upserts":{"10.5.2.0/24":"192.0.2.2"},"removals":["10.5.3.0/24"]}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&request).expect("a text"), text);
            assert_eq!(
                serde_json::from_str::<Request>(text).expect("a request"),
                request
            );
        }
    }

    #[test]
    fn a_state_of_another_version_is_read() {
        let text = r#"{"reply":"state","build":"9.9","pid":7,"device":"flannel0","network":"10.5.0.0/16",
            "source":"192.0.2.1","port":8285,"counts":{"sent_packets":3,"another":1},"another":2}"#;
        let Ok(Reply::State(state)) = serde_json::from_str(text) else {
            panic!("no state")
        };
        assert_eq!((state.counts.sent_packets, state.counts.no_route), (3, 0));
    }
}
