//! A trace from its beginning to its end.

use std::{
    collections::HashMap,
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};

use flannel_datapath::PinRoot;
use flannel_firewall::nft_family;
use flannel_firewall_tools::legacy;
use flannel_flows::rows::{self, FlowRow};
use flannel_host::family::Family;
use flannel_netfilter::{NftablesReader, PacketTrace, TracedFlow, has_no_owned_tables};
use flannel_netlink::NetlinkError;
use tokio::time::timeout;

use super::{collect::Collector, document::TraceReport, replies, summary, texts};
use crate::{nat, question::Question};

/// Chains without a trace that are named.
const NAMED: usize = 8;

/// A trace that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The kernel has no nf_tables.
    #[error("this kernel has no nf_tables (CONFIG_NF_TABLES), which traces packets")]
    NoNftables,
    /// The table of the trace would outlive a killed process.
    #[error(
        "this kernel has no tables of nf_tables with an owner (Linux 5.12), so the rules of a \
         trace would stay if this \
         command were killed; use `nft monitor trace`"
    )]
    NoOwner(#[source] NetlinkError),
    /// The right is missing.
    #[error("tracing packets needs root, or CAP_NET_ADMIN in the network namespace of the node")]
    Denied(#[source] NetlinkError),
    /// The kernel failed in another way.
    #[error("packets cannot be traced")]
    Kernel(#[source] NetlinkError),
}

impl From<NetlinkError> for TraceError {
    fn from(error: NetlinkError) -> Self {
        match error {
            error if error.is_denied() => Self::Denied(error),
            error if has_no_owned_tables(&error) => Self::NoOwner(error),
            error => Self::Kernel(error),
        }
    }
}

/// Traces the packets of a flow for some time, or until `stop` is ready. `begun` is called once the
/// trace runs. Call inside a Tokio runtime.
///
/// # Errors
/// Packets cannot be traced here.
pub async fn trace(
    question: &Question,
    pins: &PinRoot,
    limit: Duration,
    stop: impl Future<Output = ()>,
    begun: impl FnOnce(),
) -> Result<TraceReport, TraceError> {
    let service = nat::service(question).await;
    let before = rows::read(pins).unwrap_or_default();
    let flow = replies::flow(question, Some(&service), &before);
    let mut trace = PacketTrace::start(&flow)?.ok_or(TraceError::NoNftables)?;
    let (mut collector, beginning) = (Collector::default(), Instant::now());
    begun();
    let collected = timeout(limit, async {
        tokio::select! {
            failed = collect(&mut trace, &mut collector) => failed,
            () = stop => Ok(()),
        }
    });
    // The end of the time is not an error.
    collected.await.unwrap_or(Ok(()))?;
    let now = Instant::now();
    let (matched, events) = trace.finish()?;
    for event in events {
        collector.take(event, now);
    }
    let events_lost = collector.lost;
    let mut report = TraceReport {
        milliseconds: u64::try_from(now.duration_since(beginning).as_millis()).unwrap_or(u64::MAX),
        seen: matched.original,
        seen_replies: matched.reply,
        replayed: replayed(
            question,
            &flow,
            &before,
            &rows::read(pins).unwrap_or_default(),
        ),
        untraced: untraced(Family::of(question.destination))?,
        events_lost,
        ..summary::report(&collector.finish(now))
    };
    texts::add(&mut report).await;
    Ok(report)
}

/// Collects events until the socket fails.
async fn collect(trace: &mut PacketTrace, collector: &mut Collector) -> Result<(), NetlinkError> {
    loop {
        let event = trace.next().await?;
        collector.take(event, Instant::now());
    }
}

/// The packets of both directions by which the counters of mode `fast` grew.
fn replayed(question: &Question, flow: &TracedFlow, before: &[FlowRow], after: &[FlowRow]) -> u64 {
    let key = |row: &FlowRow| (row.device, row.source, row.destination);
    let known: HashMap<(u32, SocketAddr, SocketAddr), u64> =
        before.iter().map(|row| (key(row), row.packets)).collect();
    let is_asked = |row: &&FlowRow| {
        replies::is_original(row, question) || replies::is_reply(row, question, flow)
    };
    let grown = |row: &FlowRow| match known.get(&key(row)) {
        // A smaller number is that of a flow that was learned again.
        Some(packets) if *packets <= row.packets => row.packets - packets,
        _ => row.packets,
    };
    after.iter().filter(is_asked).map(grown).sum()
}

/// The rules of this node that a trace does not see: those of devices and bridges, which packets
/// may meet before it begins, and those of the legacy iptables.
fn untraced(family: Family) -> Result<Vec<String>, NetlinkError> {
    let mut found = Vec::new();
    let tables = legacy::tables(family);
    if !tables.is_empty() {
        found.push(format!(
            "legacy {}: {}",
            legacy::base(family),
            tables.join(", ")
        ));
    }
    if let Some(mut reader) = NftablesReader::open()? {
        reader.base_chains(|chain| {
            let name = nft_family(chain.table.family)
                .filter(|family| ["bridge", "netdev"].contains(family));
            if let Some(family) = name.filter(|_| found.len() < NAMED) {
                found.push(format!("{family} {} {}", chain.table.name, chain.name));
            }
        })?;
    }
    Ok(found)
}
