//! Who is on a device beside us: filters of tc, and TCX programs.
//!
//! TCX programs are ours by their name, because after a restart the links hold programs of the agent before until they are
//! updated.

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
    let filters = filters::list(link.index, side).map_or(true, |filters| {
        filters.iter().any(|filter| filter.priority != PRIORITY || !is_our_handle(filter.handle))
    });
    Others { filters, programs: has_programs(link, side) }
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
