//! `flannel-agent status`: the agent's report on itself or, when none runs, what its pins still
//! show.

use std::{collections::BTreeMap, fmt::Write as _, io, path::Path, time::Duration};

use anyhow::Context as _;
use clap::Args;
use flannel_backends::carried_way;
use flannel_command::{
    Answer, PinOptions, PrintOptions, StateOptions, WaitOptions,
    problem_lines::{self, ProblemLine},
};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::{ConfigMap, ModeMap, StatsMap},
    maps::{
        guard::GuardMap,
        peers::{PinnedPeer, pinned_peers},
    },
};
use flannel_host::{
    clock::unix_now as now,
    duration,
    error_chain::chain,
    sysctl_record::{ChangedSysctl, Record},
    words::count,
};
use flannel_observe::socket::{agent_process, ask_status};
use flannel_status::{
    CheckStatus, FastStatus, GuardStatus, InterfaceStatus, LeaseStatus, ModeSource, ModeStatus,
    NodeSettingStatus, PeerStatus, PodStatus, PrivilegesStatus, Problem, ProblemCode, Status,
    StoreStatus, UnreachableStatus,
};
use flannel_terminal::{color::Paint, table};
use tokio::time::{Instant, sleep};

use super::{cloud, echo, extension, guard::mode as check_mode, ipsec, udp, wireguard};

/// Exit codes of a node that is not ready, and of one without an agent.
const NOT_READY: u8 = 1;
const NO_AGENT: u8 = 2;
/// The time between two questions while waiting.
const PERIOD: Duration = Duration::from_millis(200);

/// The time to wait, the output format, the colours, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct StatusOptions {
    #[command(flatten)]
    wait: WaitOptions,
    #[command(flatten)]
    print: PrintOptions,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print, and 0 if the node is ready.
pub async fn run(options: &StatusOptions) -> anyhow::Result<Answer> {
    let dir = &options.state.state_dir;
    let mut status = match ask(dir, options.wait.limit()).await? {
        Asked::Answered(status) => *status,
        Asked::NoAgent => from_pins(options, "no agent is running")?,
        Asked::Hangs => from_pins(options, &hanging(agent_process(dir).await.ok()))?,
    };
    // A node without programs has no counters.
    status.drops = StatsMap::open(&options.pins.root_of(Some(&status)))
        .and_then(|stats| stats.drops())
        .ok();
    let text = options.print.print(&status, |paint| text(&status, paint));
    Ok(Answer {
        text,
        code: code(&status),
    })
}

fn code(status: &Status) -> u8 {
    match status.pid {
        _ if status.ready => 0,
        Some(_) => NOT_READY,
        None => NO_AGENT,
    }
}

/// The agent's answer.
enum Asked {
    Answered(Box<Status>),
    NoAgent,
    /// It has the socket, and no answer came in time.
    Hangs,
}

/// Asks the agent until it is ready or the time is over.
async fn ask(dir: &Path, wait: Duration) -> anyhow::Result<Asked> {
    let deadline = Instant::now() + wait;
    loop {
        let answer = match ask_status(dir).await {
            Ok(status) => Ok(Asked::Answered(Box::new(status))),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(Asked::NoAgent)
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(Asked::Hangs),
            Err(error) => Err(error),
        };
        let is_final = match &answer {
            Ok(Asked::Answered(status)) => status.ready,
            Ok(Asked::NoAgent | Asked::Hangs) => false,
            Err(_) => true,
        };
        if is_final || Instant::now() >= deadline {
            return answer.with_context(|| {
                format!(
                    "the agent with state directory {} does not answer",
                    dir.display()
                )
            });
        }
        sleep(PERIOD.min(deadline - Instant::now())).await;
    }
}

/// The stage of an agent that does not answer.
fn hanging(process: Option<i32>) -> String {
    let process = process
        .map(|pid| format!(" (process {pid})"))
        .unwrap_or_default();
    format!("the agent{process} does not answer")
}

