//! Who is on a device beside us: filters of tc, and TCX programs.
//!
//! TCX programs are ours if links of ours hold them: after a restart those are of the agent before, until the links are updated.

use std::io;

use aya::programs::TcAttachType;
use flannel_common::program::Program;

use super::judge::Others;
use crate::{
    datapath::{
        PinRoot,
        attach::{PRIORITY, direction, filters, is_our_handle, query},
    },
    netlink::Link,
};

/// Others on the ingress and on the egress of a device. What cannot be read counts as there; a device that is gone has none.
pub(super) fn on(pins: &PinRoot, link: &Link) -> (Others, Others) {
    (side(pins, link, TcAttachType::Ingress), side(pins, link, TcAttachType::Egress))
}

fn side(pins: &PinRoot, link: &Link, side: TcAttachType) -> Others {
    Others { filters: has_filters(link, side).unwrap_or(true), programs: has_programs(pins, link, side) }
}

fn has_filters(link: &Link, side: TcAttachType) -> io::Result<bool> {
    let filters = filters::list(link.index, side)?;
    let listed = filters.iter().any(|filter| filter.priority != PRIORITY || !is_our_handle(filter.handle));
    Ok(listed && (side == TcAttachType::Ingress || filters::has_clsact(link.index)?))
}

/// A kernel without TCX has none, and says so with an error.
fn has_programs(pins: &PinRoot, link: &Link, side: TcAttachType) -> bool {
    query::programs(link.index, side).is_ok_and(|programs| {
        let ours: Vec<u32> = ours(side).filter_map(|program| query::held_by(&pins.link(program, link.index))).collect();
        programs.iter().any(|program| !ours.contains(program))
    })
}

/// The programs we put on that side of a veth or a tunnel device.
fn ours(side: TcAttachType) -> impl Iterator<Item = Program> {
    let candidates = [Program::FromPod, Program::ToPod, Program::FromTunnel, Program::ToTunnel];
    candidates.into_iter().filter(move |program| direction(*program) == side)
}
