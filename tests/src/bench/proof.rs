//! The check that the packets of a measurement took the expected path, by the programs' own
//! counters. Pure except for reading them.

use anyhow::{Context as _, Result};
use flannel_backends::wireguard::DEVICES;
use serde_json::Value;

use super::plan::{Mode, Workload};
use crate::Agent;

/// If packets are replayed, at most one of this number may take the kernel's path: it shows how the
/// kernel treats the flow.
const MOST: u64 = 10;
/// Packets of a flow that may take the kernel's path until the flow is known, in addition to those
/// of [`MOST`].
const UNTIL_KNOWN: u64 = 32;
/// Seconds a new flow may wait until it is confirmed: the agent looks every 100 ms.
const UNTIL_CONFIRMED: f64 = 0.15;

/// The counters of the programs of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// By `to_tunnel`.
    encapsulated: u64,
    /// Known flows' packets from pods.
    sent_on: u64,
    /// Known flows' packets put into pods.
    delivered: u64,
    /// Packets that came to the tunnel device.
    to_tunnel: u64,
    /// Packets that came out of it.
    from_tunnel: u64,
    /// Packets that were sent through the WireGuard device.
    encrypted: u64,
    /// Packets of pods to hosts outside, by the kernel's path.
    outward: u64,
}

impl Counts {
    pub(super) fn read(agent: &Agent) -> Result<Self> {
        Self::of(&agent.cli_json(&["maps", "dump", "stats", "-o", "json"])?)
    }

    /// The counter of a WireGuard device too.
    pub(super) fn of_wireguard(agent: &Agent) -> Result<Self> {
        let path = format!("/sys/class/net/{}/statistics/tx_packets", DEVICES[0]);
        let encrypted = agent
            .node()
            .run(["cat", &path])?
            .stdout
            .trim()
            .parse()
            .context(path)?;
        Ok(Self {
            encrypted,
            ..Self::read(agent)?
        })
    }

    fn of(dump: &Value) -> Result<Self> {
        let mut counts = Self::default();
        for row in dump["stats"].as_array().context("a dump without stats")? {
            let packets = row["packets"].as_u64().with_context(|| row.to_string())?;
            match (row["program"].as_str(), row["reason"].as_str()) {
                (Some("from_pod"), Some("replayed")) => counts.sent_on += packets,
                (Some("from_underlay" | "from_l3_tunnel"), Some("replayed")) => {
                    counts.delivered += packets;
                }
                (Some("to_underlay"), Some("learned" | "not_followed" | "tcp_control")) => {
                    counts.outward += packets;
                }
                (Some("to_l3_tunnel"), Some("self_sent")) => {}
                (Some("to_tunnel"), Some("encapsulated")) => {
                    counts.encapsulated += packets;
                    counts.to_tunnel += packets;
                }
                (Some("to_tunnel" | "to_l3_tunnel"), _) => counts.to_tunnel += packets,
                (Some("from_tunnel" | "from_l3_tunnel"), _) => counts.from_tunnel += packets,
                _ => {}
            }
        }
        Ok(counts)
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            encapsulated: self.encapsulated - earlier.encapsulated,
            sent_on: self.sent_on - earlier.sent_on,
            delivered: self.delivered - earlier.delivered,
            to_tunnel: self.to_tunnel - earlier.to_tunnel,
            from_tunnel: self.from_tunnel - earlier.from_tunnel,
            encrypted: self.encrypted - earlier.encrypted,
            outward: self.outward - earlier.outward,
        }
    }
}

