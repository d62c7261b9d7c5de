//! `flannel-agent status`: the agent's report on itself or, when none runs, what its pins still
//! show.

use std::{fmt::Write as _, io, time::SystemTime};

use anyhow::Context as _;
use clap::Args;
use flannel_common::entry_state::EntryState;
use flannel_host::{
    error_chain::chain,
    sysctl_record::{ChangedSysctl, Record},
};

use super::{Output, PinOptions, StateOptions, guard::mode as check_mode, json, table};
use crate::{
    datapath::{
        DatapathError, PinRoot,
        guard::GuardMap,
        maps::{ConfigMap, ModeMap, StatsMap},
        peers::{PinnedPeer, pinned_peers},
        policy::ModeSource,
    },
    observe::{
        socket::ask_status,
        status::{
            CheckStatus, FastStatus, GuardStatus, InterfaceStatus, LeaseStatus, ModeStatus, PeerStatus, PodStatus,
            PrivilegesStatus, Status, StoreStatus,
        },
    },
    reconcile::status::UnreachableStatus,
};

/// The output format, and the paths of the agent's state and pins.
#[derive(Debug, Args)]
pub struct StatusOptions {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub(super) async fn run(options: &StatusOptions) -> anyhow::Result<String> {
    let dir = &options.state.state_dir;
    let status = match ask_status(dir).await {
        Ok(status) => status,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            from_pins(options)?
        }
        Err(error) => {
            return Err(error)
                .with_context(|| format!("the agent with state directory {} does not answer", dir.display()));
        }
    };
    Ok(if options.output.is_json() { json(&status) } else { text(&status) })
}

/// The status without an agent.
fn from_pins(options: &StatusOptions) -> anyhow::Result<Status> {
    let pins = options.pins.root();
    let mode = match ModeMap::open(&pins) {
        Ok(mode) => Some(mode),
        Err(error) if error.is_absent() => None,
        Err(error) => return Err(error.into()),
    };
    let root = pins.root().display();
    let stage = match mode {
        Some(_) => "no agent is running; this is read from its pins".to_owned(),
        None => format!(
            "no agent is running, and nothing is pinned below {root}: it never ran here, ran without eBPF, or was cleaned up"
        ),
    };
    let peers = if mode.is_some() { peers_of(&pins)? } else { Vec::new() };
    let guard = if mode.is_some() { guard_of(&pins)? } else { None };
    let word = mode.map(|mode| mode.get()).transpose()?.unwrap_or_default();
    let mode = ModeStatus {
        effective: word.mode().to_string(),
        wanted: word.choice().unwrap_or(word.mode()).to_string(),
        source: if word.choice().is_some() { ModeSource::RunTime } else { ModeSource::Default },
        reason: None,
        attach: None,
    };
    let record = Record::load(&options.state.state_dir);
    let error = record.as_ref().err().map(|error| chain(error));
    let sysctls = record.unwrap_or_default().changed().to_vec();
    Ok(Status { guard, peers, sysctls, error, ..Status::without_agent(&stage, mode) })
}

/// The guard; none without a tunnel.
fn guard_of(pins: &PinRoot) -> Result<Option<GuardStatus>, DatapathError> {
    if !ConfigMap::open(pins)?.get()?.has_tunnel() {
        return Ok(None);
    }
    crate::guard::status_of_pins(GuardMap::open(pins)?.get()?, &StatsMap::open(pins)?).map(Some)
}

fn peers_of(pins: &PinRoot) -> Result<Vec<PeerStatus>, DatapathError> {
    let config = ConfigMap::open(pins)?.get()?;
    let status = |peer: PinnedPeer| {
        let PinnedPeer { subnet, entry, .. } = peer;
        let way = match entry.word {
            word if word.has(EntryState::DIRECT) => "direct",
            word if word.has(EntryState::PLAIN) => "tunnel",
            _ => "kernel",
        };
        PeerStatus {
            subnet: subnet.to_string(),
            public_ip: entry.vtep.to_string(),
            vtep_mac: peer.vtep_mac(),
            way: way.to_owned(),
            reason: None,
        }
    };
    Ok(pinned_peers(pins, &config)?.into_iter().map(status).collect())
}

