//! A test namespace on this host, seen from outside: its process, and its place on the bridge.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use flannel_netlink::{Netlink, VethSpec};
use ipnet::IpNet;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{
    bridge::ContainerBridge,
    inside::{Ask, DEVICE, NamespaceAnswer},
};
use crate::{
    run::PROBES,
    target::{Outcome, Target},
};

/// This program, also where its file was replaced since it started.
const PROGRAM: &str = "/proc/self/exe";
/// For an answer that takes no probes.
const LIMIT: Duration = Duration::from_secs(20);

/// The namespace. It ends, with its devices, when this is dropped.
#[derive(Debug)]
pub(super) struct TestNetns {
    /// Ended when dropped. So is the process if this one is killed: its input ends.
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl TestNetns {
    /// Starts the process; the namespace has no devices yet.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.args(["connectivity", "namespace"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .context("cannot start the process of a test namespace")?;
        let piped = child.stdin.take().zip(child.stdout.take());
        let (input, output) = piped.context("the process of a test namespace has no pipes")?;
        let mut netns = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        netns.done().await?;
        Ok(netns)
    }

    /// Puts it on the bridge with these addresses.
    pub(super) async fn connect(
        &mut self,
        netlink: &Netlink,
        bridge: &ContainerBridge,
        addresses: Vec<IpNet>,
        mtu: u32,
    ) -> anyhow::Result<()> {
        let spec = VethSpec {
            name: format!("flct{:08x}", rand::random::<u32>()),
            bridge: bridge.index,
            peer: DEVICE.to_owned(),
            pid: self
                .child
                .id()
                .context("the process of a test namespace has ended")?,
            mtu,
        };
        netlink.create_veth(&spec).await?;
        let gateways = bridge.gateways.iter().map(IpNet::addr).collect();
        self.ask(&Ask::Configure {
            addresses,
            gateways,
        })
        .await?;
        self.done().await
    }

    /// Starts its server.
    pub(super) async fn serve(&mut self, name: String, port: u16) -> anyhow::Result<()> {
        self.ask(&Ask::Serve { name, port }).await?;
        self.done().await
    }

    /// Probes targets from it.
    pub(super) async fn probe(
        &mut self,
        targets: &[Target],
        patience: Duration,
    ) -> anyhow::Result<Vec<Outcome>> {
        let targets = targets.iter().map(ToString::to_string).collect();
        self.ask(&Ask::Probe { patience, targets }).await?;
        match self.reply(patience + PROBES).await? {
            NamespaceAnswer::Outcomes(outcomes) => Ok(outcomes),
            other => bail!("an unexpected answer of a test namespace: {other:?}"),
        }
    }

    async fn ask(&mut self, ask: &Ask) -> anyhow::Result<()> {
        let line = serde_json::to_string(ask)? + "\n";
        self.input
            .write_all(line.as_bytes())
            .await
            .context("the process of a test namespace has ended")
    }

    async fn done(&mut self) -> anyhow::Result<()> {
        match self.reply(LIMIT).await? {
            NamespaceAnswer::Done => Ok(()),
            other => bail!("an unexpected answer of a test namespace: {other:?}"),
        }
    }

    async fn reply(&mut self, limit: Duration) -> anyhow::Result<NamespaceAnswer> {
        let line = timeout(limit, self.output.next_line())
            .await
            .with_context(|| {
                format!(
                    "the process of a test namespace does not answer within {} s",
                    limit.as_secs()
                )
            })??;
        // It said why on standard error, which is ours.
        let line = line.context("the process of a test namespace has ended")?;
        match serde_json::from_str(&line)? {
            NamespaceAnswer::Failed(problem) => Err(anyhow!("in a test namespace: {problem}")),
            reply => Ok(reply),
        }
    }
}
