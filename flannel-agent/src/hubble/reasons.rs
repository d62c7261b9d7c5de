//! Reasons of drops in the words of Cilium.

use flannel_common::abi::{kernel_drop::KernelDrop, reason::Reason};
use flannel_flows::events::PacketOutcome;
use flannel_hubble::flow::DropReason;

/// The published reason that fits; the summary of a flow has flannel's own, or the kernel's.
pub(super) const fn drop_reason(outcome: PacketOutcome) -> DropReason {
    match outcome {
        PacketOutcome::Program(_, reason) => of_program(reason),
        PacketOutcome::Kernel(reason) => of_kernel(reason),
    }
}

const fn of_program(reason: Reason) -> DropReason {
    match reason {
        Reason::RefusedVtep | Reason::RefusedEarly => DropReason::UnknownSender,
        Reason::RefusedSource => DropReason::InvalidSourceIp,
        Reason::RefusedPodTunnel => DropReason::EncapsulationTrafficIsProhibited,
        Reason::ForgedClose => DropReason::InvalidPacketDropped,
        Reason::StoreFailed | Reason::RewriteFailed => DropReason::ErrorWritingToPacket,
        _ => DropReason::Unknown,
    }
}

const fn of_kernel(reason: KernelDrop) -> DropReason {
    match reason {
        KernelDrop::NetfilterDrop | KernelDrop::XfrmPolicy => DropReason::PolicyDenied,
        KernelDrop::ReversePathFilter | KernelDrop::InvalidSource | KernelDrop::LocalSource => {
            DropReason::InvalidSourceIp
        }
        KernelDrop::NoRouteIn | KernelDrop::NoRouteOut => DropReason::FibLookupFailed,
        KernelDrop::Header | KernelDrop::HeaderChecksum => DropReason::InvalidPacketDropped,
        _ => DropReason::Unknown,
    }
}
