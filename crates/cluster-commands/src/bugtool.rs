//! `flannel-agent cluster bugtool`: the archives of all nodes in one.
//!
//! A node that cannot be asked is named in `errors.txt` and does not stop the others. Each agent
//! removes secrets from its own archive.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use flannel_bugtool::{Archive, Destination};
use flannel_cluster::{
    client::ClusterClient,
    members::{AgentPods, ClusterNode},
    progress::Progress,
    report::ClusterReport,
};
use flannel_command::json;
use flannel_host::{error_chain::chain, words::count};
use flannel_terminal::color::Paint;
use futures::{StreamExt as _, stream};

use super::{access::ClusterAccess, status};

/// For the archive of one node, which takes 75 s at most.
const LIMIT: Duration = Duration::from_secs(100);
/// Archives in memory at the same time.
const AT_ONCE: usize = 8;
const BUGTOOL: [&str; 4] = ["flannel-agent", "bugtool", "--output", "-"];

/// The archive to write, and the cluster.
#[derive(Debug, Args)]
pub struct ClusterBugtoolOptions {
    /// The archive to write, `-` for standard output; one named by the time in this directory if
    /// not given
    #[arg(short = 'o', long = "output", value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    #[command(flatten)]
    access: ClusterAccess,
}

/// Runs the command; the text to print.
pub(super) async fn run(options: &ClusterBugtoolOptions) -> anyhow::Result<String> {
    let (client, pods) = (options.access.client().await?, options.access.pods());
    let mut progress = Progress::new();
    let report = ClusterReport::ask(&client, &pods, &mut progress, None).await?;
    let members = client.nodes(&pods).await?;
    let mut destination = Destination::new("flannel-cluster-bugtool", options.output.as_deref());
    let archive = Archive::create(&mut destination);
    let failed = || format!("cannot write to {destination}; choose another place with -o");
    let mut archive = archive.with_context(failed)?;
    archive
        .append(
            "cluster-status.txt",
            status::text(&report, Paint(false)).as_bytes(),
        )
        .with_context(failed)?;
    archive
        .append("cluster-status.json", json(&report).as_bytes())
        .with_context(failed)?;
    let mut collected = stream::iter(&members)
        .map(|member| async { (member.name(), of_node(&client, &pods, member).await) });
    let mut collected = std::pin::pin!(collected.by_ref().buffered(AT_ONCE));
    let (mut written, mut missing) = (0, Vec::new());
    while let Some((node, result)) = collected.next().await {
        match result {
            Ok(bytes) => {
                archive
                    .append(&format!("nodes/{node}.tar.gz"), &bytes)
                    .with_context(failed)?;
                written += 1;
            }
            Err(error) => missing.push(format!("{node}: {}", chain(error.as_ref()))),
        }
        progress.show(&format!(
            "{} of {} nodes collected",
            written + missing.len(),
            members.len()
        ));
    }
    let errors: Vec<&str> = missing
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect();
    archive
        .append("errors.txt", errors.concat().as_bytes())
        .with_context(failed)?;
    archive.finish().with_context(failed)?;
    drop(progress);
    if destination.is_stdout() {
        // The reader has the archive, and errors.txt in it.
        return Ok(String::new());
    }
    let mut text = format!(
        "wrote {destination} with the archives of {}\n",
        count(written, "node", "nodes")
    );
    text.extend(missing.iter().map(|line| format!("missing: {line}\n")));
    Ok(text)
}

/// The archive of one node.
async fn of_node(
    client: &ClusterClient,
    pods: &AgentPods,
    member: &ClusterNode,
) -> anyhow::Result<Vec<u8>> {
    let Some(container) = member.agent(pods) else {
        bail!("no pod of flannel in namespace {}", pods.namespace);
    };
    let executed = client.exec(&container, &BUGTOOL, LIMIT).await?;
    if executed.code != 0 {
        bail!(
            "bugtool ended with {}: {}",
            executed.code,
            executed.stderr.trim()
        );
    }
    Ok(executed.stdout)
}
