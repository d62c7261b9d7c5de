//! The names of routes, by which a node knows those that nodes made. Pure.

use ipnet::Ipv4Net;

/// The name of the route to a subnet, which is stock flannel's.
pub(crate) fn route_name(destination: Ipv4Net) -> String {
    format!(
        "flannel-{}",
        destination.to_string().replace(['.', '/'], "-")
    )
}
