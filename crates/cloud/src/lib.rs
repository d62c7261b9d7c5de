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
mod desired;
mod error;
mod gce;
mod http;
mod instance_metadata;
mod keys;
mod metadata;
mod plan;
mod record;
mod secret_json;
mod setup;
mod shared;
mod tencent;
mod variable;
mod worker;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use flannel_host::file::FileError;
use tokio::sync::watch;

pub use self::{
    desired::DesiredRoute,
    error::{CloudError, HttpError},
    setup::{CloudConfig, CloudSetup},
    shared::SharedCloudStatus,
};
use self::{
    record::{CloudKind, Record, RecordedRoute},
    worker::RouteWorker,
};

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