/// Returns the reason why a measurement in `mode` does not count for that mode; `None` if it does.
/// Takes the counters of the client's and the server's node before and after it, and its duration
/// in seconds.
pub(super) fn objection(
    mode: Mode,
    workload: Workload,
    [before, after]: [[Counts; 2]; 2],
    seconds: f64,
) -> Option<String> {
    let [client, server] = [after[0].since(before[0]), after[1].since(before[1])];
    let nothing_replayed = [client, server]
        .iter()
        .all(|node| node.sent_on == 0 && node.delivered == 0);
    let is_encrypted = client.encrypted > 0 && server.encrypted > 0;
    let as_expected = match mode {
        // The counters of another build may have other names.
        Mode::Host | Mode::Stock | Mode::Other => true,
        Mode::WireguardHost | Mode::Wireguard => is_encrypted && nothing_replayed,
        Mode::OutwardKernel | Mode::InwardKernel => nothing_replayed,
        Mode::Fast if !is_replayed(workload) => client.encapsulated > 0,
        Mode::WireguardFast if !is_replayed(workload) => is_encrypted,
        Mode::OutwardFast | Mode::InwardFast if !is_replayed(workload) => true,
        // The node of the pod replays both directions.
        Mode::OutwardFast | Mode::InwardFast => {
            let node = if mode.is_outward() { client } else { server };
            let replayed = node.sent_on.min(node.delivered);
            replayed > 0 && replayed * 10 > node.outward
        }
        Mode::Kernel => client.encapsulated == 0 && nothing_replayed,
        Mode::Encap => client.encapsulated > 0 && nothing_replayed,
        // Opening and closing packets are the kernel's, and so are those before conntrack no longer
        // checks the windows of the connection. How many of ten requests are left depends on the
        // time that the agent takes to end that: few where ten requests take less, or where it
        // waits for a CPU.
        Mode::Fast | Mode::WireguardFast if workload.requests() > 0 => {
            let replays = |replayed: u64, others: u64| replayed * 50 > others;
            (client.encapsulated > 0 || is_encrypted)
                && replays(client.sent_on, client.to_tunnel)
                && replays(server.delivered, server.from_tunnel)
        }
        Mode::WireguardFast if !is_encrypted => false,
        Mode::Fast | Mode::WireguardFast => {
            let known = |replayed: u64, others: u64| {
                #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a part of a count"
                )]
                let unconfirmed = ((replayed + others) as f64 * UNTIL_CONFIRMED / seconds) as u64;
                let late = others.saturating_sub(workload.flows() * UNTIL_KNOWN + unconfirmed);
                replayed > others && replayed > MOST * late
            };
            known(client.sent_on, client.to_tunnel) && known(server.delivered, server.from_tunnel)
        }
    };
    (!as_expected).then(|| {
        format!(
            "the client's node encapsulated {} packets and replayed {} beside {} at the tunnel \
             device; the server's \
             replayed {} beside {}",
            client.encapsulated,
            client.sent_on,
            client.to_tunnel,
            server.delivered,
            server.from_tunnel
        )
    })
}

