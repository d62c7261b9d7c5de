//! A Service: kube-proxy's rules stay in charge, and its packets take the fast path.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Cluster, page::Page};
use crate::{
    eventually,
    fast::{Conversation, Family},
    load::rr::Protocol,
    service_rules::{Backend, Service, ServiceRules},
};

/// Packets that must have taken the fast path.
const ENOUGH: u64 = 1000;

/// A connection from a pod of node a to a pod of node c by the address of a Service.
pub(super) fn fast(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let (family, agent) = (Family::V4, &cluster.agents[0]);
    let rules = ServiceRules::install(&cluster.net.a, Backend::Nftables, family.pods())?;
    let service = Service::new(
        family.service(1),
        Protocol::Tcp,
        [family.end(cluster.far())?],
    );
    rules.set(std::slice::from_ref(&service))?;
    let before = agent.replayed()?;
    let (near, far) = (cluster.near(), cluster.far());
    let mut talk = Conversation::open(
        Protocol::Tcp,
        near,
        far,
        service.backends[0],
        Some(service.at),
    )?;
    let mut messages = 0;
    eventually("packets on the fast path", Duration::from_secs(20), || {
        talk.exchange(200)?;
        messages += 200;
        let replayed = agent.replayed()? - before;
        ensure!(replayed >= ENOUGH, "{replayed} of {ENOUGH}");
        Ok(())
    })?;
    let flows = agent.cli(&["maps", "dump", "flows"])?.stdout;
    let address = service.at.to_string();
    page.line(&format!(
        "{messages} requests to {address}; the flow, as node a has it in its BPF map:"
    ));
    let is_shown = |line: &&str| line.starts_with("PROTO") || line.contains(&address);
    for line in flows.lines().filter(is_shown).take(3) {
        page.line(line.trim_end());
    }
    page.expect(flows.contains(&address), "no flow of the Service");
    page.proved(
        "kube-proxy chooses the backend, and later packets repeat its choice past the host's stack",
    );
    rules.set(&[])
}
