//! That the page has what the catalogue promises, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use flannel_common::abi::{program::Program, reason::Reason, stats::Counter};
use flannel_echo::EchoCounts;
use flannel_host::family::Family;
use flannel_reconcile::SharedPeers;
use flannel_status::{
    ChangeCounts, CloudStatus, EchoState, ExtensionStatus, IpsecPeerState, IpsecStatus, PeerState,
    RequestCounts, Status, UdpStatus,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    catalogue::ALL,
    datapath::{Counted, Run, runs},
    flows::Tally,
    traffic::Labelled,
    *,
};
use crate::{pulse::Pulse, shared::SharedState};

fn guard_check() -> Value {
    json!({
        "effective": "enforce",
        "wanted": "enforce",
        "chosen_at_run_time": false,
        "reason": null,
        "refused": 3,
        "passed": 4,
    })
}

fn pod(sends: bool, receives: bool) -> Value {
    json!({
        "veth": "v",
        "index": 1,
        "mac": null,
        "sends": sends,
        "receives": receives,
        "reasons": [],
    })
}

fn lease() -> Value {
    json!({
        "subnet": "10.5.1.0/24",
        "public_ip": "192.0.2.1",
        "ipv6_subnet": "fd00::/64",
        "public_ipv6": "2001:db8::1",
        "held": true,
        "expires_at": 1_700_000_000_u64,
    })
}

fn device() -> Value {
    json!({
        "name": "flannel.1",
        "index": 3,
        "mac": "",
        "mtu": 1450,
        "family": "IPv4",
        "zero_checksum_v6": false,
    })
}

fn traffic_rules() -> Value {
    json!({
        "engine": null,
        "families": [],
        "masquerade": true,
        "forward": false,
        "blackhole": false,
        "repairs": 7,
        "repaired_at": null,
        "error": "no",
    })
}

fn repairs() -> Value {
    json!({
        "devices": 0,
        "addresses": 0,
        "neighbours": 2,
        "fdb": 0,
        "nexthops": 0,
        "routes": 5,
        "maps": 0,
    })
}

/// A node with everything.
fn status() -> Status {
    let status = json!({
        "version": "1.2.3", "pid": 1, "ready": true, "stage": "running",
        "mode": {
            "effective": "fast",
            "wanted": "encap",
            "source": "flag",
            "reason": null,
            "attach": "tcx",
        },
        "fast": {
            "tcp_reason": null,
            "error": null,
            "pods": [pod(true, true), pod(true, false), pod(false, false)],
        },
        "guard": { "outer": guard_check(), "inner": guard_check() },
        "lease": lease(),
        "store": { "endpoints": [], "in_sync": true, "reason": null, "since": 5, "last_change": 6 },
        "interface": null,
        "device": null,
        "devices": [device()],
        "traffic": traffic_rules(),
        "peers": [],
        "rejected": [{ "key": "a", "reason": "b" }],
        "rejected_total": 99_980,
        "conflicts": { "mac": 2, "subnet": 0 },
        "dirty": [{ "object": "a", "error": "b", "attempts": 1 }],
        "dirty_total": 101,
        "repairs": repairs(),
        "checksum_offload": [
            { "device": "flannel.1", "setting": "auto", "on": true, "reason": null },
            { "device": "flannel-v6.1", "setting": "auto", "on": false, "reason": "lost" },
        ],
        "sysctl_problems": [{
            "sysctl": "net.ipv4.ip_forward",
            "value": 0,
            "needed": 1,
            "text": "it is 0",
        }],
        "error": null,
    });
    serde_json::from_value(status).expect("a status")
}

fn page(status: Status) -> String {
    let (_publish, status) = watch::channel(status);
    let (mut page, counts) = (Page::default(), Counts::new().expect("counts"));
    counts.reconciled(Duration::from_millis(20), false);
    counts.echo_round_trips.observe(0.0004);
    let readiness = Readiness::new(status, SharedState::default(), Pulse::start());
    node::write(&mut page, &readiness, &SharedPeers::default(), &counts);
    let mut status = readiness.status().clone();
    status.find_problems(0);
    problems::write(&mut page, &status, SharedState::default().peer_problems());
    write_traffic(&mut page);
    write_echoes(&mut page, &counts);
    write_backends(&mut page);
    page.boolean(catalogue::DATAPATH_READABLE, true);
    runs(
        &mut page,
        &[Run {
            program: "to_pod",
            count: 2,
            time: Duration::from_micros(3),
        }],
    );
    write_flows(&mut page);
    String::from_utf8(page.text().expect("a page")).expect("text")
}

fn counter(packets: u64) -> Counter {
    Counter {
        packets,
        bytes: packets * 100,
    }
}