/// Returns true if flows of the workload are replayed. Two packets teach nothing; and a connection
/// of one request ends before conntrack no longer checks its windows.
fn is_replayed(workload: Workload) -> bool {
    !matches!(workload, Workload::UdpQuery | Workload::TcpCrr)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(encapsulated: u64, sent_on: u64, delivered: u64, from_tunnel: u64) -> [Counts; 2] {
        let client = Counts {
            encapsulated,
            sent_on,
            to_tunnel: encapsulated,
            ..Counts::default()
        };
        [
            client,
            Counts {
                delivered,
                from_tunnel,
                ..Counts::default()
            },
        ]
    }

    fn objects(mode: Mode, workload: Workload, after: [Counts; 2]) -> bool {
        objection(mode, workload, [[Counts::default(); 2], after], 10.0).is_some()
    }

    #[test]
    fn a_fast_row_needs_replayed_packets_on_both_nodes() {
        let rr = |after| objects(Mode::Fast, Workload::TcpRr, after);
        assert!(!rr(counts(5, 1000, 1000, 5)) && !rr(counts(100, 1000, 1000, 100)));
        assert!(
            rr(counts(10, 9, 1000, 5)),
            "fewer than went through the device"
        );
        assert!(
            rr(counts(160, 1000, 1000, 5)),
            "too many went through the device"
        );
        let short = |after| {
            objection(
                Mode::Fast,
                Workload::TcpRr,
                [[Counts::default(); 2], after],
                0.5,
            )
            .is_some()
        };
        assert!(
            !short(counts(400, 1000, 1000, 400)) && short(counts(700, 1000, 1000, 5)),
            "until it was confirmed"
        );
        assert!(
            rr(counts(5, 1000, 0, 1000)),
            "nothing was replayed on the server's node"
        );
    }

    #[test]
    fn a_row_of_short_connections_needs_requests_that_were_replayed() {
        let objects = |workload, after| objects(Mode::Fast, workload, after);
        assert!(!objects(Workload::TcpCrr10, counts(1300, 400, 400, 1300)));
        assert!(
            objects(Workload::TcpCrr10, counts(1300, 400, 10, 1300)),
            "the server's node replays too few"
        );
        assert!(
            objects(Workload::TcpCrr10, counts(1300, 20, 20, 1300)),
            "one request in five connections"
        );
    }

    #[test]
    fn a_row_of_one_request_needs_packets_by_the_program_of_the_tunnel() {
        for workload in [Workload::UdpQuery, Workload::TcpCrr] {
            let objects = |after| objects(Mode::Fast, workload, after);
            assert!(!objects(counts(9, 0, 0, 9)) && objects(counts(0, 0, 0, 9)));
        }
    }

    #[test]
    fn the_other_modes_replay_nothing() {
        let rr = |mode, after| objects(mode, Workload::UdpRr, after);
        assert!(!rr(Mode::Kernel, counts(0, 0, 0, 9)) && rr(Mode::Kernel, counts(1, 0, 0, 9)));
        assert!(!rr(Mode::Encap, counts(9, 0, 0, 9)) && rr(Mode::Encap, counts(0, 0, 0, 9)));
        assert!(rr(Mode::Encap, counts(9, 0, 1, 9)));
    }

    #[test]
    fn an_encrypted_row_needs_packets_through_both_devices() {
        let encrypted = |count| Counts {
            encrypted: count,
            ..Counts::default()
        };
        let objects = |after| objects(Mode::Wireguard, Workload::TcpRr, after);
        assert!(!objects([encrypted(9), encrypted(8)]));
        assert!(objects([encrypted(9), encrypted(0)]) && objects([encrypted(0), encrypted(9)]));
        assert!(
            objects([
                Counts {
                    sent_on: 1,
                    ..encrypted(9)
                },
                encrypted(8)
            ]),
            "replayed in mode kernel"
        );
        let fast = |after| self::objects(Mode::WireguardFast, Workload::TcpRr, after);
        let replaying =
            |encrypted| counts(0, 1000, 1000, 5).map(|node| Counts { encrypted, ..node });
        assert!(!fast(replaying(9)) && fast(replaying(0)) && fast([encrypted(9), encrypted(8)]));
    }

    #[test]
    fn a_row_of_the_outside_needs_both_directions_replayed_on_the_node_of_the_pod() {
        let node = |sent_on, delivered, outward| Counts {
            sent_on,
            delivered,
            outward,
            ..Counts::default()
        };
        let rr = |mode, after| objects(mode, Workload::TcpRr, after);
        let (replaying, idle) = (node(1000, 1000, 50), node(0, 0, 0));
        assert!(
            !rr(Mode::OutwardFast, [replaying, idle]) && !rr(Mode::InwardFast, [idle, replaying])
        );
        assert!(
            rr(Mode::OutwardFast, [idle, replaying]) && rr(Mode::InwardFast, [replaying, idle])
        );
        assert!(
            rr(Mode::OutwardFast, [node(1000, 0, 50), idle]),
            "one direction"
        );
        assert!(
            rr(Mode::OutwardFast, [node(1000, 1000, 10_000), idle]),
            "most took the kernel's path"
        );
        assert!(
            rr(Mode::OutwardKernel, [replaying, idle]) && !rr(Mode::InwardKernel, [idle, idle])
        );
    }

    #[test]
    fn counts_are_read_by_program_and_reason() {
        let row = |program, reason, packets: u64| {
            json!({
                "program": program,
                "reason": reason,
                "packets": packets,
            })
        };
        let dump = json!({"stats": [
            row("from_pod", "replayed", 1),
            row("from_underlay", "replayed", 2),
            row("to_tunnel", "encapsulated", 4),
            row("to_tunnel", "path_unseen", 8),
            row("from_tunnel", "sampled", 16),
            row("from_l3_tunnel", "replayed", 32),
            row("from_l3_tunnel", "sampled", 64),
            row("to_l3_tunnel", "learned", 128),
            row("to_l3_tunnel", "self_sent", 256),
        ]});
        let expected = Counts {
            encapsulated: 4,
            sent_on: 1,
            delivered: 34,
            to_tunnel: 140,
            from_tunnel: 80,
            encrypted: 0,
            outward: 0,
        };
        assert_eq!(Counts::of(&dump).expect("a dump"), expected);
    }
}
