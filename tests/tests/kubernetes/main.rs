//! Our image on a real Kubernetes of three nodes, installed by the manifest as it is shipped.
//!
//! All tests share one cluster, which takes a minute to start, and run one after the other. Each
//! leaves it as it found it.

mod changes;
mod families;
mod hubble;
mod installs;
mod kubectl;
mod operator;
mod paths;
mod policy;
mod schemas;
mod services;
mod traffic;

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anyhow::Result;
use flannel_tests::{
    Lab,
    kubernetes::{Kubernetes, Parts, Progress, flannel},
    not_run,
};
use libtest_mimic::{Arguments, Trial};

type Test = fn(&Kubernetes) -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    (
        "the_agents_are_in_mode_fast",
        paths::the_agents_are_in_mode_fast,
    ),
    (
        "the_agents_name_their_peers_which_answer",
        paths::the_agents_name_their_peers_which_answer,
    ),
    (
        "the_cluster_s_status_has_every_node",
        operator::the_cluster_s_status_has_every_node,
    ),
    (
        "the_cluster_s_status_says_what_is_not_ready",
        operator::the_cluster_s_status_says_what_is_not_ready,
    ),
    (
        "the_cluster_s_status_waits_for_an_agent",
        operator::the_cluster_s_status_waits_for_an_agent,
    ),
    (
        "the_rates_of_all_nodes_are_streamed",
        operator::top::the_rates_of_all_nodes_are_streamed,
    ),
    (
        "the_flows_of_all_nodes_are_one_list",
        operator::flows::the_flows_of_all_nodes_are_one_list,
    ),
    (
        "the_events_of_all_nodes_are_one_stream",
        operator::follow::the_events_of_all_nodes_are_one_stream,
    ),
    (
        "a_packet_is_explained_by_both_nodes",
        operator::explain::a_packet_is_explained_by_both_nodes,
    ),
    (
        "a_rule_that_drops_is_named_for_pods_by_name",
        operator::explain::a_rule_that_drops_is_named_for_pods_by_name,
    ),
    (
        "one_archive_has_those_of_all_nodes",
        operator::one_archive_has_those_of_all_nodes,
    ),
    ("kubectl_has_a_plugin", operator::kubectl_has_a_plugin),
    (
        "the_rights_of_the_guide_suffice",
        operator::the_rights_of_the_guide_suffice,
    ),
    (
        "a_whole_cluster_passes_in_every_mode",
        operator::connectivity::a_whole_cluster_passes_in_every_mode,
    ),
    (
        "pictures_of_the_commands_are_as_the_commands_are",
        operator::pictures::pictures_of_the_commands_are_as_the_commands_are,
    ),
    (
        "a_broken_pair_is_found_and_explained",
        operator::connectivity::a_broken_pair_is_found_and_explained,
    ),
    (
        "a_signal_leaves_nothing_behind",
        operator::connectivity::a_signal_leaves_nothing_behind,
    ),
    (
        "pods_that_cannot_start_are_no_result",
        operator::connectivity::pods_that_cannot_start_are_no_result,
    ),
    (
        "every_pod_and_node_reaches_every_pod_and_service",
        paths::every_pod_and_node_reaches_every_pod_and_service,
    ),
    (
        "a_service_with_session_affinity_keeps_its_server",
        services::a_service_with_session_affinity_keeps_its_server,
    ),
    (
        "pods_with_the_nodes_network_are_reached",
        services::pods_with_the_nodes_network_are_reached,
    ),
    (
        "logs_exec_and_port_forward_work_on_every_node",
        kubectl::logs_exec_and_port_forward_work_on_every_node,
    ),
    (
        "a_rule_that_drops_is_obeyed_on_every_node",
        policy::a_rule_that_drops_is_obeyed_on_every_node,
    ),
    (
        "a_program_that_is_asked_about_connections_sees_each",
        policy::a_program_that_is_asked_about_connections_sees_each,
    ),
    (
        "clients_of_hubble_show_names_and_drops",
        hubble::clients_of_hubble_show_names_and_drops,
    ),
    (
        "a_udp_flow_moves_on_when_its_endpoint_goes",
        changes::a_udp_flow_moves_on_when_its_endpoint_goes,
    ),
    (
        "an_update_of_the_agents_loses_no_packet",
        changes::an_update_of_the_agents_loses_no_packet,
    ),
    (
        "an_update_from_another_schema_loses_no_packet",
        schemas::an_update_from_another_schema_loses_no_packet,
    ),
    (
        "an_api_server_that_is_away_costs_nothing",
        changes::an_api_server_that_is_away_costs_nothing,
    ),
    (
        "a_node_that_comes_back_with_another_subnet_is_followed",
        changes::a_node_that_comes_back_with_another_subnet_is_followed,
    ),
    (
        "both_families_pass_in_every_mode",
        families::both_families_pass_in_every_mode,
    ),
    (
        "the_test_of_the_chart_passes",
        installs::the_test_of_the_chart_passes,
    ),
    ("pods_talk_by_our_chart", installs::pods_talk_by_our_chart),
    (
        "another_mode_by_the_chart_rolls_the_pods",
        installs::another_mode_by_the_chart_rolls_the_pods,
    ),
    (
        "pods_talk_by_our_chart_with_the_backend_udp",
        installs::pods_talk_by_our_chart_with_the_backend_udp,
    ),
    (
        "pods_talk_by_flannels_own_manifest_with_our_image",
        installs::pods_talk_by_flannels_own_manifest_with_our_image,
    ),
    (
        "pods_talk_by_flannels_own_chart_with_our_image",
        installs::pods_talk_by_flannels_own_chart_with_our_image,
    ),
    (
        "stock_flannel_comes_and_goes_under_traffic",
        installs::stock_flannel_comes_and_goes_under_traffic,
    ),
];

