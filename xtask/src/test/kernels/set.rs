//! The kernels, and the tests that run on each of them, as data.

use std::ffi::OsString;

use anyhow::{Context as _, ensure};

use super::architecture::Architecture;
use crate::setup::Release;

/// A kernel of Debian, by its place in Debian.
#[derive(Debug)]
pub(super) struct Series {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// The release of Debian that has it.
    pub(super) release: Release<'static>,
    /// The architecture it is for.
    pub(super) architecture: Architecture,
    /// The most that `flannel-agent check` offers there.
    pub(super) mode: &'static str,
}

const fn series(
    name: &'static str,
    release: &'static str,
    backports: bool,
    mode: &'static str,
) -> Series {
    of(Architecture::Amd64, name, release, backports, mode)
}

const fn of(
    architecture: Architecture,
    name: &'static str,
    release: &'static str,
    backports: bool,
    mode: &'static str,
) -> Series {
    let release = Release {
        name: release,
        backports,
        architecture: architecture.name(),
    };
    Series {
        name,
        release,
        architecture,
        mode,
    }
}

/// From old to new, and behind them those of other architectures.
pub(super) const SERIES: [Series; 5] = [
    series("5.10", "bullseye", false, "kernel"),
    series("6.1", "bookworm", false, "fast"),
    series("6.12", "trixie", false, "fast"),
    series("newest", "trixie", true, "fast"),
    of(Architecture::Arm64, "arm64", "trixie", false, "fast"),
];

/// A row of the table, and what shows it.
#[derive(Debug)]
pub(super) struct Feature {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// The first kernel that has it, by its name above.
    pub(super) since: &'static str,
    /// The last kernel that has it; `None` for what newer kernels have as well.
    pub(super) until: Option<&'static str>,
    /// Modules that the machine has loaded then, as a node's configuration would.
    pub(super) modules: &'static [&'static str],
    /// The test program, and the names of its tests.
    pub(super) work: Work,
}

