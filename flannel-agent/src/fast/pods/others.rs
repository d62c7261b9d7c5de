//! Who is on a device beside us: filters of tc, and TCX programs.
//!
//! TCX programs are ours by their name, because after a restart the links hold programs of the agent before until they are
//! updated.

use std::io;

use aya::programs::{SchedClassifier, TcAttachType};
use flannel_common::program::Program;

use super::judge::Others;
use crate::{
    datapath::attach::{PRIORITY, direction, filters, is_our_handle},
    netlink::Link,
};

/// Others on the ingress and on the egress of a device. What cannot be read counts as there; a device that is gone has none.
pub(super) fn on(link: &Link) -> (Others, Others) {
    (side(link, TcAttachType::Ingress), side(link, TcAttachType::Egress))
}

fn side(link: &Link, side: TcAttachType) -> Others {
    Others { filters: has_filters(link, side).unwrap_or(true), programs: has_programs(link, side) }
}

fn has_filters(link: &Link, side: TcAttachType) -> io::Result<bool> {
    let filters = filters::list(link.index, side)?;
    let listed = filters.iter().any(|filter| filter.priority != PRIORITY || !is_our_handle(filter.handle));
    Ok(listed && (side == TcAttachType::Ingress || filters::has_clsact(link.index)?))
}

/// A kernel without TCX has none, and says so with an error.
fn has_programs(link: &Link, side: TcAttachType) -> bool {
    let is_ours = |name: Option<&str>| ours(side).any(|program| name == Some(program.name()));
    SchedClassifier::query_tcx(&link.name, side)
        .is_ok_and(|(_, programs)| programs.iter().any(|program| !is_ours(program.name_as_str())))
}

/// The programs we put on that side of a veth or a tunnel device.
fn ours(side: TcAttachType) -> impl Iterator<Item = Program> {
    let candidates = [Program::FromPod, Program::ToPod, Program::FromTunnel, Program::ToTunnel];
    candidates.into_iter().filter(move |program| direction(*program) == side)
}
