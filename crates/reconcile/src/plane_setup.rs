//! The settings with which a plane starts.

use flannel_backend_api::{Marks, OwnEnd, PodNetwork};

use super::unreachable::NotMade;

/// The settings with which a plane starts.
#[derive(Clone, Copy, Debug)]
pub struct PlaneSetup {
    /// The pod network.
    pub network: PodNetwork,
    /// Our end of the tunnel, as published; `None` where the backend has none.
    pub end: Option<OwnEnd>,
    /// Peers from which on IPv4 routes are made by nexthop objects.
    pub nexthops_from: usize,
    /// `Ok` if the unreachable route for the network is made, else the reason why it is not.
    pub unreachable_route: Result<(), NotMade>,
    /// By what objects of other backends are known.
    pub marks: Marks,
}
