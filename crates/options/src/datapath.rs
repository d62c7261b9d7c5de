//! The BPF programs: mode, attachment and guard.

use clap::Args;
use flannel_common::abi::{
    guard::{self, GuardMode},
    mode::Mode,
};
use flannel_datapath::attach::XdpGuardMode;
use flannel_guard::DEFAULT;
use flannel_store::config::TxChecksumOffload;

use super::{OneOf, check::Checks};

/// The mechanism by which programs are attached to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// TCX where the kernel has it (6.6), else clsact.
    #[default]
    Auto,
    /// TCX links only.
    Tcx,
    /// Filters of the clsact qdisc only.
    Clsact,
}

/// Options of the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatapathOptions {
    /// The mode of this node; `None` follows the network configuration.
    pub mode: Option<Mode>,
    /// The modes of the guard.
    pub guard: guard::Checks<GuardMode>,
    /// The mode of the guard at the driver (XDP).
    pub xdp_guard: XdpGuardMode,
    /// The mechanism by which programs are attached.
    pub attach: AttachMode,
    /// Inner checksums of vxlan; `None` follows the network configuration.
    pub tx_checksum_offload: Option<TxChecksumOffload>,
}

const MODES: [&str; 4] = ["auto", "kernel", "encap", "fast"];
const ATTACH_MODES: [&str; 3] = ["auto", "tcx", "clsact"];
const GUARD_MODES: [&str; 3] = ["off", "audit", "enforce"];
const XDP_MODES: [&str; 3] = ["off", "auto", "native"];

/// Flags of the BPF programs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Datapath")]
pub(super) struct DatapathFlags {
    /// Datapath mode: `kernel`, `encap`, `fast`, or `auto` to follow the network configuration
    #[arg(
        long,
        value_name = "MODE",
        default_value = "auto",
        value_parser = OneOf::flag(MODES),
        hide_possible_values = true,
    )]
    datapath: String,
    /// Attachment of programs: `tcx` (kernel 6.6), `clsact`, or `auto` for what the kernel has
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = OneOf::flag(ATTACH_MODES),
        hide_possible_values = true,
    )]
    attach: String,
    /// Inner checksums of VXLAN: `on` leaves them to the network card, `off` has the kernel compute
    /// them, `auto` follows the network configuration, by default `off` only where trials show that
    /// the card breaks them
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        value_parser = OneOf::flag(TxChecksumOffload::ALL.map(TxChecksumOffload::name)),
        hide_possible_values = true,
    )]
    tx_checksum_offload: String,
    /// Tunnel packets that come from no peer: `enforce` drops them, `audit` logs them, `off` counts
    /// them
    #[arg(
        long,
        value_name = "MODE",
        default_value = "enforce",
        value_parser = OneOf::flag(GUARD_MODES),
        hide_possible_values = true,
    )]
    guard_outer: String,
    /// Tunnel packets of peers from outside their subnets: `enforce` drops them, `audit` logs them,
    /// `off` counts them
    #[arg(
        long,
        value_name = "MODE",
        default_value = "audit",
        value_parser = OneOf::flag(GUARD_MODES),
        hide_possible_values = true,
    )]
    guard_inner: String,
    /// Drop tunnel packets of strangers at the driver by XDP: `auto` where it can, `native` with an
    /// error where it cannot, `off`
    #[arg(
        long,
        value_name = "HOW",
        default_value = "off",
        value_parser = OneOf::flag(XDP_MODES),
        hide_possible_values = true,
    )]
    xdp_guard: String,
}

impl DatapathFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> DatapathOptions {
        DatapathOptions {
            mode: self.mode(checks),
            guard: self.guard(checks),
            xdp_guard: self.xdp_guard(checks),
            attach: self.attach(checks),
            tx_checksum_offload: self.tx_checksum_offload(checks),
        }
    }

    fn mode(&self, checks: &mut Checks) -> Option<Mode> {
        match self.datapath.as_str() {
            "auto" => None,
            value => checks.optional("datapath", value, "kernel, encap, fast or auto"),
        }
    }

    fn attach(&self, checks: &mut Checks) -> AttachMode {
        let modes = [
            ("auto", AttachMode::Auto),
            ("tcx", AttachMode::Tcx),
            ("clsact", AttachMode::Clsact),
        ];
        checks.choice("attach", &self.attach, &modes, "auto, tcx or clsact")
    }

    fn tx_checksum_offload(&self, checks: &mut Checks) -> Option<TxChecksumOffload> {
        let settings = TxChecksumOffload::ALL.map(|setting| (setting.name(), setting));
        let setting = checks.choice(
            "tx-checksum-offload",
            &self.tx_checksum_offload,
            &settings,
            "auto, on or off",
        );
        Some(setting).filter(|setting| *setting != TxChecksumOffload::Auto)
    }

    fn guard(&self, checks: &mut Checks) -> guard::Checks<GuardMode> {
        let expected = "off, audit or enforce";
        let guard::Checks { outer, inner } = DEFAULT;
        guard::Checks {
            outer: checks
                .optional("guard-outer", &self.guard_outer, expected)
                .unwrap_or(outer),
            inner: checks
                .optional("guard-inner", &self.guard_inner, expected)
                .unwrap_or(inner),
        }
    }

    fn xdp_guard(&self, checks: &mut Checks) -> XdpGuardMode {
        let modes = [
            ("off", XdpGuardMode::Off),
            ("auto", XdpGuardMode::Auto),
            ("native", XdpGuardMode::Native),
        ];
        checks.choice("xdp-guard", &self.xdp_guard, &modes, "auto, native or off")
    }
}