fn text(status: &Status) -> String {
    let mut out = String::new();
    for (name, value) in summary(status) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<11}{value}");
    }
    if !status.peers.is_empty() {
        out.push('\n');
        out.push_str(&peers(&status.peers));
    }
    let rejected = status.rejected.iter().map(|lease| format!("refused lease: {}", lease.reason));
    let rejected = rejected.chain(more("refused leases", status.rejected_total, status.rejected.len()));
    let dirty = status
        .dirty
        .iter()
        .map(|entry| format!("refused by the kernel: {} ({} tries): {}", entry.object, entry.attempts, entry.error));
    let dirty = dirty.chain(more("entries refused by the kernel", status.dirty_total, status.dirty.len()));
    let pods = status.fast.iter().flat_map(|fast| &fast.pods).filter(|pod| !pod.reasons.is_empty());
    let pods = pods.map(|pod| format!("pod at {}: {}: {}", pod.veth, left_to_the_kernel(pod), pod.reasons.join("; ")));
    let merged = status.fast.iter().flat_map(|fast| &fast.pods).filter_map(|pod| {
        let reason = pod.merged_reason.as_ref()?;
        Some(format!("pod at {}: merged packets for it take the kernel's path: {reason}", pod.veth))
    });
    let error = status.error.iter().map(|error| format!("cannot reconcile: {error}"));
    let rules = status.traffic.iter().filter_map(|traffic| traffic.error.as_ref());
    let rules = rules.map(|error| format!("traffic rules are not as asked for: {error}"));
    let hidden = status.fast.iter().flat_map(|fast| &fast.rules);
    let hidden = hidden.map(|chain| format!("rules that see few packets in mode fast: {chain}"));
    let sysctls = status.sysctls.iter();
    let sysctls = sysctls.map(|ChangedSysctl { name, before, set, .. }| {
        format!("sysctl set for mode fast: {name} to {set}, {before} before")
    });
    let unknown = status.fast.iter().filter_map(|fast| fast.rules_error.as_ref());
    let unknown = unknown.map(|error| format!("rules that see few packets in mode fast are not known: {error}"));
    let lines = rejected.chain(dirty).chain(rules).chain(hidden).chain(unknown).chain(pods).chain(merged);
    for line in lines.chain(sysctls).chain(error) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Returns a note on how many entries are not listed; `None` if all are.
fn more(what: &str, total: u64, listed: usize) -> Option<String> {
    let more = total.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
    (more > 0).then(|| format!("{more} more {what}, {total} in all"))
}

fn summary(status: &Status) -> Vec<(&'static str, String)> {
    let agent = match status.pid {
        Some(pid) => format!("{} (process {pid}), {}", status.version, status.stage),
        None => status.stage.clone(),
    };
    let mut lines = vec![
        ("agent", agent),
        ("ready", if status.ready { "yes" } else { "no" }.to_owned()),
        ("mode", mode(&status.mode)),
    ];
    lines.extend(status.privileges.as_ref().map(|held| ("privileges", privileges(held))));
    lines.extend(
        status.flow_table.as_ref().map(|table| ("flows", format!("{} of each family ({})", table.flows, table.reason))),
    );
    lines.extend(status.fast.as_ref().map(|status| ("fast", fast(status))));
    lines.extend(status.guard.as_ref().map(|status| ("guard", guard(status))));
    lines.extend(status.lease.as_ref().map(|status| ("lease", lease(status))));
    lines.extend(
        status.store.as_ref().map(|store| ("store", format!("{}, {}", store.endpoints.join(","), sync(store)))),
    );
    lines.extend(status.interface.as_ref().map(|status| ("interface", interface(status))));
    lines.extend(status.devices.iter().map(|device| {
        ("device", format!("{} (index {}) {}, MTU {}", device.name, device.index, device.mac, device.mtu))
    }));
    lines.extend(status.traffic.as_ref().map(|status| ("traffic", status.summary(now()))));
    lines.extend(status.unreachable_routes.iter().map(|route| ("unrouted", unrouted(route))));
    lines
}

