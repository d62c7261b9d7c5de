//! The clients of clouds, all alike: a client knows this node's place in its cloud, reads the route
//! tables that lead to it, and makes the changes that the plan asks for.

use std::fmt;

use flannel_status::RequestCounts;
use futures::future::BoxFuture;
use ipnet::Ipv4Net;

use super::{
    error::CloudError,
    plan::{RouteStep, Table},
    record::RecordedRoute,
};

/// An answer of the cloud, to come.
pub(super) type Reply<'a, T> = BoxFuture<'a, Result<T, CloudError>>;

/// A client of a cloud, in which this node has its place.
pub(super) trait CloudClient: fmt::Debug + Send {
    /// The interface or instance to which routes lead, by the cloud's identifier.
    fn target(&self) -> &str;

    /// The requests since the last call.
    fn take_requests(&mut self) -> RequestCounts;

    /// Lets packets of pods pass the cloud's check of source and destination, or says why they may
    /// be dropped.
    fn allow_pods(&mut self) -> Reply<'_, ()>;

    /// Reads the tables that lead to this node. There is one at least.
    fn tables(&mut self) -> Reply<'_, Vec<Table>>;

    /// Makes a change.
    fn apply<'a>(&'a mut self, step: &'a RouteStep) -> Reply<'a, ()>;

    /// The record of a route to this node.
    fn record(&self, table: &str, destination: Ipv4Net) -> RecordedRoute;

    /// True for a route that this client can remove.
    fn can_undo(&self, route: &RecordedRoute) -> bool;

    /// Removes a route on record, unless it leads elsewhere now.
    fn undo<'a>(&'a mut self, route: &'a RecordedRoute) -> Reply<'a, ()>;
}