fn write_traffic(page: &mut Page) {
    let counted = Counted {
        stats: vec![
            (Program::FromPod, Reason::Replayed, counter(90)),
            (Program::FromPod, Reason::Sampled, counter(1)),
            (Program::FromPod, Reason::Refreshing, counter(2)),
            (Program::FromPod, Reason::TcpControl, counter(4)),
            (Program::FromTunnel, Reason::Sampled, counter(8)),
            (Program::ToUnderlay, Reason::StoreFailed, counter(3)),
            (Program::ToTunnel, Reason::StoreFailed, counter(4)),
        ],
        generation: 9,
        capacities: vec![(Family::V6, 1000)],
    };
    counted.write(page);
    let labelled = |label: &str| Labelled {
        label: label.to_owned(),
        to: counter(20),
        from: counter(10),
    };
    traffic::write_peers(page, &[labelled("10.5.2.0/24")]);
    traffic::write_pods(page, &[labelled("veth1")]);
}

fn write_echoes(page: &mut Page, counts: &Counts) {
    let states = BTreeMap::from([(EchoState::Answering, 2), (EchoState::Silent, 1)]);
    let echoes = EchoCounts {
        states,
        requests: 40,
        lost: 6,
    };
    echo::write(page, Some(echoes), counts);
}

fn write_backends(page: &mut Page) {
    backends::wireguard::write(page, &BTreeMap::from([(PeerState::Unanswered, 2)]));
    let requests = RequestCounts {
        done: 9,
        throttled: 2,
        ..RequestCounts::default()
    };
    let changes = ChangeCounts {
        created: 1,
        ..ChangeCounts::default()
    };
    let cloud = CloudStatus {
        present: true,
        requests,
        changes,
        ..CloudStatus::default()
    };
    backends::cloud::write(page, Some(&cloud));
    let extension = ExtensionStatus {
        added: 3,
        failing: 1,
        ..ExtensionStatus::default()
    };
    backends::extension::write(page, Some(&extension));
    let states = BTreeMap::from([(IpsecPeerState::Established, 2)]);
    let ipsec = IpsecStatus {
        pid: Some(8),
        starts: 1,
        ..IpsecStatus::default()
    };
    backends::ipsec::write(page, Some(&ipsec), &states);
    let udp = UdpStatus {
        pid: Some(7),
        starts: 1,
        ..UdpStatus::default()
    };
    backends::udp::write(page, Some(&udp));
}

fn write_flows(page: &mut Page) {
    let flows = FlowCount::default();
    assert!(flows.is_due() && !flows.is_due(), "one counts");
    let tally = Tally {
        usable: 1,
        stale: 2,
    };
    let tallies = vec![(Family::V4, tally)];
    flows.keep(Instant::now(), SystemTime::UNIX_EPOCH, tallies);
    assert!(!flows.is_due(), "not again for a minute");
    flows.write(page);
}

#[test]
fn every_metric_is_as_the_catalogue_has_it() {
    let text = page(status());
    for metric in ALL {
        let head = format!(
            "# HELP {0} {1}\n# TYPE {0} {2}\n{0}",
            metric.name, metric.help, metric.kind
        );
        assert!(text.contains(&head), "{head}\nis not in\n{text}");
        let samples = text
            .lines()
            .filter_map(|line| line.strip_prefix(metric.name)?.strip_prefix('{'))
            .peekable();
        for sample in samples {
            let (labels, _) = sample.rsplit_once('}').expect("labels");
            let names: Vec<_> = labels
                .split(',')
                .filter_map(|label| Some(label.split_once('=')?.0))
                .collect();
            assert_eq!(names, metric.labels, "{sample}");
        }
    }
    let said: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert_eq!(
        said,
        ALL.iter().map(|metric| metric.name).collect(),
        "and no other"
    );
    assert_eq!(said.len(), ALL.len(), "each once");
}

