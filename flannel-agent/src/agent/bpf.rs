//! Brings the BPF datapath up, or says why this node goes without.

use std::collections::BTreeMap;

use flannel_common::mode::Mode;

use crate::{
    backend::{Backend, PodNetwork},
    cli::{AttachMode, RunOptions},
    datapath::{
        AttachKind, Attachments, DatapathError, Maps, PinRoot, Subnets,
        attach::EarlyGuard,
        flows::write_helper_ports,
        load,
        maps::{ConfigMap, ModeMap},
    },
    family::Family,
    fast::helper_ports,
    reconcile::{Bpf, chain},
};

/// Loads the programs and opens their maps. The error is the reason for `status`; whatever an earlier agent left
/// running is told to leave everything to the kernel.
pub(super) fn open(
    options: &RunOptions,
    backend: &dyn Backend,
    networks: &BTreeMap<Family, PodNetwork>,
) -> Result<Bpf, String> {
    let pins = PinRoot::new(&options.bpf_pin_root);
    let result = match backend.programs() {
        Ok(vni) => try_open(&pins, options, vni, networks).map_err(|error| {
            let reason = chain(&error);
            tracing::warn!(reason, "no eBPF datapath on this node; the kernel carries all packets");
            reason
        }),
        Err(reason) => Err(reason.to_owned()),
    };
    if result.is_err() {
        stand_down(&pins);
    }
    result
}

fn try_open(
    pins: &PinRoot,
    options: &RunOptions,
    vni: u32,
    networks: &BTreeMap<Family, PodNetwork>,
) -> Result<Bpf, DatapathError> {
    // A network too large for its map has none, as long as there is another one to serve.
    let any = networks.values().any(PodNetwork::has_peer_map);
    let served = |family| networks.get(&family).filter(|network| network.has_peer_map() || !any);
    let count = |family| served(family).map_or(0, PodNetwork::subnet_count);
    let subnets = Subnets { v4: count(Family::V4), v6: count(Family::V6) };
    let loaded = load(pins, subnets, options.flow_table_size)?;
    if let Some(log) = loaded.log {
        tracing::warn!("the BPF object is a debug build: its programs log every packet (at -v=4 and above)");
        tokio::spawn(log.forward());
    }
    let kind = match options.attach {
        AttachMode::Auto => AttachKind::detect(),
        AttachMode::Tcx => AttachKind::Tcx,
        AttachMode::Clsact => AttachKind::Clsact,
    };
    let attachments = Attachments::new(pins.clone(), kind, vni, &options.state_dir);
    write_helper_ports(pins, &helper_ports())?;
    let early = EarlyGuard::new(pins.clone(), options.xdp_guard);
    Ok(Bpf::new(Maps::open(pins)?, attachments, early, pins.clone(), loaded.limit))
}

/// An earlier agent's programs may still be attached, over maps this one cannot keep: nobody vouches for those now.
fn stand_down(pins: &PinRoot) {
    let set = ConfigMap::open(pins).and_then(|mut config| config.invalidate()).and_then(|()| {
        let mut mode = ModeMap::open(pins)?;
        let choice = mode.get()?.choice();
        mode.set(Mode::Kernel, choice)
    });
    match set {
        Ok(_) => {}
        Err(error) if error.is_absent() => {}
        Err(error) => tracing::warn!(error = chain(&error), "programs of an earlier agent may still be in force"),
    }
}
