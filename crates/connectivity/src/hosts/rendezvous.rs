//! Steps of a test that all hosts take together: each writes what it has, and waits for the others.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use flannel_cluster::progress::Progress;
use flannel_store::etcd::MeetingPlace;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use super::record::{Member, Start};

/// Between looks at what other hosts wrote.
const PERIOD: Duration = Duration::from_millis(300);
/// The name of the test that is under way.
const START: &str = "start";
/// Names of hosts begin with this.
const MEMBERS: &str = "member/";

/// This host at the meeting place.
pub(super) struct Rendezvous {
    place: MeetingPlace,
    name: String,
}

/// The hosts that are waited for before a test begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// Their number; that of leases if absent.
    pub hosts: Option<usize>,
    /// The longest wait, after which two are enough.
    pub limit: Duration,
}

impl Rendezvous {
    /// Shows this host to the others.
    pub(super) async fn join(mut place: MeetingPlace, member: &Member) -> anyhow::Result<Self> {
        let round = async {
            let joined = place
                .create(
                    &format!("{MEMBERS}{}", member.name),
                    &serde_json::to_string(member)?,
                )
                .await?;
            anyhow::ensure!(
                joined,
                "a host named {} takes part already: name this one by --name; after a test that \
                 was killed, wait half a minute",
                member.name
            );
            Ok(())
        };
        round.await?;
        Ok(Self {
            place,
            name: member.name.clone(),
        })
    }

    /// Waits until enough hosts are there, and for the one of them that begins. Returns the test
    /// and the number of leases.
    pub(super) async fn begin(
        &mut self,
        wanted: Start,
        quorum: Quorum,
        progress: &mut Progress,
    ) -> anyhow::Result<(Start, usize)> {
        let deadline = Instant::now() + quorum.limit;
        loop {
            let leases = self.place.leases().await?;
            if let Some(start) = self.place.read(START).await? {
                return Ok((self.ours(&start)?, leases));
            }
            let members = self.members().await?;
            let hosts = quorum.hosts.unwrap_or(leases).max(2);
            progress.show(&format!("{} of {hosts} hosts are there", members.len()));
            if members.len() >= hosts || (Instant::now() >= deadline && members.len() > 1) {
                let start = Start {
                    members,
                    ..wanted.clone()
                };
                // If another host was faster, the next look finds what it wrote.
                self.place
                    .create(START, &serde_json::to_string(&start)?)
                    .await?;
                continue;
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "no other host took part within {} s: run this command on each host at about the \
                 same time",
                quorum.limit.as_secs()
            );
            sleep(PERIOD).await;
        }
    }

    /// Writes what this host has for a step, and waits for the others; `None` for those that left
    /// or took too long.
    pub(super) async fn exchange<T: Serialize + DeserializeOwned>(
        &mut self,
        start: &Start,
        step: &str,
        own: &T,
        limit: Duration,
        progress: &mut Progress,
    ) -> anyhow::Result<BTreeMap<String, Option<T>>> {
        let key = |member: &str| format!("run/{}/{step}/{member}", start.run);
        self.place
            .put(&key(&self.name), &serde_json::to_string(own)?)
            .await?;
        let deadline = Instant::now() + limit;
        let mut found = BTreeMap::new();
        loop {
            for member in start.members.iter().map(|member| &member.name) {
                if found.contains_key(member) {
                    continue;
                }
                // In this order: what a host wrote stays when it leaves.
                let is_gone = self
                    .place
                    .read(&format!("{MEMBERS}{member}"))
                    .await?
                    .is_none();
                let value = self.place.read(&key(member)).await?;
                if let Some(text) = value {
                    let value = serde_json::from_str(&text)
                        .with_context(|| format!("cannot read what {member} wrote"))?;
                    found.insert(member.clone(), Some(value));
                } else if is_gone || Instant::now() >= deadline {
                    found.insert(member.clone(), None);
                }
            }
            progress.show(&format!(
                "{} of {} hosts are done",
                found.len(),
                start.members.len()
            ));
            if found.len() == start.members.len() {
                return Ok(found);
            }
            sleep(PERIOD).await;
        }
    }

    /// Takes this host away. The last step has to be over for all that count on it.
    pub(super) async fn leave(&mut self, run: Option<&str>) -> anyhow::Result<()> {
        self.place
            .remove(&format!("{MEMBERS}{}", self.name))
            .await?;
        let start = self
            .place
            .read(START)
            .await?
            .and_then(|text| serde_json::from_str::<Start>(&text).ok());
        if start.is_some_and(|start| Some(start.run.as_str()) == run) {
            self.place.remove(START).await?;
        }
        Ok(())
    }

    async fn members(&mut self) -> anyhow::Result<Vec<Member>> {
        let members = self.place.list(MEMBERS).await?;
        let read = |(name, text): (&String, &String)| {
            serde_json::from_str(text).with_context(|| format!("cannot read what {name} wrote"))
        };
        members.iter().map(read).collect()
    }

    /// Reads a test that has begun; an error if this host is not in it.
    fn ours(&self, text: &str) -> anyhow::Result<Start> {
        let start: Start =
            serde_json::from_str(text).context("cannot read the test that has begun")?;
        let names: Vec<_> = start
            .members
            .iter()
            .map(|member| member.name.as_str())
            .collect();
        anyhow::ensure!(
            names.contains(&self.name.as_str()),
            "a test of {} is under way, or was killed less than half a minute ago: run this again \
             when it is over",
            names.join(", ")
        );
        Ok(start)
    }
}
