//! The route to this node's pods in the route tables of a cloud, which carries the packets between
//! nodes: the backends aws-vpc, gce, tencent-vpc and ali-vpc.
//!
//! Each node keeps the route to its own subnet, in a separate task ([`CloudRoutes`]): the main loop
//! waits for no API. The task gets the leases and writes to the [`SharedCloudStatus`]. Routes are
//! on record in the state directory, so that `cleanup` can remove them.

mod ali;
mod aws;
mod client;
mod connect;
mod error;
mod gce;
mod http;
mod instance_metadata;
mod keys;
mod metadata;
mod plan;
mod record;
mod secret_json;
mod shared;
mod tencent;
mod variable;
mod worker;

use std::{
    collections::BTreeSet,
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use flannel_host::file::FileError;
use flannel_store::config::{AccessKeys, AwsVpcConfig};
use ipnet::Ipv4Net;
use tokio::sync::watch;

pub use self::{
    error::{CloudError, HttpError},
    shared::SharedCloudStatus,
};
use self::{
    record::{CloudKind, Record, RecordedRoute},
    worker::RouteWorker,
};

/// The cloud whose tables get the routes, with the keys of its backend.
#[derive(Clone, Debug)]
pub enum CloudConfig {
    /// Amazon's VPC.
    Aws(AwsVpcConfig),
    /// Google's Compute Engine.
    Gce,
    /// Tencent's VPC, with the keys of the configuration.
    Tencent(Option<AccessKeys>),
    /// Alibaba's VPC, with the keys of the configuration.
    Ali(Option<AccessKeys>),
}

/// The parts of the configuration, and where the state goes.
#[derive(Clone, Debug)]
pub struct CloudSetup {
    /// The cloud.
    pub config: CloudConfig,
    /// The pod network.
    pub network: Ipv4Net,
    /// The time between two looks at the tables.
    pub interval: Duration,
    /// The state directory.
    pub state_dir: PathBuf,
    /// The state, for the status and the metrics.
    pub shared: SharedCloudStatus,
}

/// The facts about the leases and the node on which routes depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredRoute {
    /// The subnet of this node's pods.
    pub own: Ipv4Net,
    /// The address of the external interface.
    pub address: IpAddr,
    /// The subnets of other nodes.
    pub others: BTreeSet<Ipv4Net>,
    /// True once the store has shown all leases.
    pub in_sync: bool,
}

impl DesiredRoute {
    /// Returns true if routes have to be looked at for another one. Leases of other nodes can wait:
    /// what they change is cleared away with the next regular look.
    fn needs_other_routes_than(&self, other: &Self) -> bool {
        (self.own, self.address, self.in_sync) != (other.own, other.address, other.in_sync)
    }
}

/// The main loop's side of the task. The task ends with it.
#[derive(Debug)]
pub struct CloudRoutes {
    sender: watch::Sender<DesiredRoute>,
    shared: SharedCloudStatus,
}

impl CloudRoutes {
    /// Starts the task.
    pub fn start(setup: CloudSetup, desired: DesiredRoute) -> Result<Self, CloudError> {
        let shared = setup.shared.clone();
        let worker = RouteWorker::new(setup, &desired)?;
        let (sender, receiver) = watch::channel(desired);
        tokio::spawn(worker.run(receiver));
        Ok(Self { sender, shared })
    }

    /// Takes in the leases.
    pub fn learn(&self, desired: DesiredRoute) {
        self.sender.send_if_modified(|last| {
            let is_other = *last != desired;
            *last = desired;
            is_other
        });
    }

    /// Returns true if the cloud routed this node's pods to it at the last look.
    pub fn is_routed(&self) -> bool {
        self.shared.is_routed()
    }
}

/// A route on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudRecord {
    route: RecordedRoute,
    state_dir: PathBuf,
}

impl fmt::Display for CloudRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordedRoute {
            cloud,
            region,
            table,
            destination,
            target,
        } = &self.route;
        match cloud {
            CloudKind::Aws | CloudKind::Tencent | CloudKind::Ali => {
                write!(
                    f,
                    "the route {destination} to {target} from the route table {table} in {region}"
                )
            }
            CloudKind::Gce => {
                write!(
                    f,
                    "the route {destination} to {target} from the network {table} of the project \
                     {region}"
                )
            }
        }
    }
}

impl CloudRecord {
    /// The command that removes it by hand.
    pub fn by_hand(&self) -> String {
        let RecordedRoute {
            cloud,
            region,
            table,
            destination,
            target,
        } = &self.route;
        match cloud {
            CloudKind::Aws => format!(
                "aws ec2 delete-route --region {region} --route-table-id {table} \
                 --destination-cidr-block {destination}"
            ),
            CloudKind::Gce => {
                format!(
                    "gcloud compute routes delete --project {region} {}",
                    gce::route_name(*destination)
                )
            }
            CloudKind::Ali => format!(
                "aliyun vpc DeleteRouteEntry --RegionId {region} --RouteTableId {table} \
                 --DestinationCidrBlock \
                 {destination} --NextHopId {target}"
            ),
            CloudKind::Tencent => format!(
                "tccli vpc DeleteRoutes --region {region} --RouteTableId {table} --Routes \
                 '[{{\"RouteId\": NUMBER}}]'` \
                 with the number that has {destination} in `tccli vpc DescribeRouteTables --region \
                 {region}"
            ),
        }
    }
}

/// Returns the routes on record in a state directory.
pub fn recorded(state_dir: &Path) -> Result<Vec<CloudRecord>, FileError> {
    let record = Record::load(state_dir)?;
    let routes = record.routes().iter().cloned();
    Ok(routes
        .map(|route| CloudRecord {
            route,
            state_dir: state_dir.to_owned(),
        })
        .collect())
}

/// Removes a route, unless it leads elsewhere by now, and takes it off the record.
pub async fn undo(CloudRecord { route, state_dir }: &CloudRecord) -> Result<(), CloudError> {
    connect::undo(route).await?;
    Ok(Record::load(state_dir)?.remove(&route.table, route.destination)?)
}
