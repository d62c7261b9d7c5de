//! The commands on a whole cluster, run outside of it with the administrator's kubeconfig.

pub(crate) mod connectivity;
pub(crate) mod explain;
pub(crate) mod flows;
pub(crate) mod follow;
pub(crate) mod pictures;
mod rights;
#[path = "../../../support/schemas.rs"]
mod schemas;
pub(crate) mod top;

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    agent_binary,
    host::HostCommand,
    kubernetes::{
        Kubernetes,
        flannel::{LABEL, NAMESPACE},
        items,
    },
};
use serde_json::Value;

pub(crate) use self::rights::the_rights_of_the_guide_suffice;

/// Pods start and stop within this time on a machine under load.
const LIMIT: Duration = Duration::from_mins(4);

/// The path of the agent's binary.
fn binary() -> Result<String> {
    Ok(agent_binary()?.display().to_string())
}

/// A command of the agent on the host outside the cluster.
fn operator(cluster: &Kubernetes, words: &[&str]) -> Result<HostCommand> {
    let binary = binary()?;
    let line = [binary.as_str()]
        .into_iter()
        .chain(words.iter().copied())
        .chain([cluster.kubectl().credentials()]);
    Ok(cluster.outside.command(line).limit(LIMIT))
}

/// The document of `cluster status` with these flags, which ends with this code.
fn status(cluster: &Kubernetes, flags: &[&str], code: i32) -> Result<Value> {
    let words: Vec<&str> = ["cluster", "status", "--output=json"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    let status = serde_json::from_str(&operator(cluster, &words)?.expect_code(code).run()?.stdout)?;
    schemas::validate("cluster-status", &status)?;
    Ok(status)
}

fn nodes(status: &Value) -> &[Value] {
    status["nodes"].as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn the_cluster_s_status_has_every_node(cluster: &Kubernetes) -> Result<()> {
    let status = status(cluster, &["--wait=60s"], 0)?;
    ensure!(
        status["ready"] == true && nodes(&status).len() == 3,
        "{status}"
    );
    ensure!(
        status["problems"].as_array().is_some_and(Vec::is_empty),
        "the nodes differ: {status}"
    );
    let objects = cluster.kubectl().get(["nodes"])?;
    for (node, object) in nodes(&status).iter().zip(items(&objects)) {
        ensure!(node["name"] == object["metadata"]["name"], "{node}");
        ensure!(node["subnets"][0] == object["spec"]["podCIDR"], "{node}");
        let address =
            object["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"].clone();
        ensure!(
            !address.is_null() && node["public_addresses"][0] == address,
            "{node}"
        );
        ensure!(
            node["served_by"] == "flannel-agent" && node["mode"]["effective"] == "fast",
            "{node}"
        );
        ensure!(
            node["version"] == "0.1.0" && node["drops"].is_u64(),
            "{node}"
        );
        ensure!(node["refused_leases"] == 0, "{node}");
    }
    let text = operator(cluster, &["cluster", "status"])?.run()?.stdout;
    ensure!(
        text.starts_with("3 nodes: 3 ready; 3 in mode fast\n"),
        "{text}"
    );
    for name in ["n1", "n2", "n3"] {
        ensure!(
            text.lines()
                .any(|line| line.starts_with(&format!("{name}    yes    fast  0.1.0"))),
            "{text}"
        );
    }
    Ok(())
}

pub(crate) fn the_cluster_s_status_says_what_is_not_ready(cluster: &Kubernetes) -> Result<()> {
    // By their annotations they have flannel, as a service of the host may be.
    let none = status(cluster, &["--selector=app=none"], 2)?;
    ensure!(none["ready"].is_null() && nodes(&none).len() == 3, "{none}");
    for node in nodes(&none) {
        ensure!(
            node["ready"].is_null() && node["codes"][0] == "no_pod",
            "{node}"
        );
        ensure!(
            node["problems"][0] == "no pod of flannel in namespace kube-flannel",
            "{node}"
        );
    }
    // Pods without our program, as those of stock flannel are.
    let stock = status(cluster, &["--namespace=default", "--selector=app=web"], 0)?;
    for node in nodes(&stock) {
        ensure!(
            node["served_by"] == "stock-flannel" && node["ready"] == true,
            "{node}"
        );
    }
    let unknown = operator(cluster, &["cluster", "status", "--context=none"])?
        .expect_code(2)
        .run()?;
    ensure!(
        unknown.stderr.contains("the cluster cannot be asked: ") && unknown.stderr.contains("none"),
        "{unknown:?}"
    );
    Ok(())
}

pub(crate) fn the_cluster_s_status_waits_for_an_agent(cluster: &Kubernetes) -> Result<()> {
    // No pod has this label yet.
    let start = Instant::now();
    status(cluster, &["--selector=asked=yes", "--wait=2s"], 2)?;
    ensure!(start.elapsed() >= Duration::from_secs(2), "it did not wait");
    let words = [
        "cluster",
        "status",
        "--selector=asked=yes",
        "--wait=4m",
        cluster.kubectl().credentials(),
    ];
    let waiting = cluster.outside.spawn(
        "cluster-status",
        [binary()?].into_iter().chain(words.map(str::to_owned)),
    )?;
    let label = |label| {
        cluster.kubectl().run([
            "label",
            "pods",
            "--namespace",
            NAMESPACE,
            "--selector",
            LABEL,
            label,
        ])
    };
    label("asked=yes")?;
    waiting.wait_success(LIMIT)?;
    label("asked-")?;
    Ok(())
}

pub(crate) fn one_archive_has_those_of_all_nodes(cluster: &Kubernetes) -> Result<()> {
    let host = &cluster.outside;
    let output = "--output=/run/cluster.tar.gz";
    let said = operator(cluster, &["cluster", "bugtool", output])?
        .run()?
        .stdout;
    ensure!(
        said == "wrote /run/cluster.tar.gz with the archives of 3 nodes\n",
        "{said}"
    );
    let names = host.run(["tar", "-tzf", "/run/cluster.tar.gz"])?.stdout;
    for name in [
        "cluster-status.txt",
        "cluster-status.json",
        "nodes/n1.tar.gz",
        "nodes/n3.tar.gz",
        "errors.txt",
    ] {
        ensure!(
            names
                .lines()
                .any(|line| line.ends_with(&format!("/{name}"))),
            "{name}: {names}"
        );
    }
    let inner = "tar -xzOf /run/cluster.tar.gz --wildcards '*/nodes/n2.tar.gz' | tar -tzf -";
    let inner = host.run(["sh", "-c", inner])?.stdout;
    ensure!(
        inner.contains("/status.json") && inner.contains("/maps.json"),
        "{inner}"
    );
    // By standard output, of nodes that have no such program.
    let line = format!(
        "{} cluster bugtool -o - --namespace=default --selector=app=web {} | tar -xzOf - \
         --wildcards '*/errors.txt'",
        binary()?,
        cluster.kubectl().credentials()
    );
    let errors = host.command(["sh", "-c", &line]).limit(LIMIT).run()?.stdout;
    for name in ["n1: ", "n2: ", "n3: "] {
        ensure!(
            errors.lines().any(|line| line.starts_with(name)),
            "{errors}"
        );
    }
    host.run(["rm", "/run/cluster.tar.gz"])?;
    Ok(())
}

pub(crate) fn kubectl_has_a_plugin(cluster: &Kubernetes) -> Result<()> {
    let host = &cluster.outside;
    let scratch = cluster.lab.large_files("plugin")?;
    let plugin = scratch.join("kubectl-flannel");
    std::os::unix::fs::symlink(binary()?, &plugin)?;
    let path = format!("PATH={}:/usr/bin:/bin", scratch.display());
    let line = cluster.kubectl().command_line();
    let (kubectl, kubeconfig) = line
        .split_once(" --kubeconfig=")
        .context("kubectl's command line")?;
    // The plugin finds the cluster as kubectl does: by the variable.
    let variable = format!("KUBECONFIG={kubeconfig}");
    let words = ["env", &path, &variable, kubectl, "flannel", "status"];
    let text = host.command(words).limit(LIMIT).run()?.stdout;
    ensure!(text.starts_with("3 nodes: 3 ready"), "{text}");
    let help = host
        .run(["env", &path, kubectl, "flannel", "--help"])?
        .stdout;
    for word in ["kubectl flannel", "status", "bugtool", "connectivity"] {
        ensure!(help.contains(word), "{word}: {help}");
    }
    ensure!(!help.contains("cleanup"), "{help}");
    fs::remove_file(plugin)?;
    Ok(())
}
