//! Filters of tc and TCX programs on a device that are not ours.
//!
//! TCX programs are ours if our links hold them. After a restart these programs are those of the
//! previous agent, until the links are updated.

use std::io;

use aya::programs::TcAttachType;
use flannel_common::abi::program::Program;
use flannel_datapath::{
    PinRoot,
    attach::{PRIORITY, direction, filters, is_our_handle, query},
};

use super::judge::Others;

/// Others on the ingress and on the egress of a device. What cannot be read counts as there; a
/// device that is gone has none.
pub(super) fn on(pins: &PinRoot, ifindex: u32) -> (Others, Others) {
    (
        on_ingress(pins, ifindex),
        on_side(pins, ifindex, TcAttachType::Egress),
    )
}

/// Returns the others on only the ingress.
pub(crate) fn on_ingress(pins: &PinRoot, ifindex: u32) -> Others {
    on_side(pins, ifindex, TcAttachType::Ingress)
}

fn on_side(pins: &PinRoot, ifindex: u32, side: TcAttachType) -> Others {
    Others {
        filters: has_filters(ifindex, side).unwrap_or(true),
        programs: has_programs(pins, ifindex, side),
    }
}

fn has_filters(ifindex: u32, side: TcAttachType) -> io::Result<bool> {
    let filters = filters::list(ifindex, side)?;
    let listed = filters
        .iter()
        .any(|filter| filter.priority != PRIORITY || !is_our_handle(filter.handle));
    Ok(listed && (side == TcAttachType::Ingress || filters::has_clsact(ifindex)?))
}

/// A kernel without TCX has none, and says so with an error.
fn has_programs(pins: &PinRoot, ifindex: u32, side: TcAttachType) -> bool {
    query::programs(ifindex, side).is_ok_and(|programs| {
        let ours: Vec<u32> = ours(side)
            .filter_map(|program| query::held_by(&pins.link(program, ifindex)))
            .collect();
        programs.iter().any(|program| !ours.contains(program))
    })
}

/// The programs we put on that side of a device.
fn ours(side: TcAttachType) -> impl Iterator<Item = Program> {
    Program::ALL
        .into_iter()
        .filter(move |program| direction(*program) == side)
}