/// The proof of a feature.
#[derive(Debug)]
pub(super) enum Work {
    /// `flannel-agent check` offers the kernel's mode.
    Check,
    /// Tests of a test program pass. They run in one process.
    Tests(&'static str, &'static [&'static str]),
}

/// Rows whose tests call strongSwan or ipvsadm, which are there for this machine alone.
const ONLY_AMD64: [&str; 2] = ["ipsec", "mode `fast` through Services of IPVS"];

/// The program of the end-to-end suite. Its modules are the folders of `tests/tests`.
const E2E: &str = "e2e";

const fn feature(name: &'static str, since: &'static str, work: Work) -> Feature {
    Feature {
        name,
        since,
        until: None,
        modules: &[],
        work,
    }
}

/// Modules whose sysctls exist on a node with Services.
const CONNTRACK: &[&str] = &["nf_conntrack", "br_netfilter"];
/// The same, and Services of IPVS.
const IPVS: &[&str] = &["nf_conntrack", "br_netfilter", "dummy", "ip_vs", "ip_vs_rr"];
/// The same, and devices that only carry addresses.
const DUMMY: &[&str] = &["nf_conntrack", "br_netfilter", "dummy"];
/// The same, a helper, and the target that gives it to connections.
const HELPERS: &[&str] = &["nf_conntrack", "br_netfilter", "nf_conntrack_ftp", "xt_CT"];
/// The same, and flowtables of nftables.
const FLOWTABLE: &[&str] = &[
    "nf_conntrack",
    "br_netfilter",
    "nf_flow_table_inet",
    "nft_flow_offload",
];
/// The same, and tunnel devices without Ethernet.
const L3_TUNNELS: &[&str] = &["nf_conntrack", "br_netfilter", "wireguard", "ipip"];

/// The rows, in the order in which they run.
pub(super) static FEATURES: [Feature; 27] = [
    feature("mode that `check` offers", "5.10", Work::Check),
    feature(
        "network namespaces of the lab",
        "5.10",
        Work::Tests(
            E2E,
            &["lab::pods_of_two_nodes_talk_through_a_tunnel_made_by_hand"],
        ),
    ),
    feature(
        "vxlan, mode `kernel`",
        "5.10",
        Work::Tests(
            E2E,
            &["tunnel::kernel_path::pods_and_nodes_reach_each_other_without_the_programs"],
        ),
    ),
    Feature {
        until: Some("5.10"),
        ..feature(
            "no BPF helpers: reasons in words, clean-up",
            "5.10",
            Work::Tests(
                E2E,
                &[
                    "tunnel::refused::a_kernel_without_the_helpers_carries_all_packets_and_the_node_says_why",
                    "tunnel::refused::cleanup_on_a_kernel_without_the_helpers_leaves_nothing",
                ],
            ),
        )
    },
    feature(
        "host-gw, routes",
        "5.10",
        Work::Tests(
            E2E,
            &["families::host_gw::routes_that_stock_left_are_taken_over"],
        ),
    ),
    Feature {
        modules: &["tun"],
        ..feature(
            "udp",
            "5.10",
            Work::Tests(
                E2E,
                &["udp::paths::pods_of_three_nodes_exchange_streams_and_large_datagrams"],
            ),
        )
    },
    Feature {
        modules: &["wireguard"],
        ..feature(
            "wireguard by the kernel",
            "5.10",
            Work::Tests(
                E2E,
                &[
                    "wireguard::mode::the_kernel_encrypts_where_it_can",
                    "wireguard::restart::cleanup_leaves_nothing",
                ],
            ),
        )
    },
    Feature {
        modules: &["ipip"],
        ..feature(
            "ipip",
            "5.10",
            Work::Tests(
                E2E,
                &[
                    "ipip::tunnel::packets_travel_in_ipip_and_device_lease_and_mtu_are_as_stock_flannel_s",
                    "ipip::tunnel::with_direct_routing_neighbours_are_reached_without_a_tunnel",
                    "ipip::drift::a_changed_and_a_deleted_device_and_its_routes_come_back",
                    "ipip::restart::a_killed_and_a_restarted_agent_lose_no_datagram",
                    "ipip::restart::cleanup_leaves_nothing",
                    "ipip::stock::the_device_and_the_routes_of_stock_flannel_are_taken_over",
                ],
            ),
        )
    },
    Feature {
        modules: &["aesni_intel", "esp4", "gcm", "seqiv", "xfrm_user"],
        ..feature(
            "ipsec",
            "5.10",
            Work::Tests(
                E2E,
                &[
                    "ipsec::process::nodes_know_each_other_whatever_becomes_of_agent_and_process",
                    "ipsec::packets::data_pass_encrypted_and_restarts_lose_no_datagram",
                    "ipsec::packets::with_udp_encap_esp_travels_in_datagrams",
                ],
            ),
        )
    },
    feature(
        "programs: load and types",
        "6.1",
        Work::Tests(
            "programs",
            &[
                "load::the_kernel_does_all_that_helpers_may_refuse",
                "load::the_kernel_knows_the_types_of_every_program",
                "load::a_second_load_adopts_every_map_and_program",
            ],
        ),
    ),
    feature(
        "programs: `explain` on an unattached copy",
        "6.1",
        Work::Tests(
            "programs",
            &[
                "trial::a_trial_says_what_the_programs_in_force_would_and_leaves_no_trace",
                "trial::this_kernel_can_what_the_other_fixtures_need",
            ],
        ),
    ),
    feature(
        "programs: encapsulate, guard, replay",
        "6.1",
        Work::Tests(
            "programs",
            &[
                "to_tunnel::encapsulates_once_the_path_was_seen",
                "guard::each_mode_does_what_it_says_to_strangers",
            ],
        ),
    ),
    feature(
        "vxlan, mode `encap`",
        "6.1",
        Work::Tests(E2E, &["tunnel::traffic::nodes_and_pods_reach_each_other"]),
    ),
    feature(
        "vxlan, IPv6 alone, modes `kernel` and `encap`",
        "6.1",
        Work::Tests(E2E, &["families::reach::ipv6_alone_connects_all_pods"]),
    ),
    Feature {
        modules: CONNTRACK,
        ..feature(
            "vxlan, mode `fast`",
            "6.1",
            Work::Tests(E2E, &["fast::flows::pod_to_pod"]),
        )
    },
    Feature {
        modules: CONNTRACK,
        ..feature(
            "mode `fast` through Services",
            "6.1",
            Work::Tests(
                E2E,
                &[
                    "fast::flows::through_a_service_of_nftables",
                    "fast::flows::through_a_service_of_iptables",
                ],
            ),
        )
    },
    Feature {
        modules: IPVS,
        ..feature(
            "mode `fast` through Services of IPVS",
            "6.1",
            Work::Tests(E2E, &["fast::services::ipvs::services_of_ipvs"]),
        )
    },
    Feature {
        modules: L3_TUNNELS,
        ..feature(
            "mode `fast` into WireGuard devices",
            "6.1",
            Work::Tests(
                E2E,
                &["fast::routed::flows_are_replayed_into_wireguard_devices_and_out_of_them"],
            ),
        )
    },
    Feature {
        modules: L3_TUNNELS,
        ..feature(
            "mode `fast` into ipip devices",
            "6.1",
            Work::Tests(
                E2E,
                &["fast::routed::flows_are_replayed_into_an_ipip_device_and_out_of_it"],
            ),
        )
    },
    Feature {
        modules: CONNTRACK,
        ..feature(
            "mode `fast` with hosts outside",
            "6.1",
            Work::Tests(
                E2E,
                &[
                    "fast::outside::flows_of_pods_to_hosts_outside_are_replayed_behind_masquerade",
                    "fast::outside::flows_of_hosts_outside_to_ports_of_the_node_are_replayed",
                    "fast::outside::a_route_that_changes_holds_for_the_next_packet",
                ],
            ),
        )
    },
    Feature {
        modules: DUMMY,
        ..feature(
            "mode `fast`, addresses on dummy devices",
            "6.1",
            Work::Tests(
                E2E,
                &["fast::dummy::addresses_on_dummy_devices_are_served_as_in_mode_kernel"],
            ),
        )
    },
    Feature {
        modules: HELPERS,
        ..feature(
            "mode `fast`, connections with a helper of conntrack",
            "6.1",
            Work::Tests(
                E2E,
                &["fast::netfilter::a_connection_with_a_helper_is_left_to_the_kernel"],
            ),
        )
    },
    Feature {
        modules: FLOWTABLE,
        ..feature(
            "mode `fast` with a flowtable",
            "6.1",
            Work::Tests(E2E, &["fast::flowtable::flows_go_on_with_a_flowtable"]),
        )
    },
    feature(
        "attachment, and clean-up after it",
        "6.1",
        Work::Tests(
            E2E,
            &["tunnel::cleanup::cleanup_leaves_only_what_was_there_before_clsact"],
        ),
    ),
    Feature {
        modules: CONNTRACK,
        ..feature(
            "drops of the kernel",
            "6.1",
            Work::Tests(
                E2E,
                &["cli::kernel_drops::packets_that_rules_drop_are_seen_with_the_reason"],
            ),
        )
    },
    feature(
        "packets traced to the rule that drops them",
        "6.1",
        Work::Tests(
            E2E,
            &[
                "cli::explain::trace::a_trace_names_the_rule_that_drops",
                "cli::explain::trace::the_table_of_a_trace_ends_with_it_whatever_ends_it",
            ],
        ),
    ),
    feature(
        "guard against strangers, each mode",
        "6.1",
        Work::Tests(
            E2E,
            &[
                "source_filter::strangers::strangers_reach_pods_unless_the_guard_is_enforced_in_every_mode",
            ],
        ),
    ),
];

impl Feature {
    /// Returns true if a kernel should have it.
    pub(super) fn is_expected(&self, series: &Series) -> bool {
        self.runs_on(series.architecture)
            && !self.is_too_new(series)
            && self
                .until
                .is_none_or(|until| position(series.name) <= position(until))
    }

    /// Returns true if it can run on an architecture.
    pub(super) fn runs_on(&self, architecture: Architecture) -> bool {
        architecture == Architecture::Amd64 || !ONLY_AMD64.contains(&self.name)
    }

    /// Returns true if it needs a newer kernel, because its programs do.
    pub(super) fn is_too_new(&self, series: &Series) -> bool {
        position(series.name) < position(self.since)
    }
}

fn position(name: &str) -> Option<usize> {
    SERIES.iter().position(|series| series.name == name)
}

/// Returns the kernels of these names; `all` stands for each.
///
/// # Errors
/// A name is unknown, or none is given.
pub(super) fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Series>> {
    static ALL: [Series; 5] = SERIES;
    let known = ALL.each_ref().map(|series| series.name).join(", ");
    for name in names.iter().filter(|name| *name != "all") {
        position(name).with_context(|| format!("no kernel {name}; there are: {known}, all"))?;
    }
    let is_chosen = |series: &&Series| {
        names
            .iter()
            .any(|name| name == "all" || name == series.name)
    };
    let chosen: Vec<_> = ALL.iter().filter(is_chosen).collect();
    ensure!(
        !chosen.is_empty(),
        "no kernel was named; there are: {known}, all"
    );
    Ok(chosen)
}

/// The rows whose name has one of these parts; all without any.
///
/// # Errors
/// A part is in no row's name.
pub(super) fn rows(parts: &[OsString]) -> anyhow::Result<Vec<&'static Feature>> {
    let parts: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    for part in &parts {
        ensure!(
            FEATURES.iter().any(|row| row.name.contains(&**part)),
            "no row of the kernels has {part} in its name"
        );
    }
    let is_chosen =
        |row: &&Feature| parts.is_empty() || parts.iter().any(|part| row.name.contains(&**part));
    Ok(FEATURES.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        let names = |parts: &[&str]| -> anyhow::Result<Vec<_>> {
            let parts: Vec<OsString> = parts.iter().map(Into::into).collect();
            Ok(rows(&parts)?.iter().map(|row| row.name).collect())
        };
        assert_eq!(names(&[]).expect("all").len(), FEATURES.len());
        assert_eq!(
            names(&["udp", "outside"]).expect("two"),
            ["udp", "mode `fast` with hosts outside"]
        );
        assert!(
            names(&["vlan"])
                .expect_err("no row")
                .to_string()
                .contains("vlan")
        );
    }

    #[test]
    fn every_row_begins_at_a_kernel_of_the_list_and_has_a_name_of_its_own() {
        for (index, feature) in FEATURES.iter().enumerate() {
            assert!(position(feature.since).is_some(), "{}", feature.name);
            assert!(
                feature
                    .until
                    .is_none_or(|until| position(until) >= position(feature.since)),
                "{}",
                feature.name
            );
            assert!(
                FEATURES[index + 1..]
                    .iter()
                    .all(|other| other.name != feature.name),
                "{} twice",
                feature.name
            );
        }
        let of = |since: &str| {
            FEATURES
                .iter()
                .find(|feature| feature.since == since)
                .expect("a row")
        };
        assert!(of("6.1").is_too_new(&SERIES[0]) && !of("6.1").is_expected(&SERIES[0]));
        let [newest, other] = [&SERIES[3], &SERIES[4]];
        assert!(
            FEATURES
                .iter()
                .filter(|feature| feature.until.is_none())
                .all(|feature| feature.is_expected(newest))
        );
        let absent: Vec<&str> = FEATURES
            .iter()
            .filter(|feature| feature.until.is_none() && !feature.is_expected(other))
            .map(|feature| feature.name)
            .collect();
        assert_eq!(absent, ONLY_AMD64);
        let old = FEATURES
            .iter()
            .find(|feature| feature.until == Some("5.10"))
            .expect("a row");
        assert!(
            old.is_expected(&SERIES[0])
                && !old.is_expected(&SERIES[1])
                && !old.is_too_new(&SERIES[1])
        );
    }

    /// A kernel runs nothing for a name that no test has.
    #[test]
    fn every_test_of_a_row_is_in_the_sources_of_its_program() {
        let workspace = Workspace::new().expect("the project");
        for feature in &FEATURES {
            let Work::Tests(program, names) = feature.work else {
                continue;
            };
            let folder = workspace.root().join(match program {
                E2E => "tests/tests".to_owned(),
                other => format!("flannel-agent/tests/{other}"),
            });
            for name in names {
                let (module, function) = name.rsplit_once("::").expect("a module");
                let module = folder.join(module.replace("::", "/"));
                let files = [module.with_extension("rs"), module.join("mod.rs")];
                let text = files
                    .iter()
                    .find_map(|file| fs::read_to_string(file).ok())
                    .unwrap_or_default();
                assert!(
                    text.contains(&format!("fn {function}(")),
                    "{}: {name}",
                    feature.name
                );
            }
        }
    }

    #[test]
    fn kernels_are_chosen_by_name() {
        let names = |list: &[&str]| -> anyhow::Result<Vec<_>> {
            let list: Vec<_> = list.iter().map(|&name| name.to_owned()).collect();
            Ok(chosen(&list)?.iter().map(|series| series.name).collect())
        };
        assert_eq!(
            names(&["newest", "6.1"]).expect("kernels"),
            ["6.1", "newest"]
        );
        assert_eq!(names(&["all"]).expect("kernels").len(), SERIES.len());
        assert!(
            names(&["4.4"])
                .expect_err("unknown")
                .to_string()
                .contains("there are: 5.10, 6.1")
        );
    }
}
