//! Access to the parts of a lease that belong to one family.

use flannel_host::family::Family;
use ipnet::{Ipv4Net, Ipv6Net};

use crate::{LeaseAttrs, LeaseKey, RawJson, config::Prefix};

/// Access to the parts of a lease that belong to one family.
pub(super) trait LeaseFamily: Prefix {
    const FAMILY: Family;
    fn subnet_of(key: LeaseKey) -> Option<Self>;
    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address>;
    fn data(attrs: &LeaseAttrs) -> Option<&RawJson>;
}

impl LeaseFamily for Ipv4Net {
    const FAMILY: Family = Family::V4;

    fn subnet_of(key: LeaseKey) -> Option<Self> {
        key.v4
    }

    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address> {
        attrs.public_ip
    }

    fn data(attrs: &LeaseAttrs) -> Option<&RawJson> {
        attrs.backend_data.as_ref()
    }
}

impl LeaseFamily for Ipv6Net {
    const FAMILY: Family = Family::V6;

    fn subnet_of(key: LeaseKey) -> Option<Self> {
        key.v6
    }

    fn public_ip(attrs: &LeaseAttrs) -> Option<Self::Address> {
        attrs.public_ipv6
    }

    fn data(attrs: &LeaseAttrs) -> Option<&RawJson> {
        attrs.backend_v6_data.as_ref()
    }
}