/// Describes what happens to packets for the pod network that no peer's route matches.
fn unrouted(route: &UnreachableStatus) -> String {
    let UnreachableStatus { network, in_place, reason } = route;
    match (in_place, reason) {
        (true, None) => format!("{network} unreachable"),
        (false, None) => format!("{network} not unreachable yet"),
        (_, Some(reason)) => format!("{network} left to other routes: {reason}"),
    }
}

fn privileges(held: &PrivilegesStatus) -> String {
    let more = if held.no_new_privileges { "never more" } else { "may gain more" };
    let calls = if held.seccomp { "system calls filtered" } else { "any system call" };
    format!("{}; {more}; {calls}", held.capabilities.join(", "))
}

fn lease(status: &LeaseStatus) -> String {
    let LeaseStatus { subnet, public_ip, ipv6_subnet, public_ipv6, .. } = status;
    let second = second(subnet, ipv6_subnet.as_ref(), public_ipv6.as_ref(), |subnet, at| format!(", {subnet} at {at}"));
    format!("{subnet} at {public_ip}{second}, {}", tenure(status))
}

fn interface(status: &InterfaceStatus) -> String {
    let InterfaceStatus { name, address, public_ip, ipv6_address, public_ipv6 } = status;
    let second = second(address, ipv6_address.as_ref(), public_ipv6.as_ref(), |address, public| {
        format!("; {address}, reached at {public}")
    });
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
    ipv6.map(|(ours, public)| text(ours, public)).unwrap_or_default()
}

/// Describes how long the lease is valid.
fn tenure(lease: &LeaseStatus) -> String {
    match lease.expires_at {
        _ if !lease.held => "lost, acquiring again".to_owned(),
        Some(at) => format!("expires in {} s unless renewed", at.saturating_sub(now())),
        None if lease.assigned => "assigned to the node".to_owned(),
        None => "reserved".to_owned(),
    }
}

/// Describes if the store's changes arrive, since when, and when the last one did.
fn sync(store: &StoreStatus) -> String {
    let ago = |at: u64| now().saturating_sub(at);
    let since = store.since.map(|at| format!(" for {} s", ago(at))).unwrap_or_default();
    let last = store.last_change.map(|at| format!(", last change {} s ago", ago(at))).unwrap_or_default();
    match (&store.reason, store.in_sync) {
        (Some(reason), _) => format!("out of reach{since}{last}: {reason}"),
        (None, true) => format!("in sync{since}{last}"),
        (None, false) => format!("not seen yet{since}"),
    }
}

/// Seconds since 1970 UTC.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn mode(mode: &ModeStatus) -> String {
    let source = match mode.source {
        ModeSource::RunTime => "chosen at run time",
        ModeSource::Flag => "by option",
        ModeSource::NetworkConfig => "by the network configuration",
        ModeSource::Default => "default",
    };
    let attach = mode.attach.as_ref().map(|kind| format!(", attached by {kind}")).unwrap_or_default();
    match &mode.reason {
        Some(reason) => format!("{} ({} was asked for: {reason}){attach}", mode.effective, mode.wanted),
        None => format!("{} ({source}){attach}", mode.effective),
    }
}

/// Modes, and how many packets they refused.
fn guard(status: &GuardStatus) -> String {
    let check = |name: &str, check: &CheckStatus| {
        let refused = if check.refused > 0 { format!(", {} packets refused", check.refused) } else { String::new() };
        format!("{name} {}{refused}", check_mode(check))
    };
    let xdp = status.xdp.as_ref().map(|xdp| match &xdp.reason {
        Some(reason) => format!("; not at the driver: {reason}"),
        None if xdp.attached => "; at the driver by XDP".to_owned(),
        None => String::new(),
    });
    format!("{}; {}{}", check("outer", &status.outer), check("inner", &status.inner), xdp.unwrap_or_default())
}

