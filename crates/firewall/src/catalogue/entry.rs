//! A row of the catalogue, and its verdict.

use super::facts::ElementFacts;

/// A row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The name in a rule; `*` at its end stands for the rest.
    pub(super) name: &'static str,
    pub(super) rating: Rating,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the page of the catalogue is made from it")
    )]
    pub(super) why: &'static str,
}

/// The verdict of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rating {
    Exact,
    PerPacket,
    /// Exact for flows of pods; tunnel packets to one peer may differ in it.
    PerTunnelPacket,
    /// It depends on the options.
    Depends(fn(&ElementFacts<'_>) -> Finding),
}

/// The outcome of a condition on options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Exact,
    KernelPath,
    NewConnections,
    PerPacket,
    /// The same, of a part of the element.
    PerPacketIn(&'static str),
}

pub(super) const fn exact(name: &'static str, why: &'static str) -> Entry {
    Entry {
        name,
        rating: Rating::Exact,
        why,
    }
}

pub(super) const fn per_packet(name: &'static str, why: &'static str) -> Entry {
    Entry {
        name,
        rating: Rating::PerPacket,
        why,
    }
}

pub(super) const fn per_tunnel_packet(name: &'static str, why: &'static str) -> Entry {
    Entry {
        name,
        rating: Rating::PerTunnelPacket,
        why,
    }
}

pub(super) const fn depends(
    name: &'static str,
    on: fn(&ElementFacts<'_>) -> Finding,
    why: &'static str,
) -> Entry {
    Entry {
        name,
        rating: Rating::Depends(on),
        why,
    }
}