/// A cluster that starts with the first test.
struct Cluster {
    parts: Result<Parts, String>,
    running: OnceLock<Result<Kubernetes, String>>,
}

impl Cluster {
    fn running(&self) -> Result<&Kubernetes, String> {
        let running = self
            .running
            .get_or_init(|| self.start().map_err(|error| format!("{error:#}")));
        running
            .as_ref()
            .map_err(|error| format!("the cluster did not start: {error}"))
    }

    fn start(&self) -> Result<Kubernetes> {
        let progress = Progress::new();
        let parts = self
            .parts
            .as_ref()
            .map_err(|reason| anyhow::anyhow!(reason.clone()))?;
        let cluster = Kubernetes::start(Lab::new("kubernetes")?, parts, &progress)?;
        cluster.install(&flannel::manifest()?)?;
        progress.say("nodes and the agents' pods are ready");
        paths::servers(&cluster)?;
        progress.say("a server's pod is ready on each node");
        Ok(cluster)
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let cluster = Arc::new(Cluster {
        parts: Parts::find(),
        running: OnceLock::new(),
    });
    let mut reasons = Vec::new();
    let mut trials = Vec::new();
    for (name, test) in TESTS {
        let obstacle = cluster.parts.clone().err().or_else(|| obstacle(name));
        let trial = trial(name, *test, &cluster).with_ignored_flag(obstacle.is_some());
        let is_chosen = !arguments.list && !arguments.is_filtered_out(&trial);
        reasons.extend(obstacle.filter(|reason| is_chosen && !reasons.contains(reason)));
        trials.push(trial);
    }
    for reason in reasons {
        not_run("tests on a Kubernetes cluster", &reason);
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The reason why a test cannot run on this machine, though a cluster can.
fn obstacle(test: &str) -> Option<String> {
    let lacks =
        |part: &str, reason: fn() -> Option<String>| test.contains(part).then(reason).flatten();
    let upstream = || installs::upstream().err();
    lacks("flannels_own", upstream)
        .or_else(|| lacks("stock_flannel", upstream))
        .or_else(|| lacks("stock_flannel", || installs::stock_images().err()))
        .or_else(|| lacks("chart", || installs::charts().err()))
}

fn trial(name: &str, test: Test, cluster: &Arc<Cluster>) -> Trial {
    let cluster = Arc::clone(cluster);
    Trial::test(name, move || {
        test(cluster.running()?).map_err(|error| format!("{error:?}").into())
    })
}
