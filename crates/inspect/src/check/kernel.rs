//! The kernel: its version, its modules, and what it lets our programs do.

use std::{fs, path::Path};

use flannel_common::abi::mode::Mode;
use flannel_datapath::{
    AttachKind, FlowTable, PinRoot,
    load::probe::{self, Accepted},
    maps::room::KernelLimit,
};
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::Netlink;
use flannel_privileges::{self as privileges, Privileges};
use nix::sys::utsname::uname;
use serde::Serialize;

use super::{code::HostCode, finding::Finding};

/// The oldest kernel whose route look-ups report what the agent asks for.
const OLDEST: (u32, u32) = (4, 13);
/// Before this one the counters of a pod's interface miss replayed packets.
const COUNTS_IN_PODS: (u32, u32) = (6, 8);

/// The most this node could do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Best {
    /// `kernel`, `encap` or `fast`.
    #[cfg_attr(test, schemars(with = "flannel_json_schema::types::ModeName"))]
    pub mode: String,
    /// The reason why no higher mode is possible; absent for `fast`.
    pub reason: Option<String>,
}

impl Best {
    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode.parse().unwrap_or(Mode::Kernel)
    }

    /// No more than this, because of that.
    pub(super) fn lower(&mut self, mode: Mode, reason: &str) {
        if mode < self.mode() {
            *self = Self {
                mode: mode.to_string(),
                reason: Some(reason.to_owned()),
            };
        }
    }
}

/// Returns the findings and the best mode that they allow.
pub(super) async fn look(netlink: &Netlink, pins: &PinRoot) -> (Vec<Finding>, Best) {
    let mut best = Best {
        mode: Mode::Fast.to_string(),
        reason: None,
    };
    let mut findings = vec![version(), privileges(), vxlan(), attach()];
    findings.extend(programs(pins, &mut best));
    findings.push(nexthops(netlink).await);
    (findings, best)
}

