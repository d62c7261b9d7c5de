//! Brings the BPF datapath up, or says why this node goes without.

use std::collections::BTreeMap;

use flannel_backend_api::{Backend, PodNetwork, ProgramSet};
use flannel_common::abi::mode::Mode;
use flannel_datapath::{
    Announcements, AttachKind, Attachments, DatapathError, FlowTable, Maps, PinRoot, Subnets,
    attach::{EarlyGuard, XdpGuardMode},
    load,
    load::probe,
    load::schema_takeover,
    maps::flows::write_helper_ports,
    maps::{ConfigMap, ModeMap},
};
use flannel_fast::helper_ports;
use flannel_host::{error_chain::chain, family::Family};
use flannel_options::{AttachMode, RunOptions};
use flannel_privileges as privileges;
use flannel_reconcile::Bpf;

/// Loads the programs and opens their maps. The error is the reason for `status`; programs that an
/// earlier agent left running are then set to leave every packet to the kernel.
pub(super) fn open(
    options: &RunOptions,
    backend: &dyn Backend,
    networks: &BTreeMap<Family, PodNetwork>,
) -> Result<Bpf, String> {
    let pins = PinRoot::new(&options.paths.bpf_pin_root);
    let result = match backend.programs() {
        Ok(served) => try_open(&pins, options, served, networks).map_err(|error| {
            let reason = chain(&error) + &privileges::hint(&error);
            tracing::warn!(
                reason,
                "no eBPF datapath on this node; the kernel carries all packets"
            );
            reason
        }),
        Err(reason) => Err(reason.to_owned()),
    };
    if result.is_err() {
        stand_down(&pins);
        for dir in schema_takeover::remove(&pins) {
            tracing::info!(dir, "removed the programs of another version of the agent");
        }
    }
    result
}

fn try_open(
    pins: &PinRoot,
    options: &RunOptions,
    served: ProgramSet,
    networks: &BTreeMap<Family, PodNetwork>,
) -> Result<Bpf, DatapathError> {
    // A network too large for its map has none, as long as there is another one to serve.
    let any = networks.values().any(PodNetwork::has_peer_map);
    let mapped = |family| {
        networks
            .get(&family)
            .filter(|network| network.has_peer_map() || !any)
    };
    let count = |family| mapped(family).map_or(0, PodNetwork::subnet_count);
    let subnets = Subnets {
        v4: count(Family::V4),
        v6: count(Family::V6),
    };
    // Before a map is made: older kernels refuse maps first, for a reason that no operator can
    // remedy.
    probe::helpers()?;
    let loaded = load(
        pins,
        served.programs(),
        subnets,
        options.fast.flow_table_size,
    )?;
    if let Some(log) = loaded.log {
        tracing::warn!(
            "the BPF object is a debug build: its programs log every packet (at -v=4 and above)"
        );
        tokio::spawn(log.forward());
    }
    for dir in schema_takeover::take_over(pins) {
        tracing::info!(
            dir,
            "the programs of another version of the agent are replaced"
        );
    }
    let kind = match options.datapath.attach {
        AttachMode::Auto => AttachKind::detect(),
        AttachMode::Tcx => AttachKind::Tcx,
        AttachMode::Clsact => AttachKind::Clsact,
    };
    let attachments = Attachments::new(
        pins.clone(),
        kind,
        served.filter_tag(),
        &options.paths.state_dir,
    );
    write_helper_ports(pins, &helper_ports())?;
    let early = EarlyGuard::new(pins.clone(), early_wish(options.datapath.xdp_guard, served));
    // What the kernel refuses is room for outer headers.
    let limit = loaded.limit.filter(|_| served.has_tunnel());
    let FlowTable { flows, reason } = &loaded.flow_table;
    tracing::info!(flows, %reason, "the tables of known flows are made, one of each family");
    let announcements = Announcements::start(pins).inspect_err(|error| {
        tracing::warn!(error = chain(error), "TCP flows take the kernel's path");
    });
    let bpf = Bpf::new(
        Maps::open(pins)?,
        attachments,
        early,
        pins.clone(),
        served,
        limit,
    );
    Ok(bpf
        .with_flow_table(loaded.flow_table)
        .with_announcements(announcements.ok()))
}

/// Without a tunnel there is nothing to guard.
fn early_wish(asked: XdpGuardMode, served: ProgramSet) -> XdpGuardMode {
    if served.has_tunnel() || asked == XdpGuardMode::Off {
        return asked;
    }
    tracing::warn!("--xdp-guard has no effect: the backend has no tunnel");
    XdpGuardMode::Off
}

/// Sets the programs of an earlier agent to leave every packet to the kernel. They may still be
/// attached, over maps that this agent cannot keep up to date.
fn stand_down(pins: &PinRoot) {
    let set = ConfigMap::open(pins)
        .and_then(|mut config| config.invalidate())
        .and_then(|()| {
            let mut mode = ModeMap::open(pins)?;
            while mode.follow(Mode::Kernel, mode.get()?.choice())?.is_none() {}
            Ok(())
        });
    match set {
        Ok(()) => {}
        Err(error) if error.is_absent() => {}
        Err(error) => tracing::warn!(
            error = chain(&error),
            "programs of an earlier agent may still be in force"
        ),
    }
}
