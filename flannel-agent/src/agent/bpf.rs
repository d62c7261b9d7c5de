//! Brings the BPF datapath up, or says why this node goes without.

use flannel_common::mode::Mode;

use crate::{
    backend::vxlan::subnet_count,
    cli::{AttachMode, RunOptions},
    config::{FamilyConfig, VxlanConfig},
    datapath::{
        AttachKind, Attachments, DatapathError, Maps, PinRoot, Subnets, load,
        maps::{ConfigMap, ModeMap},
    },
    reconcile::{Bpf, chain},
};

/// Loads the programs and opens their maps. The error is the reason for `status`; whatever an earlier agent left
/// running is told to leave everything to the kernel.
pub(super) fn open(
    options: &RunOptions,
    config: &VxlanConfig,
    family: &FamilyConfig<ipnet::Ipv4Net>,
) -> Result<Bpf, String> {
    let pins = PinRoot::new(&options.bpf_pin_root);
    let result = if config.gbp {
        Err("Backend.GBP is on, and the programs do not write group policy ids".to_owned())
    } else {
        try_open(&pins, options, config, family).map_err(|error| chain(&error))
    };
    if let Err(reason) = &result {
        tracing::warn!(reason, "no eBPF datapath on this node; the kernel carries all packets");
        stand_down(&pins);
    }
    result
}

fn try_open(
    pins: &PinRoot,
    options: &RunOptions,
    config: &VxlanConfig,
    family: &FamilyConfig<ipnet::Ipv4Net>,
) -> Result<Bpf, DatapathError> {
    if let Some(log) = load(pins, Subnets { v4: subnet_count(family), v6: 0 })? {
        tracing::warn!("the BPF object is a debug build: its programs log every packet (at -v=4 and above)");
        tokio::spawn(log.forward());
    }
    let kind = match options.attach {
        AttachMode::Auto => AttachKind::detect(),
        AttachMode::Tcx => AttachKind::Tcx,
        AttachMode::Clsact => AttachKind::Clsact,
    };
    let attachments = Attachments::new(pins.clone(), kind, config.vni, &options.state_dir);
    Ok(Bpf::new(Maps::open(pins)?, attachments))
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
