//! The capabilities of this host and its obstacles to pod networking, for `flannel-agent check`.
//!
//! Runs before the agent is installed, and next to a running one. The probes are the agent's own:
//! its loader, its selection of the external interface, its view of conntrack. They change no state
//! of the host: their maps, programs and directory below the pin root are gone when the probe ends.

mod agent;
mod cni;
mod code;
mod finding;
mod firewall;
mod kernel;
mod network;
mod pin_root;
mod rivals;
mod settings;
mod tools;
#[cfg(test)]
mod topics;

use std::{io, path::Path};

use flannel_datapath::{PinRoot, maps::ConfigMap};
use flannel_document::Document;
use flannel_netlink::{Netlink, NetlinkError};
use flannel_status::Status;
use flannel_store::read_previous_networks;
use serde::Serialize;

pub use self::{
    code::{FindingCode, HostCode},
    finding::{Finding, Level},
    kernel::Best,
};

/// The port of tunnels where nothing says otherwise.
const DEFAULT_PORT: u16 = 8472;

/// The capabilities of a host and its obstacles to pod networking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckReport {
    /// In the order in which a packet would care.
    pub findings: Vec<Finding>,
    /// The most this node could do.
    pub best: Best,
}

impl Document for CheckReport {
    const NAME: &'static str = "check";
}

impl CheckReport {
    /// Returns true if a finding keeps pods from reaching each other.
    pub fn has_failed(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.level == Level::Fail)
    }
}

/// Looks; `agent` is the answer of the agent that runs here. Call inside a Tokio runtime.
pub async fn run(
    pins: &PinRoot,
    state_dir: &Path,
    agent: &io::Result<Status>,
) -> Result<CheckReport, NetlinkError> {
    let (netlink, _events) = Netlink::connect()?;
    let links = netlink.links().await?;
    let pinned = ConfigMap::open(pins).and_then(|map| map.get()).ok();
    let (mut findings, mut best) = kernel::look(&netlink, pins).await;
    findings.push(pin_root::look(pins, &mut best));
    findings.extend(settings::look(&links, state_dir));
    let pods = read_previous_networks(&state_dir.join("subnet.env")).unwrap_or_default();
    findings
        .extend(network::look(&netlink, pins, &links, &pods, pinned.as_ref(), &mut best).await?);
    let port = links.iter().find_map(|link| {
        link.vxlan
            .filter(|_| network::is_flannels(link))
            .map(|vxlan| vxlan.port)
    });
    let port = network::may_have_tunnel(pinned.as_ref()).then(|| port.unwrap_or(DEFAULT_PORT));
    findings.extend(port.map(|port| rivals::look(&links, port)));
    findings.push(tools::look().await);
    findings.extend(firewall::look(port, best.mode()).await);
    findings.extend(firewall::netfilter_programs(pins));
    findings.extend(cni::look());
    findings.extend(agent::look(agent));
    Ok(CheckReport { findings, best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<CheckReport>(CheckReport::NAME, CheckReport::SCHEMA_VERSION);
    }
}
