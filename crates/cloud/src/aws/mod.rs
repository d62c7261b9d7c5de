//! Route tables of Amazon's VPC, by the Query API of EC2.
//!
//! A route leads to the interface of the VPC that has the address of the external interface. That
//! interface, its subnet and its VPC are in the metadata of the instance, so no permission is
//! needed to find them.

mod answer;
mod credentials;
mod environment;
mod metadata;
mod request;
#[cfg(test)]
mod tests;
mod words;

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use flannel_status::RequestCounts;
use flannel_store::config::AwsVpcConfig;
use ipnet::Ipv4Net;

use self::{
    credentials::CredentialSource,
    environment::Environment,
    metadata::{Metadata, NetworkInterface},
    request::{Action, Api, signed},
    words::WORDS,
};
use super::{
    client::{CloudClient, Reply},
    error::CloudError,
    http::Http,
    plan::{RouteChange, RouteStep, Table},
    record::{CloudKind, RecordedRoute},
};
use crate::shared::count;

/// The time for a request to the API.
const PATIENCE: Duration = Duration::from_secs(15);

/// The client of a region.
#[derive(Debug)]
pub(super) struct Aws {
    http: Http,
    api: Api,
    credentials: CredentialSource,
    requests: RequestCounts,
}

/// This node's place in the VPC, and the tables that lead to it.
#[derive(Clone, Debug)]
pub(super) struct VpcPlace {
    interface: NetworkInterface,
    named: Vec<String>,
}

impl Aws {
    /// A client for a region, or that of this instance.
    pub(super) async fn connect(region: Option<&str>) -> Result<Self, CloudError> {
        let environment = Environment::read();
        let http = Http::new()?;
        let metadata = Metadata::new(http.clone(), environment.metadata());
        let api = api(&environment, region, &metadata).await?;
        let credentials = match environment.credentials {
            Some(credentials) => CredentialSource::Fixed(credentials),
            None => CredentialSource::Role {
                metadata: Box::new(metadata),
                last: None,
            },
        };
        Ok(Self {
            http,
            api,
            credentials,
            requests: RequestCounts::default(),
        })
    }

    /// Finds this node by the address of its external interface.
    pub(super) async fn find(
        &self,
        address: IpAddr,
        config: &AwsVpcConfig,
    ) -> Result<VpcPlace, CloudError> {
        let metadata = Metadata::new(self.http.clone(), Environment::read().metadata());
        let interface = metadata.visit().await?.interface_of(address).await?;
        Ok(VpcPlace {
            interface,
            named: config.route_tables.clone(),
        })
    }

    /// The requests since the last call.
    pub(super) fn take_requests(&mut self) -> RequestCounts {
        std::mem::take(&mut self.requests)
    }

    /// Switches off the check of source and destination, by which the VPC drops packets of pods.
    pub(super) async fn allow_pods(&mut self, place: &VpcPlace) -> Result<(), CloudError> {
        let parameters = [
            ("NetworkInterfaceId", place.target()),
            ("SourceDestCheck.Value", "false"),
        ];
        self.call(Action::ModifyNetworkInterfaceAttribute, &parameters)
            .await
            .map(drop)
    }

    /// Reads the tables that lead to this node: those that are named, else that of its subnet, else
    /// the main one of the VPC.
    pub(super) async fn tables(&mut self, place: &VpcPlace) -> Result<Vec<Table>, CloudError> {
        let NetworkInterface { id, subnet, vpc } = &place.interface;
        if !place.named.is_empty() {
            return self.tables_by_id(&place.named, id).await;
        }
        let of_subnet = self
            .tables_by(&[("association.subnet-id", subnet)], id)
            .await?;
        if !of_subnet.is_empty() {
            return Ok(of_subnet);
        }
        let main = self
            .tables_by(&[("vpc-id", vpc), ("association.main", "true")], id)
            .await?;
        if main.is_empty() {
            return Err(CloudError::NoTable {
                subnet: subnet.clone(),
                vpc: vpc.clone(),
            });
        }
        Ok(main)
    }

    async fn tables_by_id(&mut self, ids: &[String], own: &str) -> Result<Vec<Table>, CloudError> {
        let names: Vec<String> = (1..=ids.len())
            .map(|number| format!("RouteTableId.{number}"))
            .collect();
        let parameters: Vec<_> = names
            .iter()
            .map(String::as_str)
            .zip(ids.iter().map(String::as_str))
            .collect();
        answer::tables(
            &self.call(Action::DescribeRouteTables, &parameters).await?,
            own,
        )
    }

    async fn tables_by(
        &mut self,
        filters: &[(&str, &str)],
        own: &str,
    ) -> Result<Vec<Table>, CloudError> {
        let named = |(number, (name, value)): (usize, &(&str, &str))| {
            let filter = format!("Filter.{}", number + 1);
            [
                (format!("{filter}.Name"), (*name).to_owned()),
                (format!("{filter}.Value.1"), (*value).to_owned()),
            ]
        };
        let filters: Vec<(String, String)> = filters.iter().enumerate().flat_map(named).collect();
        let parameters: Vec<_> = filters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        answer::tables(
            &self.call(Action::DescribeRouteTables, &parameters).await?,
            own,
        )
    }

