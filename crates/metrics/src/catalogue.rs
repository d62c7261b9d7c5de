//! Every metric there is: its name, type, labels and meaning. Names and labels are an interface;
//! they are added to and not changed.
//!
//! docs/reference/metrics.md says the same, and a test compares the two. Labels have few values
//! each, whatever the cluster does. Only the metrics of traffic name peers, up to
//! `--metrics-peers`, and pods, with `--metrics-pods`.

use super::page::Metric;

macro_rules! metrics {
    ($($name:ident $kind:ident $text:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub(super) const $name: Metric = Metric::$kind($text, &[$($label),*], $help);
        )+

        /// All of them, as they are documented.
        pub const ALL: &[Metric] = &[$($name),+];
    };
}

metrics! {
    BUILD_INFO gauge "flannel_build_info" ["version"] "The agent's version; always 1.";
    READY gauge "flannel_ready" [] "1 if packets flow and will go on flowing, as /readyz says.";
    MAIN_LOOP_SILENCE gauge "flannel_main_loop_silence_seconds" [] "Seconds since the main loop \
        was last seen to go round; it does every second.";
    DISPLACED counter "flannel_connections_displaced_total" ["listener"] "Connections closed \
        unanswered at a limit for newer ones, by listener: health, metrics, status (the socket of \
        that name). Idle connections of a flood.";

    LEASE_INFO gauge "flannel_lease_info" ["subnet", "ipv6_subnet", "public_ip", "public_ipv6"]
        "Our lease; always 1. A label of a family that is off is empty.";
    LEASE_HELD gauge "flannel_lease_held" [] "1 while the node has its lease.";
    LEASE_EXPIRES gauge "flannel_lease_expires_timestamp_seconds" [] "When the store drops our \
        lease unless it is renewed, in seconds since 1970 UTC; absent where it stays (a \
        reservation, Kubernetes).";
    LEASE_RENEWALS counter "flannel_lease_renewals_total" [] "Times our lease was written again: \
        renewed or, in Kubernetes, published again.";
    LEASE_RENEWAL_FAILURES counter "flannel_lease_renewal_failures_total" [] "Times that failed; \
        each is tried again.";
    LEASE_LOSSES counter "flannel_lease_losses_total" [] "Times our lease was found to be gone or \
        another node's.";

    STORE_IN_SYNC gauge "flannel_store_in_sync" [] "1 while changes of the store arrive.";
    STORE_SINCE gauge "flannel_store_since_timestamp_seconds" [] "Since when it is so, in seconds \
        since 1970 UTC; absent while the agent starts.";
    STORE_LAST_CHANGE gauge "flannel_store_last_change_timestamp_seconds" [] "Time of the last \
        change of any lease, in seconds since 1970 UTC; absent until the first.";
    STORE_LISTINGS counter "flannel_store_listings_total" [] "Times all leases were listed.";
    STORE_WATCHES counter "flannel_store_watches_total" [] "Watches begun or taken up again. \
        Kubernetes ends each after some minutes.";
    STORE_FAILURES counter "flannel_store_failures_total" [] "Times the stream of changes could \
        not be had, or broke off with an error.";

    PEERS gauge "flannel_peers" ["family", "way"] "Peers by address family (ipv4, ipv6) and way, \
        as in status: direct, tunnel, kernel, wireguard, ipsec, ipip, udp, extension, cloud, none.";
    REJECTED_LEASES gauge "flannel_rejected_leases" [] "Leases of others that are not accepted; \
        status says why.";
    LEASE_CONFLICTS gauge "flannel_lease_conflicts" ["kind"] "Leases refused because another node \
        has their VTEP MAC (mac), their WireGuard key (key) or a part of their subnet (subnet); \
        flannel_rejected_leases has them too. With etcd, 1 while another machine has the public \
        address of this node and contests its lease (address).";
    ECHO_PEERS gauge "flannel_echo_peers" ["state"] "Peers by their answers to echo requests: \
        answering; silent (it answered, and not to the last three); never (since the agent \
        started); unknown (no reply yet, fewer than three requests lost). Absent with \
        --peer-echo-interval=0, like all flannel_echo metrics.";
    ECHO_REQUESTS counter "flannel_echo_requests_total" [] "Echo requests to peers.";
    ECHO_LOST counter "flannel_echo_lost_total" [] "Those without a reply before the next request \
        to the same peer, or that could not be sent.";
    ECHO_ROUND_TRIP histogram "flannel_echo_round_trip_seconds" [] "Time from an echo request to \
        its reply, of all peers.";
    WIREGUARD_PEERS gauge "flannel_wireguard_peers" ["state"] "WireGuard peers by their last \
        handshake, as the device said it 30 s ago at most: session (not older than 180 s), idle \
        (older, and nothing was sent), unanswered (older or none, and packets were sent). Absent \
        with another backend.";
    EXTENSION_PEERS gauge "flannel_extension_peers" ["state"] "Peers by the commands of the \
        backend extension: added (the command succeeded), waiting (it has not run), failing (a \
        command failed, and is tried again). Absent with another backend.";
    CLOUD_ROUTE_PRESENT gauge "flannel_cloud_route_present" [] "1 if the route to this node's \
        pods is in the route tables of the cloud, by the last answer. Absent with another backend, \
        like all flannel_cloud metrics.";
    CLOUD_REQUESTS counter "flannel_cloud_requests_total" ["outcome"] "Requests to the cloud's \
        API: done, refused (not allowed, a limit, a mistake), throttled (too many of them), failed \
        (no answer).";
    CLOUD_CHANGES counter "flannel_cloud_route_changes_total" ["change"] "Routes of the cloud that \
        this node created, replaced (they led elsewhere) or deleted (blackholes, stale routes to \
        this node).";
    IPSEC_PEERS gauge "flannel_ipsec_peers" ["state"] "Peers by the IPsec tunnel to them, as \
        charon said 5 s ago at most: installed (the kernel has the associations), established (the \
        nodes know each other, and there are no associations), connecting (no answer yet), \
        missing. Absent with another backend, like all flannel_ipsec metrics.";
    IPSEC_PROCESS gauge "flannel_ipsec_process_running" [] "1 if charon answers, which agrees \
        on keys with peers.";
    IPSEC_STARTS counter "flannel_ipsec_process_starts_total" [] "Times the agent started charon: \
        0 if it found one and kept it.";
    UDP_PROCESS gauge "flannel_udp_process_running" [] "1 if the process that carries the \
        packets of the backend udp answers. Absent with another backend, like all flannel_udp \
        metrics.";
    UDP_STARTS counter "flannel_udp_process_starts_total" [] "Times the agent started that \
        process: 0 if it found one and kept it.";
    UDP_PACKETS counter "flannel_udp_packets_total" ["direction"] "Packets of pods that the \
        process carried: sent to peers, received from peers.";
    UDP_BYTES counter "flannel_udp_bytes_total" ["direction"] "Their bytes, from the IPv4 header \
        on.";
    UDP_DROPS counter "flannel_udp_drops_total" ["reason"] "Packets that the process dropped: \
        malformed, no_route (no peer has the destination), ttl_exceeded, unknown_sender (not a \
        peer), not_sent and not_delivered (the kernel refused).";
    DEVICE_MTU gauge "flannel_device_mtu_bytes" ["device"] "MTU of each tunnel device.";

    RECONCILE_DURATION histogram "flannel_reconcile_duration_seconds" [] "Time one reconciliation \
        took. A large cluster is worked in by several.";
    RECONCILE_ERRORS counter "flannel_reconcile_errors_total" [] "Reconciliations that did not go \
        through; status has the reason.";
    DIRTY_ENTRIES gauge "flannel_dirty_entries" [] "Entries that kernel or maps refused; each is \
        tried again.";
    REPAIRS counter "flannel_repairs_total" ["object"] "Objects that others removed or changed, \
        and the agent repaired: device, address, neighbour, fdb, nexthop, wireguard_peer, \
        xfrm_policy, route, map, sysctl, traffic_rules (once per check).";
    TX_CHECKSUM_OFFLOAD gauge "flannel_tx_checksum_offload" ["device"] "1 for each vxlan device \
        whose packets leave their inner checksums to the network card, 0 for one whose packets \
        have them computed by the kernel. Absent if that is not known.";
    PROBLEMS gauge "flannel_problems" ["code", "severity"] "Problems of the node by kind, as in \
        its status; 0 for a kind without any. Problems of peers count here too.";
    SYSCTL_PROBLEMS gauge "flannel_sysctl_problems" ["sysctl"] "1 for each sysctl of the host that \
        keeps packets from pods, such as net.ipv4.ip_forward, and that the agent could not set. \
        Absent if there is none.";
    TRAFFIC_RULES gauge "flannel_traffic_rules_in_place" [] "1 if masquerade, forward rules and \
        blackhole route are as asked for; absent if none is.";

    MODE gauge "flannel_datapath_mode" ["mode"] "1 for the datapath mode in force: kernel, encap, \
        fast.";
    WANTED_MODE gauge "flannel_datapath_wanted_mode" ["mode", "source"] "1 for the requested \
        datapath mode, and the source of the request: run-time, node-annotation, flag, \
        network-config or default.";
    DATAPATH_READABLE gauge "flannel_datapath_readable" [] "1 if the maps of the programs are \
        pinned and could be read; 0 where the kernel carries all packets.";
    PACKETS counter "flannel_datapath_packets_total" ["program", "reason", "verdict"] "Packets by \
        program, reason and verdict (pass, redirect, drop), as in maps dump stats; an aggregate \
        counts once. Absent while 0.";
    DROPS counter "flannel_datapath_drops_total" ["reason"] "Packets that the programs dropped, by \
        reason; from 0 on, so that a first drop is an increase.";
    BYTES counter "flannel_datapath_bytes_total" ["program", "reason", "verdict"] "Their bytes, \
        from the Ethernet header on.";
    PROGRAM_RUNS counter "flannel_program_runs_total" ["program"] "Runs of each program while \
        kernel.bpf_stats_enabled is 1; absent while 0.";
    PROGRAM_SECONDS counter "flannel_program_run_seconds_total" ["program"] "Time these runs took.";

    PEER_PACKETS counter "flannel_peer_packets_total" ["peer", "direction"] "Packets to and from \
        the pods of each peer (direction), by the peer's subnet; an aggregate counts once. Absent \
        where the programs do not see them, for peers beyond --metrics-peers, and with 0 of these.";
    PEER_BYTES counter "flannel_peer_bytes_total" ["peer", "direction"] "Their bytes, from the \
        Ethernet header on, without outer headers.";
    POD_PACKETS counter "flannel_pod_packets_total" ["veth", "direction"] "Packets to and from \
        each pod that mode fast knows (direction), by the host side of its veth. Only with \
        --metrics-pods.";
    POD_BYTES counter "flannel_pod_bytes_total" ["veth", "direction"] "Their bytes, from the \
        Ethernet header on.";

    GUARD_MODE gauge "flannel_guard_mode" ["check", "mode"] "1 for the mode in force of each check \
        of the guard (outer, inner): off, audit, enforce.";
    GUARD_PACKETS counter "flannel_guard_packets_total" ["check", "outcome"] "Packets that failed \
        a check of the guard: refused, or passed because it is not enforced.";

    FAST_PODS gauge "flannel_fast_pods" ["part"] "Pods of this node in mode fast: full, one_way, \
        none (left to the kernel); absent in other modes.";
    FLOW_LOOKUPS counter "flannel_flow_lookups_total" ["program", "result"] "Packets for which a \
        flow was looked up where known flows are replayed (from_pod, from_underlay): hit or miss. \
        Packets that may not be replayed are neither.";
    FLOW_GENERATIONS counter "flannel_flow_generations_total" [] "Times all known flows were \
        discarded, and changes of the mode.";
    FLOW_CAPACITY gauge "flannel_flow_table_capacity" ["family"] "Flows the table of each address \
        family holds at most.";
    FLOWS gauge "flannel_flow_table_flows" ["family", "state"] "Flows in the table: usable now, or \
        stale, which any new flow may replace. Counted once a minute at most, in mode fast, while \
        metrics are scraped.";
    OBSERVED_FLOWS counter "flannel_hubble_flows_total" [] "Flows that were observed for clients \
        of Hubble.";
    MISSED_PACKETS counter "flannel_hubble_missed_packets_total" [] "Packets of which clients of \
        Hubble have no flow: they came faster than --hubble-rate, or found the buffer full.";
    FLOWS_COUNTED gauge "flannel_flow_table_counted_timestamp_seconds" [] "When they were counted, \
        in seconds since 1970 UTC.";
}
