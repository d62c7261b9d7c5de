//! The tests that do more with the machine than wait, and those that take long. Data only.
//!
//! `cargo xtask test --timings` prints what each test took, and its share of a CPU: a test that
//! waits for less than half of its time belongs here.

use super::load::{
    Load,
    Load::{Alone, Computes, Heavy, Waits},
};

/// The seconds of a test that the table does not name.
const USUAL: u32 = 5;

/// The start of names, what such tests do, and their seconds on two idle CPUs.
const TABLE: &[(&str, Load, u32)] = &[
    ("other kernels", Computes, 150),
    ("the container image", Computes, 40),
    ("flannel-tests: kubernetes_cluster", Computes, 300),
    ("flannel-agent: programs", Heavy, 30),
    ("deploy::migration::", Computes, 40),
    // More than two at a time lose connections to each other.
    ("fast::differential::", Heavy, 40),
    ("fast::agents::schemas::", Heavy, 20),
    ("fast::churn::", Heavy, 80),
    ("fast::flood::", Heavy, 30),
    // Packets of other tests interrupt the process that judges: it then counts as their receiver.
    (
        "fast::identity::packets_that_userspace_judges_leave_in_another_task",
        Alone,
        5,
    ),
    ("fast::netfilter::", Computes, 60),
    ("fast::pairing::", Heavy, 30),
    ("fast::parity::", Computes, 30),
    ("fast::stress::", Heavy, 60),
    ("fast::stress::switches::", Alone, 60),
    ("fast::traffic::", Computes, 30),
    ("cni::cluster::many::", Computes, 30),
    ("cli::explain::story::", Computes, 40),
    ("cli::json::", Computes, 20),
    ("cli::matrix::", Waits, 60),
    ("cli::top::", Computes, 15),
    ("load::faults::", Computes, 120),
    ("load::idle_connections::", Heavy, 30),
    ("load::memory_limit::", Heavy, 10),
    ("node::many::", Heavy, 40),
    ("pod::", Computes, 30),
    ("upgrade::faults::", Computes, 25),
    ("deploy: the chart", Computes, 40),
    ("load::bench::", Alone, 30),
];

/// The tests that judge a time: by `flannel_tests::judged`.
pub(super) const MEASUREMENTS: &[&str] = &[
    "cli::output::mode::a_mode_is_set_although_a_stopped_process_holds_the_lock",
    "fast::agents::merged::what_a_pod_forwards_stays_merged_and_other_pods_get_merged_packets",
    "fast::handshake::",
    "load::bench::",
    "load::idle_connections::",
    "tunnel::policy::",
    "tunnel::restart::ten_seconds_without_an_agent_lose_nothing_and_its_successor_adopts_the_pins",
];

/// Tests that share a process, because they share what takes long to compute: their name together,
/// and the starts of their names.
pub(super) const SHARED: (&str, &[&str]) = (
    "deploy: the chart",
    &[
        "deploy::chart::",
        "deploy::chart_sets::",
        "deploy::policy::",
        "deploy::refusals::",
        "deploy::schemas::",
    ],
);

/// The tests that a plain run leaves to `--all`, by the starts of their names: another test has the
/// same code under a lighter load, with another backend or with another tool. A run that names such
/// a test has it.
pub(super) const FOR_ALL: &[&str] = &[
    "cli::matrix::host_gw_in_mode_kernel",
    "cli::matrix::udp_in_mode_kernel",
    "cli::matrix::vxlan_in_mode_encap",
    "cli::matrix::vxlan_in_mode_kernel",
    "cli::matrix::wireguard_in_mode_kernel",
    "cni::kubelet::many::",
    "fast::agents::flows::flows_to_direct_peers_are_replayed",
    "fast::agents::schemas::filters_of_another_schema_are_taken_over_and_no_datagram_is_lost",
    "fast::churn::",
    "fast::differential::rules_and_traffic_over_a_tunnel_in_a_tunnel",
    "fast::differential::rules_and_traffic_to_direct_peers",
    "fast::flood::a_flood_of_syns_at_a_node_port_takes_nothing_of_others",
    "fast::host_gw::switches::",
    "fast::idle::silent_connections_live_on_in_mode_kernel",
    "fast::parity::packets::packets_of_every_kind_become_what_they_become_in_mode_kernel_with_host_gw",
    "fast::parity::packets::packets_of_every_kind_for_a_neighbour_become_what_they_become_in_mode_kernel",
    "fast::services::services_of_nftables",
    "fast::stress::switches::",
    "fast::stress::table::",
    "firewall::exempt::nftables_leave_exempt_destinations_alone",
    "firewall::restart::a_restart_under_load_drops_nothing_with_nftables",
    "load::bench::every_workload_is_measured_in_every_mode",
    "load::bench::hits_and_misses_of_the_programs_stand_apart",
    "load::faults::",
    "node::many::churn::",
    "tunnel::ecmp::an_ipsec_policy_for_one_path_concerns_that_path_alone",
    "tunnel::restart::a_minute_without_an_agent_hands_all_packets_to_the_kernel_until_one_is_back",
    "tunnel::traffic::the_receiver_gets_bulk_tcp_over_ipv6_in_large_packets",
    "wireguard::mode::one_device_carries_both_families_by_the_addresses_of_its_mode",
];

/// Returns true if a plain run leaves this test out.
pub(super) fn is_for_all(name: &str) -> bool {
    FOR_ALL.iter().any(|start| name.starts_with(start))
}

/// Checks that each row is about a test.
///
/// # Errors
/// A row is about none of these names.
pub(super) fn check_for_all(names: &[String]) -> anyhow::Result<()> {
    for start in FOR_ALL {
        anyhow::ensure!(
            names.iter().any(|name| name.starts_with(start)),
            "no test has a name that starts with {start} (FOR_ALL in xtask/src/test/weights.rs)"
        );
    }
    Ok(())
}

/// The tests that a plain run has on a crowded host as well: an agent of each kind, and what looks
/// at the machine.
const CROWDED: &[&str] = &[
    "deploy::prepare::an_agent_of_a_pod_has_a_bpf_filesystem_of_its_own",
    "families::reach::both_families_connect_all_pods",
    "firewall::packets::forward_rules_let_pods_through_a_policy_of_drop",
    "lab::",
    "node::process::",
    "tunnel::kernel_path::",
];

/// Returns true if a test runs on a crowded host as well.
pub(super) fn runs_on_crowded_host(name: &str) -> bool {
    CROWDED.iter().any(|start| name.starts_with(start))
}

/// Returns what a test of this name does, and its seconds. The longest start of a name decides.
pub(super) fn of(name: &str) -> (Load, u32) {
    let rows = TABLE.iter().filter(|(start, ..)| name.starts_with(start));
    rows.max_by_key(|(start, ..)| start.len())
        .map_or((Waits, USUAL), |&(_, load, seconds)| (load, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_start_decides() {
        assert_eq!(of("tunnel::unknown"), (Waits, USUAL));
        assert_eq!(of("load::bench::a").0, Alone);
    }

    #[test]
    fn a_row_without_a_test_is_an_error() {
        let names: Vec<String> = FOR_ALL.iter().map(|start| format!("{start}x")).collect();
        assert!(check_for_all(&names).is_ok());
        let error = check_for_all(&names[1..]).expect_err("a row without a test");
        assert!(error.to_string().contains(FOR_ALL[0]), "{error}");
    }

    #[test]
    fn each_start_stands_once() {
        for (index, (start, ..)) in TABLE.iter().enumerate() {
            assert!(
                TABLE[index + 1..].iter().all(|(other, ..)| other != start),
                "{start} twice"
            );
        }
    }
}
