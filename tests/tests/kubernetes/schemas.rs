//! An update of the agents from maps of another schema, older or newer, while pods talk.
//!
//! All agents are of one image. Between the end of one and the start of the next, a container that
//! starts before the agent gives the directory of the pins the name of another schema, so that for
//! the next agent these are programs and maps of which it only knows the links.

use anyhow::{Context as _, Result, ensure};
use flannel_common::SCHEMA;
use flannel_tests::kubernetes::{Kubernetes, flannel, items};

use super::{paths, traffic::Traffic};

const PINS: &str = "/run/flannel/bpf";
/// The container of the agent, in the manifest.
const AGENT: &str = "      containers:\n";

/// The manifest, with that container.
fn from_another_schema(schema: u32) -> Result<String> {
    let manifest = flannel::manifest()?;
    ensure!(manifest.matches(AGENT).count() == 1, "{manifest}");
    let rename = format!("[ ! -d {PINS}/v{SCHEMA} ] || mv {PINS}/v{SCHEMA} {PINS}/v{schema}");
    let container = format!(
        "      - name: other-schema
        image: flannel-agent:0.1.0
        command: [sh, -c, '{rename}']
        volumeMounts:
        - name: run
          mountPath: /run/flannel
"
    );
    Ok(manifest.replace(AGENT, &format!("{container}{AGENT}")))
}

/// The directory of each schema that has pins on a node. At the root of a bpf filesystem there are
/// files of the kernel, too.
fn pins(cluster: &Kubernetes, node: &str) -> Result<Vec<String>> {
    let files = cluster.node(node)?.run(["ls", PINS])?.stdout;
    let schemas = files
        .split_whitespace()
        .filter(|name| name.starts_with('v'));
    Ok(schemas.map(str::to_owned).collect())
}

/// Every agent replaced programs of another version, and only its own pins are left.
fn expect_taken_over(cluster: &Kubernetes) -> Result<()> {
    let kubectl = cluster.kubectl();
    let namespace = format!("--namespace={}", flannel::NAMESPACE);
    let pods = kubectl.get(["pods", &namespace, "--selector", flannel::LABEL])?;
    ensure!(items(&pods).count() == cluster.nodes.len(), "{pods:#}");
    for pod in items(&pods) {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        let log = kubectl.run(["logs", &namespace, name, "--container=kube-flannel"])?;
        ensure!(
            log.contains("the programs of another version of the agent are replaced"),
            "{name}: {log}"
        );
    }
    for node in &cluster.nodes {
        let pins = pins(cluster, node.name())?;
        ensure!(pins == [format!("v{SCHEMA}")], "{}: {pins:?}", node.name());
    }
    paths::the_agents_are_in_mode_fast(cluster)
}

/// From an older schema as an update is, from a newer one as the way back is.
pub(crate) fn an_update_from_another_schema_loses_no_packet(cluster: &Kubernetes) -> Result<()> {
    let traffic = Traffic::start(cluster)?;
    for other in [SCHEMA - 1, SCHEMA + 1] {
        cluster.roll_out(&from_another_schema(other)?)?;
        expect_taken_over(cluster).with_context(|| format!("from schema {other}"))?;
    }
    cluster.roll_out(&flannel::manifest()?)?;
    traffic.expect_complete()
}
