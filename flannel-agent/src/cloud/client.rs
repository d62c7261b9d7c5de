//! The clients of clouds, all alike: a client knows this node's place in its cloud, reads the route
//! tables that lead to it, and makes the changes that the plan asks for.

use std::{fmt, net::IpAddr};

use futures::future::BoxFuture;
use ipnet::Ipv4Net;

use super::{
    CloudConfig,
    ali::{self, AliNode},
    aws::{self, AwsNode},
    book::RequestCounts,
    error::CloudError,
    gce::{self, GceNode},
    plan::{RouteStep, Table},
    record::{CloudKind, RecordedRoute},
    tencent::{self, TencentNode},
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

impl CloudConfig {
    /// The cloud.
    pub(super) const fn kind(&self) -> CloudKind {
        match self {
            Self::Aws(_) => CloudKind::Aws,
            Self::Gce => CloudKind::Gce,
            Self::Tencent(_) => CloudKind::Tencent,
            Self::Ali(_) => CloudKind::Ali,
        }
    }

    /// Finds this node in its cloud, by the address of its external interface.
    pub(super) async fn connect(&self, address: IpAddr) -> Result<Box<dyn CloudClient>, CloudError> {
        Ok(match self {
            Self::Aws(config) => Box::new(AwsNode::connect(address, config).await?),
            Self::Gce => Box::new(GceNode::connect(address).await?),
            Self::Ali(keys) => Box::new(AliNode::connect(address, keys.as_ref()).await?),
            Self::Tencent(keys) => Box::new(TencentNode::connect(address, keys.as_ref()).await?),
        })
    }
}

/// Removes a route on record, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    match route.cloud {
        CloudKind::Aws => aws::undo(route).await,
        CloudKind::Gce => gce::undo(route).await,
        CloudKind::Tencent => tencent::undo(route).await,
        CloudKind::Ali => ali::undo(route).await,
    }
}
