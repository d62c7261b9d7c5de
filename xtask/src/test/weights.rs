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
    ("load::memory_limit::", Alone, 20),
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

/// The tests that a plain run has on a crowded host as well: an agent of each kind, and what looks
/// at the machine.
const CROWDED: &[&str] = &[
    "deploy::prepare::an_agent_of_a_pod_has_a_bpf_filesystem_of_its_own",
    "families::reach::",
    "firewall::packets::",
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
    fn each_start_stands_once() {
        for (index, (start, ..)) in TABLE.iter().enumerate() {
            assert!(
                TABLE[index + 1..].iter().all(|(other, ..)| other != start),
                "{start} twice"
            );
        }
    }
}
