//! Programs attached to a device: TCX programs and tc filters.

use std::{fmt, fs};

use anyhow::{Context as _, Result};
use aya::programs::{SchedClassifier, TcAttachType};
use flannel_datapath::AttachKind;
use serde_json::Value;

use crate::{Host, not_run};

/// A side of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Incoming packets.
    Ingress,
    /// Outgoing packets.
    Egress,
}

impl Side {
    /// As aya names it.
    pub const fn attach_type(self) -> TcAttachType {
        match self {
            Self::Ingress => TcAttachType::Ingress,
            Self::Egress => TcAttachType::Egress,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The place of each program of an agent: program, device, side.
pub const HOOKS: [(&str, &str, Side); 3] = [
    ("to_tunnel", "flannel.1", Side::Egress),
    ("from_underlay", "eth0", Side::Ingress),
    ("to_underlay", "eth0", Side::Egress),
];

/// Names of the TCX programs on one side of a device, in the order in which they run.
pub fn tcx(host: &Host, device: &str, side: Side) -> Result<Vec<String>> {
    host.enter(|| {
        tcx_here(device, side.attach_type())
            .with_context(|| format!("TCX programs at {device} {side}"))
    })?
}

/// The same in the network namespace of this thread; none on a kernel without TCX (before Linux
/// 6.6).
pub(crate) fn tcx_here(device: &str, side: TcAttachType) -> Result<Vec<String>> {
    if AttachKind::detect() != AttachKind::Tcx {
        return Ok(Vec::new());
    }
    let (_, programs) = SchedClassifier::query_tcx(device, side)?;
    Ok(programs
        .iter()
        .map(|program| program.name_as_str().unwrap_or("?").to_owned())
        .collect())
}

/// True if this kernel has no TCX, which is then reported as the reason why `what` did not run.
pub fn lacks_tcx(what: &str) -> bool {
    let lacks = AttachKind::detect() != AttachKind::Tcx;
    if lacks {
        not_run(what, "this kernel has no TCX (Linux 6.6)");
    }
    lacks
}

/// Names of the BPF programs among the tc filters on one side of a device, in the order in which
/// they run.
pub fn filters(host: &Host, device: &str, side: Side) -> Result<Vec<String>> {
    let entries: Vec<Value> = host.json(&[
        "tc",
        "-j",
        "filter",
        "show",
        "dev",
        device,
        &side.to_string(),
    ])?;
    let names = entries
        .iter()
        .filter(|entry| entry["kind"] == "bpf" && entry["options"]["handle"].is_string());
    Ok(names
        .map(|entry| {
            entry["options"]["bpf_name"]
                .as_str()
                .unwrap_or("?")
                .to_owned()
        })
        .collect())
}

/// Returns the programs on one side of a device: TCX programs, then filters.
pub fn programs(host: &Host, device: &str, side: Side) -> Result<Vec<String>> {
    let mut all = tcx(host, device, side)?;
    all.extend(filters(host, device, side)?);
    Ok(all)
}

/// The programs of an agent that are not exactly once where they belong; empty when all are.
pub fn misplaced(host: &Host) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (program, device, side) in HOOKS {
        let found = programs(host, device, side)?;
        if found.iter().filter(|name| name.as_str() == program).count() != 1 {
            wrong.push(format!("{program} at {device} {side}: {found:?}"));
        }
    }
    Ok(wrong)
}

/// The interface index of a device.
pub fn ifindex(host: &Host, device: &str) -> Result<u32> {
    let text = fs::read_to_string(host.outside_path(format!("/sys/class/net/{device}/ifindex")))?;
    text.trim().parse().context("an interface index")
}
