//! Reasons of drops in the words of Cilium.

use flannel_common::reason::Reason;
use flannel_hubble::flow::DropReason;

/// The published reason that fits; the summary of a flow has flannel's own.
pub(super) const fn drop_reason(reason: Reason) -> DropReason {
    match reason {
        Reason::RefusedVtep | Reason::RefusedEarly => DropReason::UnknownSender,
        Reason::RefusedSource => DropReason::InvalidSourceIp,
        Reason::RefusedPodTunnel => DropReason::EncapsulationTrafficIsProhibited,
        Reason::ForgedClose => DropReason::InvalidPacketDropped,
        Reason::StoreFailed | Reason::RewriteFailed => DropReason::ErrorWritingToPacket,
        _ => DropReason::Unknown,
    }
}
