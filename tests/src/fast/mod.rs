//! Two nodes with agents in mode `fast`, as an operator runs them.

mod conversation;
mod lab;

pub use self::{
    conversation::{Conversation, Family, PORT},
    lab::FastLab,
};

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{Agent, Pair, Pod, bare::Talk, eventually};

/// The flags of an agent in mode `fast`. With masquerade, as in most clusters: conntrack works for whoever asks it to.
pub const FLAGS: [&str; 2] = ["--datapath=fast", "--ip-masq=true"];

impl Agent {
    /// Packets of known flows taken so far: from pods, and out of the tunnel.
    pub fn replayed(&self) -> Result<u64> {
        Ok(self.counted("from_pod", "replayed")? + self.counted("from_underlay", "replayed")?)
    }

    /// What `status` says of a pod of this node in mode `fast`.
    pub fn pod_status(&self, pod: &Pod) -> Result<Value> {
        let status = self.status()?;
        let pods = status["fast"]["pods"].as_array().with_context(|| format!("not in mode fast: {status}"))?;
        let row = pods.iter().find(|row| row["veth"] == pod.veth());
        row.cloned().with_context(|| format!("no pod {} in {pods:?}", pod.veth()))
    }

    /// Waits until packets from and to this pod may be replayed, or may not, as `status` says.
    pub fn wait_pod(&self, pod: &Pod, sends: bool, receives: bool) -> Result<()> {
        eventually(&format!("{}: sends {sends}, receives {receives}", pod.veth()), Duration::from_secs(10), || {
            let row = self.pod_status(pod)?;
            ensure!(row["sends"] == sends && row["receives"] == receives, "{row}");
            Ok(())
        })
    }

    /// The generation of what was learned, from `datapath show`.
    pub fn generation(&self) -> Result<u64> {
        let shown = self.cli_json(&["datapath", "show", "-o", "json"])?;
        shown["generation"].as_u64().with_context(|| shown.to_string())
    }
}

/// Two nodes in mode `fast` with a router between them and a pod on each that takes part.
pub fn fast_pair(name: &str, flags: &[&str]) -> Result<Pair> {
    let flags: Vec<&str> = FLAGS.iter().chain(flags).copied().collect();
    let pair = Pair::with_flags(name, &flags)?;
    pair.sender.wait_pod(&pair.near, true, true)?;
    pair.receiver.wait_pod(&pair.far, true, true)?;
    Ok(pair)
}

impl Pair {
    /// A connection from the near pod to the far one.
    pub fn talk(&self) -> Result<Talk> {
        Talk::open(&self.near, &self.far, (self.far.ip(), 0).into(), None)
    }

    /// Exchanges messages until so many packets more are replayed on each node.
    pub fn talk_until_replayed(&self, talk: &mut Talk, packets: u64) -> Result<()> {
        let start = [self.sender.replayed()?, self.receiver.replayed()?];
        eventually("replayed packets", Duration::from_secs(20), || {
            talk.exchange(100)?;
            for (agent, start) in [&self.sender, &self.receiver].into_iter().zip(start) {
                let replayed = agent.replayed()? - start;
                ensure!(
                    replayed >= packets,
                    "{replayed} of {packets}: {}",
                    agent.cli(&["maps", "dump", "stats"])?.stdout
                );
            }
            Ok(())
        })
    }
}