fn version() -> Finding {
    let release = uname().map_or_else(
        |_| String::new(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    let text = format!("Linux {release}");
    match parse_version(&release) {
        Some(version) if version < OLDEST => Finding::fail(
            HostCode::OldKernel,
            text,
            format!("use Linux {}.{} or newer", OLDEST.0, OLDEST.1),
        ),
        Some(version) if version < COUNTS_IN_PODS => Finding::ok(
            "kernel",
            format!(
                "{text}; in mode fast the receive counters of pods' interfaces miss replayed \
                 packets (before 6.8)"
            ),
        ),
        _ => Finding::ok("kernel", text),
    }
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn privileges() -> Finding {
    if let Err(error) = privileges::check() {
        let remedy = "run as root: without, half of this check says nothing";
        return Finding::fail(HostCode::Privileges, chain(error.as_ref()), remedy);
    }
    let Ok(held) = Privileges::current() else {
        return Finding::ok("privileges", "this process may change the network");
    };
    let filtered = if held.status().seccomp {
        "; a seccomp profile filters its system calls"
    } else {
        ""
    };
    match &*held.missing() {
        [] => Finding::ok(
            "privileges",
            format!("this process may change the network and load programs{filtered}"),
        ),
        missing => Finding::warn(
            HostCode::Privileges,
            format!(
                "this process may change the network, but {}{filtered}",
                missing.join("; ")
            ),
            "grant CAP_BPF and CAP_PERFMON to the agent for the eBPF datapath",
        ),
    }
}

fn vxlan() -> Finding {
    if Path::new("/sys/module/vxlan").exists() {
        return Finding::ok("vxlan", "the module is there");
    }
    let release = uname().map_or_else(
        |_| String::new(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    let listed = ["modules.builtin", "modules.dep"].iter().any(|list| {
        let list = fs::read_to_string(format!("/lib/modules/{release}/{list}"));
        list.is_ok_and(|list| {
            list.lines()
                .any(|line| line.contains("/vxlan.ko") || line.contains("/vxlan/vxlan.ko"))
        })
    });
    if listed {
        Finding::ok(
            "vxlan",
            "the module is not loaded, and can be: the kernel does so by itself",
        )
    } else {
        Finding::warn(
            HostCode::VxlanModule,
            "the module is neither loaded nor to be found here",
            "load it (modprobe vxlan); on many systems it is in a package of its own \
             (linux-modules-extra). host-gw needs none",
        )
    }
}

fn attach() -> Finding {
    match AttachKind::detect() {
        AttachKind::Tcx => Finding::ok("attach", "programs are attached by TCX"),
        AttachKind::Clsact => Finding::ok(
            "attach",
            "programs are attached by clsact filters; TCX is from Linux 6.6 on",
        ),
    }
}

/// Tries what the programs can do here, and lowers `best` to the mode that this allows.
fn programs(pins: &PinRoot, best: &mut Best) -> Vec<Finding> {
    let accepted = match probe::programs(Some(pins)) {
        Ok(accepted) => accepted,
        Err(error) => {
            let reason = chain(&error);
            best.lower(Mode::Kernel, &reason);
            let remedy = "packets take the kernel's path, which is complete; mode encap needs \
                Linux 5.13, CAP_BPF and CAP_PERFMON";
            return vec![
                Finding::warn(HostCode::Programs, reason, remedy),
                unguarded(),
            ];
        }
    };
    vec![
        room(&accepted, best),
        polls(&accepted, best),
        flow_table(),
        btf(),
        conntrack(),
    ]
}

/// Reports that the kernel accepts the programs, and if it refuses to make room for headers.
fn room(accepted: &Accepted, best: &mut Best) -> Finding {
    let Some(KernelLimit { mode, reason }) = &accepted.limit else {
        return Finding::ok(
            "programs",
            "the kernel takes the programs, and makes and takes room for headers",
        );
    };
    best.lower(*mode, reason);
    Finding::warn(
        HostCode::Programs,
        reason.as_str(),
        "packets take the kernel's path, which is complete",
    )
}

fn polls(accepted: &Accepted, best: &mut Best) -> Finding {
    let Err(error) = &accepted.polls else {
        return Finding::ok(
            "fast",
            "the kernel reports its NAPI polls, which mode fast needs",
        );
    };
    let reason = chain(error);
    best.lower(Mode::Encap, &reason);
    Finding::warn(
        HostCode::NapiPolls,
        reason,
        "packets take the path of mode encap",
    )
}

fn btf() -> Finding {
    if probe::reads_conntrack() {
        return Finding::ok(
            "btf",
            "the kernel's type information (BTF) has the offset of a packet's conntrack entry",
        );
    }
    Finding::warn(
        HostCode::Btf,
        "the kernel's type information (BTF) lacks the offset of a packet's conntrack entry",
        "mode fast learns a flow only together with its way back; a kernel with \
         CONFIG_DEBUG_INFO_BTF needs that for TCP alone",
    )
}

fn conntrack() -> Finding {
    match flannel_fast::tcp_obstacle() {
        None => Finding::ok(
            "conntrack",
            "conntrack is set as mode fast asks for, or not in use: mode fast replays TCP",
        ),
        Some(obstacle) if obstacle.can_be_set() => Finding::ok(
            "conntrack",
            format!("{obstacle}: the agent sets it in mode fast, unless --conntrack-liberal=false"),
        ),
        Some(obstacle) => Finding::warn(
            HostCode::Conntrack,
            obstacle.to_string(),
            "TCP takes the path of mode encap; a kernel with BTF and nf_conntrack_netlink needs no \
             more than that",
        ),
    }
}

/// Reports how many flows mode `fast` would hold here, if the agent ran in the cgroup of this
/// process.
fn flow_table() -> Finding {
    /// The flows that the table of a small machine holds.
    const FEW: u32 = 1 << 14;
    let FlowTable { flows, reason } = FlowTable::plan(None, &[Family::V4]);
    let text = format!("mode fast holds {flows} flows of IPv4 in a process such as this: {reason}");
    if flows < FEW {
        let remedy = "raise the memory limit of the agent; flows beyond the table take the path of \
            mode encap";
        return Finding::warn(HostCode::FlowTable, text, remedy);
    }
    Finding::ok("flows", text)
}

/// The price of a node without programs that no counter shows.
fn unguarded() -> Finding {
    Finding::warn(
        HostCode::Unguarded,
        "outer off (enforce is the default: no eBPF): the kernel's tunnel device accepts VXLAN \
         packets of any sender",
        "let a packet filter accept the tunnel port from nodes of the cluster alone",
    )
}

async fn nexthops(netlink: &Netlink) -> Finding {
    match netlink.nexthops().await {
        Ok(Some(_)) => Finding::ok(
            "nexthops",
            "nexthop objects are there, for clusters of thousands of nodes",
        ),
        Ok(None) => Finding::ok(
            "nexthops",
            "there are no nexthop objects (Linux 5.3): routes are plain in large clusters too",
        ),
        Err(error) => Finding::warn(
            HostCode::NexthopObjects,
            chain(&error),
            "routes are plain in large clusters too",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_kernels_print_them() {
        assert_eq!(parse_version("6.1.0-37-amd64"), Some((6, 1)));
        assert_eq!(
            parse_version("5.15.167.4-microsoft-standard-WSL2"),
            Some((5, 15))
        );
        assert_eq!(parse_version("x"), None);
    }

    #[test]
    fn the_least_mode_and_its_reason_win() {
        let mut best = Best {
            mode: "fast".to_owned(),
            reason: None,
        };
        best.lower(Mode::Kernel, "first");
        best.lower(Mode::Encap, "second");
        assert_eq!(
            (best.mode(), best.reason.as_deref()),
            (Mode::Kernel, Some("first"))
        );
    }
}