/// The status without the agent's answer, of which there is none for this reason.
fn from_pins(options: &StatusOptions, reason: &str) -> anyhow::Result<Status> {
    let pins = options.pins.root();
    let mode = match ModeMap::open(&pins) {
        Ok(mode) => Some(mode),
        Err(error) if error.is_absent() => None,
        Err(error) => return Err(error.into()),
    };
    let root = pins.root().display();
    let stage = match mode {
        Some(_) => format!("{reason}; this is read from its pins"),
        None => format!(
            "{reason}, and nothing is pinned below {root}: it never ran here, ran without eBPF, or \
             was cleaned up"
        ),
    };
    let peers = if mode.is_some() {
        peers_of(&pins)?
    } else {
        Vec::new()
    };
    let guard = if mode.is_some() {
        guard_of(&pins)?
    } else {
        None
    };
    let word = mode.map(|mode| mode.get()).transpose()?.unwrap_or_default();
    let mode = ModeStatus {
        effective: word.mode().to_string(),
        wanted: word.choice().unwrap_or(word.mode()).to_string(),
        source: if word.choice().is_some() {
            ModeSource::RunTime
        } else {
            ModeSource::Default
        },
        reason: None,
        attach: None,
    };
    let record = Record::load(&options.state.state_dir);
    let error = record.as_ref().err().map(|error| chain(error));
    let sysctls = record.unwrap_or_default().changed().to_vec();
    let mut status = Status {
        guard,
        peers,
        sysctls,
        error,
        ..Status::without_agent(&stage, mode)
    };
    status.find_problems(now());
    Ok(status)
}

/// The guard; none without a tunnel.
fn guard_of(pins: &PinRoot) -> Result<Option<GuardStatus>, DatapathError> {
    if !ConfigMap::open(pins)?.get()?.has_tunnel() {
        return Ok(None);
    }
    flannel_guard::status_of_pins(GuardMap::open(pins)?.get()?, &StatsMap::open(pins)?).map(Some)
}

fn peers_of(pins: &PinRoot) -> Result<Vec<PeerStatus>, DatapathError> {
    let config = ConfigMap::open(pins)?.get()?;
    let status = |peer: PinnedPeer| {
        let PinnedPeer { subnet, entry, .. } = peer;
        PeerStatus {
            node: None,
            subnet: subnet.to_string(),
            public_ip: entry.vtep.to_string(),
            vtep_mac: peer.vtep_mac(),
            way: peer.way().to_owned(),
            reason: None,
            echo: None,
            wireguard: None,
            ipsec: None,
        }
    };
    Ok(pinned_peers(pins, &config)?
        .into_iter()
        .map(status)
        .collect())
}

/// The summary, then problems, which a long table would hide, then peers and remarks.
fn text(status: &Status, paint: Paint) -> String {
    let mut out = String::new();
    for (name, value) in summary(status) {
        let value = paint_summary(name, value, status, paint);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}{value}", paint.name(&format!("{name:<11}")));
    }
    let sections = [
        lines(problems(status, paint)),
        peers(&status.peers, paint),
        lines(remarks(status)),
    ];
    for section in sections.iter().filter(|section| !section.is_empty()) {
        out.push('\n');
        out.push_str(section);
    }
    out
}

/// A line for each problem.
fn problems(status: &Status, paint: Paint) -> Vec<String> {
    // The summary has the mode.
    let shown = status
        .problems
        .iter()
        .filter(|problem| problem.code != ProblemCode::LoweredMode);
    let line = |problem: &Problem| {
        let Problem {
            code,
            severity,
            count,
            ..
        } = *problem;
        ProblemLine {
            code,
            severity,
            text: problem.line(),
            count,
        }
    };
    problem_lines::lines(&shown.map(line).collect::<Vec<_>>(), paint)
}