fn fast(status: &FastStatus) -> String {
    let all = status.pods.iter().filter(|pod| pod.sends && pod.receives).count();
    let none = status.pods.iter().filter(|pod| pod.mac.is_none()).count();
    let some = status.pods.len() - all - none;
    let partly = if some > 0 { format!(", {some} one way") } else { String::new() };
    let alone = if none > 0 { format!(", {none} left alone") } else { String::new() };
    let tcp = status.tcp_reason.iter().map(|reason| format!("; TCP takes the kernel's path: {reason}"));
    let error = status.error.iter().map(|error| format!("; {error}"));
    let blind = status.annotations.iter().map(|reason| format!("; annotations of pods cannot be read: {reason}"));
    let kernel = "; what comes from other nodes takes the kernel's path: ";
    let underlay =
        (!status.underlay_reasons.is_empty()).then(|| format!("{kernel}{}", status.underlay_reasons.join(", ")));
    let pods = format!("{all} of {} pods{partly}{alone}", status.pods.len());
    std::iter::once(pods).chain(underlay).chain(tcp).chain(blind).chain(error).collect()
}

/// Describes the packets of a pod that mode `fast` leaves to the kernel.
const fn left_to_the_kernel(pod: &PodStatus) -> &'static str {
    match (pod.sends, pod.receives) {
        (false, true) => "what it sends takes the kernel's path",
        (true, false) => "what it receives takes the kernel's path",
        _ => "left alone",
    }
}

fn peers(peers: &[PeerStatus]) -> String {
    let rows: Vec<_> = peers
        .iter()
        .map(|peer| {
            let reason = peer.reason.clone().unwrap_or_default();
            [peer.subnet.clone(), peer.public_ip.clone(), peer.vtep_mac.clone(), peer.way.clone(), reason]
        })
        .collect();
    table::render(["SUBNET", "PUBLIC-IP", "VTEP-MAC", "WAY", "WHY"], &rows)
}

#[cfg(test)]
mod tests {
    use flannel_common::guard::{Checks, GuardMode};

    use super::*;
    use crate::guard::Guard;

    #[test]
    fn a_lease_is_ours_until_it_expires_or_for_good() {
        let lease = |held, expires_at, assigned| LeaseStatus {
            subnet: "10.5.1.0/24".to_owned(),
            public_ip: "192.0.2.1".to_owned(),
            ipv6_subnet: None,
            public_ipv6: None,
            held,
            expires_at,
            assigned,
        };
        assert!(tenure(&lease(true, Some(now() + 100), false)).starts_with("expires in "));
        assert_eq!(tenure(&lease(true, None, false)), "reserved");
        assert_eq!(tenure(&lease(true, None, true)), "assigned to the node");
        assert_eq!(tenure(&lease(false, None, true)), "lost, acquiring again");
    }

    #[test]
    fn a_list_that_is_cut_says_how_much_is_missing() {
        assert_eq!(more("refused leases", 100, 100), None);
        assert_eq!(more("refused leases", 100_000, 100).as_deref(), Some("99900 more refused leases, 100000 in all"));
    }

    #[test]
    fn ipv6_is_reported_once() {
        let lease = |subnet: &str, public_ip: &str| LeaseStatus {
            subnet: subnet.to_owned(),
            public_ip: public_ip.to_owned(),
            ipv6_subnet: Some("fd00:5:1::/64".to_owned()),
            public_ipv6: Some("2001:db8::1".to_owned()),
            held: true,
            expires_at: None,
            assigned: false,
        };
        let dual = super::lease(&lease("10.5.1.0/24", "192.0.2.1"));
        assert_eq!(dual, "10.5.1.0/24 at 192.0.2.1, fd00:5:1::/64 at 2001:db8::1, reserved");
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
        assert_eq!(modes(GuardMode::Off, GuardMode::Off), "outer off; inner off");
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
        assert_eq!(sync(&store(true, None, soon, soon)), "in sync for 0 s, last change 0 s ago");
        assert_eq!(sync(&store(false, Some("why"), soon, None)), "out of reach for 0 s: why");
        assert_eq!(sync(&store(false, None, None, None)), "not seen yet");
    }
}
