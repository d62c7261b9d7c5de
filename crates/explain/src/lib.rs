//! Explains what would happen to a packet of a flow on this node, and why.
//!
//! `reading` reads: the pins, the kernel's routes, neighbours and FDB, the verdict of the real
//! programs on a synthetic packet ([`flannel_datapath::load::trial`]). `report` judges, and is
//! pure. The command changes, counts and sends nothing, and it needs no agent. If an agent answers,
//! its status of a peer's path is added.
//!
//! The report does not know if netfilter drops a packet: the rules are the host's, and no reading
//! of them replaces the kernel. With a trace ([`trace()`]) the kernel says it of real packets. Two
//! kinds of rules are read and followed (`nat`): those by which kube-proxy translates Services, and
//! those of masquerade.

mod agent_places;
mod commands;
pub mod document;
mod frame;
mod location;
mod nat;
mod question;
mod reading;
mod report;
mod snapshot;
mod trace;
mod trial;
mod tried;

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::family::Family;
use flannel_netlink::NetlinkError;
use flannel_status::Status;

pub use self::{
    agent_places::AgentPlaces,
    document::{ExplainDocument, StepRow},
    question::{Question, Transport},
    report::{Conclusion, PacketWay, Report, Step, StepState},
    trace::{
        PacketDirection, TraceDrop, TraceError, TraceOutcome, TracePath, TraceReport, TracedRule,
        trace,
    },
    tried::Tried,
};

/// The names of Services (`default/web`) by their addresses, as the rules of kube-proxy have them;
/// none without such rules. `None` if rules cannot be read.
pub async fn service_names() -> Option<BTreeMap<IpAddr, String>> {
    let mut names = BTreeMap::new();
    for family in Family::BOTH {
        names.extend(nat::service_names(family).await?);
    }
    Some(names)
}

/// Explains. `status` is what the agent says of itself, if one runs, and `trace` what packets of
/// the flow met, if they were traced. Call inside a Tokio runtime.
pub async fn explain(
    question: Question,
    places: AgentPlaces<'_>,
    status: Option<Status>,
    trace: Option<TraceReport>,
) -> Result<Report, NetlinkError> {
    Ok(report::build(
        &reading::read(question, places, status, trace).await?,
    ))
}
