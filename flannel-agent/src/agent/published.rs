//! The attributes that this node publishes: the addresses at which it is reached and, from the
//! backend, its ends of the tunnels.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use flannel_backend_api::{Backend, OwnEnd};
use flannel_host::family::Family;
use flannel_iface::ExternalInterface;
use flannel_store::LeaseAttrs;

/// The parts of the attributes that stay the same while the agent runs.
pub(super) struct Published {
    backend: Arc<dyn Backend>,
    backend_type: &'static str,
}

impl Published {
    pub(super) const fn new(backend: Arc<dyn Backend>, backend_type: &'static str) -> Self {
        Self {
            backend,
            backend_type,
        }
    }

    /// The attributes of our lease, from where we are reached and our ends of the tunnels.
    pub(super) fn attrs(
        &self,
        external: &ExternalInterface,
        ends: &BTreeMap<Family, OwnEnd>,
    ) -> LeaseAttrs {
        let mut attrs = LeaseAttrs {
            backend_type: self.backend_type.into(),
            ..LeaseAttrs::default()
        };
        for (family, end) in &external.ends {
            let has_other_source = end.public != end.source;
            let own = ends.get(family);
            let own = own.map(|own| own.from_other_source(has_other_source));
            let data = self.backend.published(*family, own);
            match family {
                Family::V4 => attrs.backend_data = data,
                Family::V6 => attrs.backend_v6_data = data,
            }
            match end.public {
                IpAddr::V4(public) => attrs.public_ip = Some(public),
                IpAddr::V6(public) => attrs.public_ipv6 = Some(public),
            }
        }
        attrs
    }
}
