//! Metrics of single backends: each is written while its backend has something to count.

pub(crate) mod cloud;
pub(crate) mod extension;
pub(crate) mod ipsec;
pub(crate) mod udp;
pub(crate) mod wireguard;

use crate::{page::Page, shared::SharedState};

/// Writes those of all backends.
pub(crate) fn write(page: &mut Page, shared: &SharedState) {
    wireguard::write(page, &shared.wireguard.states());
    extension::write(page, shared.extension.status().as_ref());
    cloud::write(page, shared.cloud.status().as_ref());
    ipsec::write(page, shared.ipsec.status().as_ref(), &shared.ipsec.states());
    udp::write(page, shared.udp.status().as_ref());
}