    /// Makes a change.
    pub(super) async fn apply(
        &mut self,
        place: &VpcPlace,
        step: &RouteStep,
    ) -> Result<(), CloudError> {
        let destination = step.destination.to_string();
        let route = [
            ("RouteTableId", step.table.as_str()),
            ("DestinationCidrBlock", &destination),
        ];
        let to_us = [&route[..], &[("NetworkInterfaceId", place.target())]].concat();
        match &step.change {
            RouteChange::Create { routes } => match self.call(Action::CreateRoute, &to_us).await {
                Err(error) if error.code() == Some("RouteLimitExceeded") => {
                    Err(CloudError::TableFull {
                        words: &WORDS,
                        table: step.table.clone(),
                        routes: *routes,
                        code: "RouteLimitExceeded".to_owned(),
                    })
                }
                other => other.map(drop),
            },
            RouteChange::Replace { .. } => self.call(Action::ReplaceRoute, &to_us).await.map(drop),
            RouteChange::Delete { .. } => match self.call(Action::DeleteRoute, &route).await {
                // Another node was faster.
                Err(error) if error.code() == Some("InvalidRoute.NotFound") => Ok(()),
                other => other.map(drop),
            },
        }
    }

    /// Removes a route that an agent recorded, unless it leads elsewhere now.
    pub(super) async fn undo(&mut self, route: &RecordedRoute) -> Result<(), CloudError> {
        let tables = match self
            .tables_by_id(std::slice::from_ref(&route.table), &route.target)
            .await
        {
            Err(error) if error.code() == Some("InvalidRouteTableID.NotFound") => return Ok(()),
            tables => tables?,
        };
        let is_ours = tables.iter().any(|table| table.leads(route.destination));
        if !is_ours {
            return Ok(());
        }
        let destination = route.destination.to_string();
        let parameters = [
            ("RouteTableId", route.table.as_str()),
            ("DestinationCidrBlock", &destination),
        ];
        self.call(Action::DeleteRoute, &parameters).await.map(drop)
    }

    /// True for a route in a table of the client's region.
    pub(super) fn is_of_region(&self, route: &RecordedRoute) -> bool {
        route.cloud == CloudKind::Aws && route.region == self.api.region
    }

    /// The record of a route to this node.
    pub(super) fn record(
        &self,
        place: &VpcPlace,
        table: &str,
        destination: Ipv4Net,
    ) -> RecordedRoute {
        RecordedRoute {
            cloud: CloudKind::Aws,
            region: self.api.region.clone(),
            table: table.to_owned(),
            destination,
            target: place.target().to_owned(),
        }
    }

    async fn call(
        &mut self,
        action: Action,
        parameters: &[(&str, &str)],
    ) -> Result<String, CloudError> {
        let answer = self.send(action, parameters).await;
        count(&mut self.requests, &answer);
        if let Err(CloudError::BadCredentials { .. }) = answer {
            self.credentials.forget();
        }
        answer
    }

    async fn send(
        &mut self,
        action: Action,
        parameters: &[(&str, &str)],
    ) -> Result<String, CloudError> {
        let credentials = self.credentials.current().await?;
        let request = signed(
            &self.api,
            &credentials,
            SystemTime::now(),
            action,
            parameters,
        )?;
        let answer = self.http.send(request, PATIENCE).await;
        let answer = answer.map_err(|error| CloudError::Http {
            action: action.name(),
            error,
        })?;
        answer::accepted(action, answer)
    }
}

impl VpcPlace {
    /// The interface to which routes lead.
    pub(super) fn target(&self) -> &str {
        &self.interface.id
    }
}

/// The client, and this node's place in the VPC.
#[derive(Debug)]
pub(super) struct AwsNode {
    aws: Aws,
    place: VpcPlace,
}

impl AwsNode {
    /// Finds this node by the address of its external interface.
    pub(super) async fn connect(
        address: IpAddr,
        config: &AwsVpcConfig,
    ) -> Result<Self, CloudError> {
        let aws = Aws::connect(None).await?;
        let place = aws.find(address, config).await?;
        Ok(Self { aws, place })
    }
}

impl CloudClient for AwsNode {
    fn target(&self) -> &str {
        self.place.target()
    }

    fn take_requests(&mut self) -> RequestCounts {
        self.aws.take_requests()
    }

    fn allow_pods(&mut self) -> Reply<'_, ()> {
        Box::pin(self.aws.allow_pods(&self.place))
    }

    fn tables(&mut self) -> Reply<'_, Vec<Table>> {
        Box::pin(self.aws.tables(&self.place))
    }

    fn apply<'a>(&'a mut self, step: &'a RouteStep) -> Reply<'a, ()> {
        Box::pin(self.aws.apply(&self.place, step))
    }

    fn record(&self, table: &str, destination: Ipv4Net) -> RecordedRoute {
        self.aws.record(&self.place, table, destination)
    }

    fn can_undo(&self, route: &RecordedRoute) -> bool {
        self.aws.is_of_region(route)
    }

    fn undo<'a>(&'a mut self, route: &'a RecordedRoute) -> Reply<'a, ()> {
        Box::pin(self.aws.undo(route))
    }
}

/// Removes a route that an agent recorded, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    Aws::connect(Some(&route.region)).await?.undo(route).await
}

/// The address of the API and its region.
async fn api(
    environment: &Environment,
    region: Option<&str>,
    metadata: &Metadata,
) -> Result<Api, CloudError> {
    let known = region
        .map(str::to_owned)
        .or_else(|| environment.region.clone());
    if let (Some(region), Some(endpoint)) = (&known, &environment.endpoint) {
        return Ok(Api {
            endpoint: endpoint.clone(),
            region: region.clone(),
        });
    }
    let visit = metadata.visit().await?;
    let region = match known {
        Some(region) => region,
        None => visit.required("placement/region").await?,
    };
    let endpoint = match &environment.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => format!(
            "https://ec2.{region}.{}",
            visit.required("services/domain").await?
        ),
    };
    Ok(Api { endpoint, region })
}