/// Colours the values that are good or bad news.
fn paint_summary(name: &str, value: String, status: &Status, paint: Paint) -> String {
    match name {
        "ready" if status.ready => paint.good(&value),
        "ready" | "problems" => paint.bad(&value),
        "mode" if status.mode.reason.is_some() => paint.warn(&value),
        "store" if status.store.as_ref().is_some_and(|store| !store.in_sync) => paint.warn(&value),
        _ => value,
    }
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Describes what mode `fast` leaves to the kernel, the sysctls that it set, and who computes inner
/// checksums.
fn remarks(status: &Status) -> Vec<String> {
    let checksums = status.checksum_offload.iter().filter_map(|offload| {
        let reason = offload.reason.as_ref()?;
        let state = match offload.on {
            Some(true) => "is on",
            Some(false) => "is off",
            None => "is not known",
        };
        Some(format!(
            "checksum offload of {} {state}: {reason}",
            offload.device
        ))
    });
    let sysctls = status.sysctls.iter().map(sysctl_remark);
    let mut remarks: Vec<String> = status.fast.iter().flat_map(fast_remarks).collect();
    remarks.extend(checksums.chain(sysctls));
    remarks
}

fn fast_remarks(fast: &FastStatus) -> Vec<String> {
    let hidden = fast.rules.iter();
    let hidden = hidden.map(|chain| format!("rules that see few packets in mode fast: {chain}"));
    let unknown = fast
        .rules_error
        .as_ref()
        .map(|error| format!("rules that see few packets in mode fast are not known: {error}"));
    let left = fast.pods.iter().filter(|pod| !pod.reasons.is_empty());
    let left = left.map(|pod| {
        format!(
            "pod at {}: {}: {}",
            pod.veth,
            left_to_the_kernel(pod),
            pod.reasons.join("; ")
        )
    });
    let merged = fast.pods.iter().filter_map(|pod| {
        let reason = pod.merged_reason.as_ref()?;
        Some(format!(
            "pod at {}: merged packets for it take the kernel's path: {reason}",
            pod.veth
        ))
    });
    hidden.chain(unknown).chain(left).chain(merged).collect()
}

fn sysctl_remark(sysctl: &ChangedSysctl) -> String {
    let ChangedSysctl {
        name, before, set, ..
    } = sysctl;
    let purpose = if name.starts_with("net.netfilter.") {
        " for mode fast"
    } else {
        ""
    };
    format!("sysctl set{purpose}: {name} to {set}, {before} before")
}

type SummaryLine = (&'static str, String);

fn summary(status: &Status) -> Vec<SummaryLine> {
    let mut lines = agent_lines(status);
    lines.extend(lease_lines(status));
    lines.extend(backend_lines(status));
    lines.extend(peer_counts(&status.peers).map(|counts| ("peers", counts)));
    lines.extend(
        status
            .echo
            .as_ref()
            .map(|status_of| ("echo", echo::summary(status_of, &status.peers))),
    );
    lines
}

fn agent_lines(status: &Status) -> Vec<SummaryLine> {
    let agent = match status.pid {
        Some(pid) => format!("{} (process {pid}), {}", status.version, status.stage),
        None => status.stage.clone(),
    };
    let mut lines = vec![
        ("agent", agent),
        ("ready", if status.ready { "yes" } else { "no" }.to_owned()),
    ];
    lines.extend(status.problem_counts().map(|counts| ("problems", counts)));
    lines.push(("mode", mode(&status.mode)));
    lines.extend(
        status
            .privileges
            .as_ref()
            .map(|held| ("privileges", privileges(held))),
    );
    lines.extend(status.flow_table.as_ref().map(|table| {
        (
            "flows",
            format!("{} of each family ({})", table.flows, table.reason),
        )
    }));
    lines.extend(status.fast.as_ref().map(|status| ("fast", fast(status))));
    lines.extend(status.guard.as_ref().map(|status| ("guard", guard(status))));
    lines
}

fn lease_lines(status: &Status) -> Vec<SummaryLine> {
    let mut lines = Vec::new();
    lines.extend(
        status
            .node_settings
            .iter()
            .map(|setting| ("annotation", node_setting(setting))),
    );
    lines.extend(status.lease.as_ref().map(|status| ("lease", lease(status))));
    lines.extend(status.store.as_ref().map(|store| {
        (
            "store",
            format!("{}, {}", store.endpoints.join(","), sync(store)),
        )
    }));
    lines.extend(
        status
            .interface
            .as_ref()
            .map(|status| ("interface", interface(status))),
    );
    lines.extend(status.devices.iter().map(|device| {
        let end = device
            .wireguard
            .as_ref()
            .map_or_else(|| device.mac.clone(), wireguard::device);
        (
            "device",
            format!(
                "{} (index {}) {end}, MTU {}",
                device.name, device.index, device.mtu
            ),
        )
    }));
    lines
}

fn backend_lines(status: &Status) -> Vec<SummaryLine> {
    let mut lines = Vec::new();
    lines.extend(
        status
            .extension
            .as_ref()
            .map(|status| ("commands", extension::summary(status))),
    );
    lines.extend(
        status
            .cloud
            .as_ref()
            .map(|status| ("route", cloud::summary(status))),
    );
    lines.extend(
        status
            .ipsec
            .as_ref()
            .map(|status| ("keys", ipsec::summary(status))),
    );
    lines.extend(
        status
            .udp
            .as_ref()
            .map(|status| ("tunnel", udp::summary(status))),
    );
    lines.extend(
        status
            .traffic
            .as_ref()
            .map(|status| ("traffic", status.summary(now()))),
    );
    lines.extend(
        status
            .unreachable_routes
            .iter()
            .map(|route| ("unrouted", unrouted(route))),
    );
    lines
}

/// The number of peers, and of those of each way; `None` without any.
fn peer_counts(peers: &[PeerStatus]) -> Option<String> {
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    for peer in peers {
        *ways.entry(&peer.way).or_default() += 1;
    }
    let ways: Vec<String> = ways
        .into_iter()
        .map(|(way, number)| format!("{number} {way}"))
        .collect();
    (!peers.is_empty()).then(|| format!("{} ({})", peers.len(), ways.join(", ")))
}

/// Formats a setting by annotation. The problems list the reason why it does not apply.
fn node_setting(setting: &NodeSettingStatus) -> String {
    let NodeSettingStatus {
        annotation,
        value,
        in_force,
        reason,
        ..
    } = setting;
    let state = match (in_force, reason) {
        (true, None) => "in force".to_owned(),
        // For example a setting that was removed, which applies until the next start.
        (true, Some(reason)) => reason.clone(),
        (false, _) => "not in force".to_owned(),
    };
    format!("{annotation}={value}, {state}")
}

/// Describes what happens to packets for the pod network that no peer's route matches.
fn unrouted(route: &UnreachableStatus) -> String {
    let UnreachableStatus {
        network,
        in_place,
        reason,
    } = route;
    match (in_place, reason) {
        (true, None) => format!("{network} unreachable"),
        (false, None) => format!("{network} not unreachable yet"),
        (_, Some(reason)) => format!("{network} left to other routes: {reason}"),
    }
}

fn privileges(held: &PrivilegesStatus) -> String {
    let more = if held.no_new_privileges {
        "never more"
    } else {
        "may gain more"
    };
    let calls = if held.seccomp {
        "system calls filtered"
    } else {
        "any system call"
    };
    format!("{}; {more}; {calls}", held.capabilities.join(", "))
}

fn lease(status: &LeaseStatus) -> String {
    let LeaseStatus {
        subnet,
        public_ip,
        ipv6_subnet,
        public_ipv6,
        ..
    } = status;
    let second = second(
        subnet,
        ipv6_subnet.as_ref(),
        public_ipv6.as_ref(),
        |subnet, at| format!(", {subnet} at {at}"),
    );
    format!("{subnet} at {public_ip}{second}, {}", tenure(status))
}

fn interface(status: &InterfaceStatus) -> String {
    let InterfaceStatus {
        name,
        address,
        public_ip,
        ipv6_address,
        public_ipv6,
    } = status;
    let second = second(
        address,
        ipv6_address.as_ref(),
        public_ipv6.as_ref(),
        |address, public| format!("; {address}, reached at {public}"),
    );
    format!("{name} {address}, reached at {public_ip}{second}")
}

/// Returns the text for IPv6 where IPv4 came first; empty if IPv6 came first or is off.
fn second(
    first: &str,
    ours: Option<&String>,
    public: Option<&String>,
    text: impl FnOnce(&str, &str) -> String,
) -> String {
    let ipv6 = ours.zip(public).filter(|(ours, _)| *ours != first);
    ipv6.map(|(ours, public)| text(ours, public))
        .unwrap_or_default()
}

/// Describes how long the lease is valid.
fn tenure(lease: &LeaseStatus) -> String {
    match lease.expires_at {
        _ if !lease.held => "lost, acquiring again".to_owned(),
        Some(at) => format!(
            "expires in {} unless renewed",
            duration::format(at.saturating_sub(now()))
        ),
        None if lease.assigned => "assigned to the node".to_owned(),
        None => "reserved".to_owned(),
    }
}

/// Describes if the store's changes arrive, since when, and when the last one did.
fn sync(store: &StoreStatus) -> String {
    let ago = |at: u64| duration::format(now().saturating_sub(at));
    let since = store
        .since
        .map(|at| format!(" for {}", ago(at)))
        .unwrap_or_default();
    let last = store
        .last_change
        .map(|at| format!(", last change {} ago", ago(at)))
        .unwrap_or_default();
    match (&store.reason, store.in_sync) {
        (Some(reason), _) => format!("out of reach{since}{last}: {reason}"),
        (None, true) => format!("in sync{since}{last}"),
        (None, false) => format!("not followed yet{since}"),
    }
}

fn mode(mode: &ModeStatus) -> String {
    let source = match mode.source {
        ModeSource::RunTime => "chosen at run time",
        ModeSource::NodeAnnotation => "by annotation of the node",
        ModeSource::Flag => "by option",
        ModeSource::NetworkConfig => "by the network configuration",
        ModeSource::Default => "default",
    };
    let attach = mode
        .attach
        .as_ref()
        .map(|kind| format!(", attached by {kind}"))
        .unwrap_or_default();
    match &mode.reason {
        Some(reason) => format!(
            "{} ({} was asked for: {reason}){attach}",
            mode.effective, mode.wanted
        ),
        None => format!("{} ({source}){attach}", mode.effective),
    }
}

/// Modes, and how many packets they refused.
fn guard(status: &GuardStatus) -> String {
    let check = |name: &str, check: &CheckStatus| {
        let refused = if check.refused > 0 {
            format!(", {} refused", count(check.refused, "packet", "packets"))
        } else {
            String::new()
        };
        format!("{name} {}{refused}", check_mode(check))
    };
    let xdp = status.xdp.as_ref().map(|xdp| match &xdp.reason {
        Some(reason) => format!("; not at the driver: {reason}"),
        None if xdp.attached => "; at the driver by XDP".to_owned(),
        None => String::new(),
    });
    format!(
        "{}; {}{}",
        check("outer", &status.outer),
        check("inner", &status.inner),
        xdp.unwrap_or_default()
    )
}

fn fast(status: &FastStatus) -> String {
    let all = status
        .pods
        .iter()
        .filter(|pod| pod.sends && pod.receives)
        .count();
    let none = status.pods.iter().filter(|pod| pod.mac.is_none()).count();
    let some = status.pods.len() - all - none;
    let partly = if some > 0 {
        format!(", {some} one way")
    } else {
        String::new()
    };
    let alone = if none > 0 {
        format!(", {none} left alone")
    } else {
        String::new()
    };
    let tcp = status
        .tcp_reason
        .iter()
        .map(|reason| format!("; TCP takes the kernel's path: {reason}"));
    let error = status.error.iter().map(|error| format!("; {error}"));
    let blind = status
        .annotations
        .iter()
        .map(|reason| format!("; annotations of pods cannot be read: {reason}"));
    let kernel = "; what comes from other nodes takes the kernel's path: ";
    let underlay = (!status.underlay_reasons.is_empty())
        .then(|| format!("{kernel}{}", status.underlay_reasons.join(", ")));
    let outside = if status.outside {
        ", with the outside as well"
    } else {
        ""
    };
    let left = status.outside_reason.iter();
    let left =
        left.map(|reason| format!("; flows with the outside take the kernel's path: {reason}"));
    let device = "; the tunnel device takes off the outer headers of other packets: ";
    let device = status
        .decapsulation_reason
        .iter()
        .map(|reason| format!("{device}{reason}"));
    let pods = format!(
        "{all} of {}{partly}{alone}{outside}",
        count(status.pods.len(), "pod", "pods")
    );
    std::iter::once(pods)
        .chain(underlay)
        .chain(device)
        .chain(left)
        .chain(tcp)
        .chain(blind)
        .chain(error)
        .collect()
}

/// Describes the packets of a pod that mode `fast` leaves to the kernel.
const fn left_to_the_kernel(pod: &PodStatus) -> &'static str {
    match (pod.sends, pod.receives) {
        (false, true) => "what it sends takes the kernel's path",
        (true, false) => "what it receives takes the kernel's path",
        _ => "left alone",
    }
}

fn peers(peers: &[PeerStatus], paint: Paint) -> String {
    if peers.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = peers
        .iter()
        .map(|peer| {
            let reason = peer.reason.clone().unwrap_or_default();
            let way = match peer.way.as_str() {
                "tunnel" | "direct" => paint.good(&peer.way),
                way if carried_way(way).is_some() => paint.good(way),
                "none" => paint.bad(&peer.way),
                _ => paint.warn(&peer.way),
            };
            let echo = echo::cell(peer.echo.as_ref(), paint);
            let node = peer.node.clone().unwrap_or_else(|| "-".to_owned());
            let end = match (&peer.wireguard, &peer.ipsec) {
                (Some(peer), _) => wireguard::cell(peer, paint),
                (None, Some(peer)) => ipsec::cell(peer, paint),
                (None, None) => peer.vtep_mac.clone(),
            };
            [
                node,
                peer.subnet.clone(),
                peer.public_ip.clone(),
                end,
                way,
                echo,
                reason,
            ]
        })
        .collect();
    let end = match peers {
        _ if peers.iter().any(|peer| peer.wireguard.is_some()) => "HANDSHAKE",
        _ if peers.iter().any(|peer| peer.ipsec.is_some()) => "IPSEC",
        _ => "VTEP-MAC",
    };
    let names =
        ["NODE", "SUBNET", "PUBLIC-IP", end, "WAY", "ECHO", "WHY"].map(|name| paint.head(name));
    // Leases in etcd carry no node names.
    let first = usize::from(peers.iter().all(|peer| peer.node.is_none()));
    let rows: Vec<_> = rows.iter().map(|row| &row[first..]).collect();
    table::render_rows(&names[first..], &rows)
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::guard::{Checks, GuardMode};
    use flannel_guard::Guard;
    use flannel_status::RejectedStatus;
    use flannel_terminal::color::plain_text;

    use super::*;

    #[test]
    fn a_lease_is_ours_until_it_expires_or_for_good() {
        let lease = |held, expires_at, assigned| LeaseStatus {
            subnet: "10.5.1.0/24".to_owned(),
            public_ip: "192.0.2.1".to_owned(),
            held,
            expires_at,
            assigned,
            ..LeaseStatus::default()
        };
        assert!(tenure(&lease(true, Some(now() + 100), false)).starts_with("expires in "));
        assert_eq!(tenure(&lease(true, None, false)), "reserved");
        assert_eq!(tenure(&lease(true, None, true)), "assigned to the node");
        assert_eq!(tenure(&lease(false, None, true)), "lost, acquiring again");
    }

    #[test]
    fn ipv6_is_reported_once() {
        let lease = |subnet: &str, public_ip: &str| LeaseStatus {
            subnet: subnet.to_owned(),
            public_ip: public_ip.to_owned(),
            ipv6_subnet: Some("fd00:5:1::/64".to_owned()),
            public_ipv6: Some("2001:db8::1".to_owned()),
            held: true,
            ..LeaseStatus::default()
        };
        let dual = super::lease(&lease("10.5.1.0/24", "192.0.2.1"));
        assert_eq!(
            dual,
            "10.5.1.0/24 at 192.0.2.1, fd00:5:1::/64 at 2001:db8::1, reserved"
        );
        let alone = super::lease(&lease("fd00:5:1::/64", "2001:db8::1"));
        assert_eq!(alone, "fd00:5:1::/64 at 2001:db8::1, reserved");
    }

    #[test]
    fn a_guard_without_programs_says_what_was_asked_for() {
        let modes = |outer, inner| guard(&Guard::new(Checks { outer, inner }).status_without_bpf());
        assert_eq!(
            modes(GuardMode::Enforce, GuardMode::Audit),
            "outer off (enforce was asked for: no eBPF); inner off (audit was asked for: no eBPF)"
        );
        assert_eq!(
            modes(GuardMode::Off, GuardMode::Off),
            "outer off; inner off"
        );
    }

    fn bare() -> Status {
        let text = "kernel".to_owned();
        let mode = ModeStatus {
            effective: text.clone(),
            wanted: text,
            ..ModeStatus::default()
        };
        Status::without_agent("test", mode)
    }

    #[test]
    fn the_exit_code_is_readiness() {
        let none = bare();
        let waiting = Status {
            pid: Some(1),
            ..bare()
        };
        let ready = Status {
            ready: true,
            ..waiting.clone()
        };
        assert_eq!(
            [ready, waiting, none].map(|status| code(&status)),
            [0, 1, 2]
        );
    }

    #[test]
    fn problems_are_counted_and_come_before_the_peers() {
        let peer = |way: &str| PeerStatus {
            subnet: "10.5.2.0/24".to_owned(),
            public_ip: "192.0.2.2".to_owned(),
            vtep_mac: "02:00:00:00:00:02".to_owned(),
            way: way.to_owned(),
            ..PeerStatus::default()
        };
        let mut status = Status {
            peers: vec![peer("tunnel"), peer("direct"), peer("tunnel")],
            error: Some("no interface".to_owned()),
            rejected_total: 1,
            dirty_total: 2,
            ..bare()
        };
        status.find_problems(now());
        let colored = text(&status, Paint(true));
        let text = text(&status, Paint(false));
        assert!(
            colored.contains("\u{1b}[1m\u{1b}[31mcannot reconcile: no interface\u{1b}[0m\n"),
            "{colored:?}"
        );
        assert_eq!(plain_text(&colored), text, "colours change nothing else");
        let counts =
            "problems   cannot reconcile, 1 refused lease, 2 entries refused by the kernel\n";
        let order = [
            "ready ",
            counts,
            "mode ",
            "peers      3 (1 direct, 2 tunnel)\n\ncannot reconcile: ",
            "\n\nSUBNET",
        ];
        let places: Vec<_> = order
            .iter()
            .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
            .collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn many_problems_of_a_kind_are_cut() {
        let rejected = |number: usize| RejectedStatus {
            key: format!("k{number}"),
            reason: "its MAC is ours".to_owned(),
            claim: None,
        };
        let (rejected, rejected_total) = ((0..40).map(rejected).collect(), 47);
        let mut status = Status {
            rejected,
            rejected_total,
            error: Some("no interface".to_owned()),
            ..bare()
        };
        status.find_problems(now());
        let lines = problems(&status, Paint(false));
        assert_eq!(lines.len(), 1 + 5 + 1, "{lines:?}");
        assert_eq!(lines[6], "and 42 more of this kind; -o json lists them");
    }

    #[tokio::test]
    async fn waiting_ends_when_the_time_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let start = Instant::now();
        let asked = ask(dir.path(), Duration::from_millis(300))
            .await
            .expect("no agent");
        assert!(matches!(asked, Asked::NoAgent));
        assert!(start.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn the_store_is_reported_with_its_times() {
        let store = |in_sync, reason: Option<&str>, since, last_change| StoreStatus {
            endpoints: Vec::new(),
            in_sync,
            reason: reason.map(str::to_owned),
            since,
            last_change,
        };
        // In the future, because time goes on while we test.
        let soon = Some(now() + 100);
        assert_eq!(
            sync(&store(true, None, soon, soon)),
            "in sync for 0s, last change 0s ago"
        );
        assert_eq!(
            sync(&store(false, Some("why"), soon, None)),
            "out of reach for 0s: why"
        );
        assert_eq!(sync(&store(false, None, None, None)), "not followed yet");
    }
}