#[test]
fn names_follow_the_conventions() {
    for Metric {
        name,
        kind,
        labels,
        help,
    } in ALL
    {
        assert!(
            name.starts_with("flannel_") && help.ends_with('.'),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        assert!(
            !labels
                .iter()
                .any(|label| ["le", "quantile", "job", "instance"].contains(label)),
            "{name}"
        );
    }
}

const SAMPLES: &[&str] = &[
    "flannel_build_info{version=\"1.2.3\"} 1",
    "flannel_ready 1",
    "flannel_datapath_mode{mode=\"encap\"} 0",
    "flannel_datapath_mode{mode=\"fast\"} 1",
    "flannel_datapath_wanted_mode{mode=\"encap\",source=\"flag\"} 1",
    "flannel_lease_expires_timestamp_seconds 1700000000",
    "flannel_lease_info{subnet=\"10.5.1.0/24\",ipv6_subnet=\"fd00::/64\",\
         public_ip=\"192.0.2.1\",public_ipv6=\"2001:db8::1\"} 1",
    "flannel_echo_peers{state=\"silent\"} 1",
    "flannel_echo_peers{state=\"never\"} 0",
    "flannel_wireguard_peers{state=\"session\"} 0",
    "flannel_wireguard_peers{state=\"unanswered\"} 2",
    "flannel_cloud_route_present 1",
    "flannel_cloud_requests_total{outcome=\"throttled\"} 2",
    "flannel_cloud_route_changes_total{change=\"created\"} 1",
    "flannel_extension_peers{state=\"added\"} 3",
    "flannel_extension_peers{state=\"failing\"} 1",
    "flannel_echo_requests_total 40",
    "flannel_echo_lost_total 6",
    "flannel_echo_round_trip_seconds_bucket{le=\"0.0005\"} 1",
    "flannel_peers{family=\"ipv6\",way=\"tunnel\"} 0",
    "flannel_rejected_leases 99980",
    "flannel_tx_checksum_offload{device=\"flannel.1\"} 1",
    "flannel_tx_checksum_offload{device=\"flannel-v6.1\"} 0",
    "flannel_problems{code=\"host_sysctl\",severity=\"critical\"} 1",
    "flannel_problems{code=\"command\",severity=\"warning\"} 0",
    "flannel_sysctl_problems{sysctl=\"net.ipv4.ip_forward\"} 1",
    "flannel_lease_conflicts{kind=\"mac\"} 2",
    "flannel_lease_conflicts{kind=\"subnet\"} 0",
    "flannel_dirty_entries 101",
    "flannel_repairs_total{object=\"route\"} 5",
    "flannel_repairs_total{object=\"traffic_rules\"} 7",
    "flannel_traffic_rules_in_place 0",
    "flannel_guard_packets_total{check=\"inner\",outcome=\"refused\"} 3",
    "flannel_guard_mode{check=\"outer\",mode=\"enforce\"} 1",
    "flannel_fast_pods{part=\"one_way\"} 1",
    "flannel_reconcile_duration_seconds_bucket{le=\"0.01\"} 0",
    "flannel_reconcile_duration_seconds_bucket{le=\"0.025\"} 1",
    "flannel_reconcile_errors_total 1",
    "flannel_datapath_packets_total{program=\"from_pod\",reason=\"replayed\",\
         verdict=\"redirect\"} 90",
    "flannel_datapath_drops_total{reason=\"store_failed\"} 7",
    "flannel_datapath_drops_total{reason=\"refused_pod_tunnel\"} 0",
    "flannel_datapath_bytes_total{program=\"from_pod\",reason=\"replayed\",\
         verdict=\"redirect\"} 9000",
    "flannel_flow_lookups_total{program=\"from_pod\",result=\"hit\"} 90",
    "flannel_flow_lookups_total{program=\"from_pod\",result=\"miss\"} 3",
    "flannel_flow_lookups_total{program=\"from_underlay\",result=\"miss\"} 0",
    "flannel_peer_packets_total{peer=\"10.5.2.0/24\",direction=\"to\"} 20",
    "flannel_peer_bytes_total{peer=\"10.5.2.0/24\",direction=\"from\"} 1000",
    "flannel_pod_bytes_total{veth=\"veth1\",direction=\"to\"} 2000",
    "flannel_flow_table_capacity{family=\"ipv6\"} 1000",
    "flannel_flow_table_flows{family=\"ipv4\",state=\"stale\"} 2",
    "flannel_program_run_seconds_total{program=\"to_pod\"} 0.000003",
];

#[test]
fn samples_are_what_they_should_be() {
    let text = page(status());
    for line in SAMPLES {
        assert!(
            text.lines().any(|other| other == *line),
            "{line}\nis not in\n{text}"
        );
    }
}

#[test]
fn what_is_not_known_is_not_said() {
    let whole = status();
    let bare = Status::without_agent("starting", whole.mode);
    let text = page(bare);
    assert!(
        text.contains("\nflannel_lease_held 0\n") && text.contains("\nflannel_store_in_sync 0\n"),
        "{text}"
    );
    for absent in [
        "flannel_lease_info",
        "flannel_lease_expires",
        "flannel_guard",
        "flannel_fast_pods",
        "flannel_traffic",
    ] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn of_ipv6_alone_the_labels_of_ipv4_are_empty() {
    let mut status = status();
    if let Some(lease) = &mut status.lease {
        (lease.subnet, lease.public_ip) = ("fd00::/64".to_owned(), "2001:db8::1".to_owned());
    }
    let labels = "subnet=\"\",ipv6_subnet=\"fd00::/64\",public_ip=\"\",public_ipv6=\"2001:db8::1\"";
    assert!(page(status).contains(labels));
}
