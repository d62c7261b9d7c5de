//! Route tables of Alibaba's VPC, by its API of 2016-04-28.
//!
//! A route leads to the instance. The table is that of the interface's subnet (VSwitch). Changes
//! take their time: the table is read until they are done.

mod answer;
mod metadata;
mod signature;
mod words;

use std::{net::IpAddr, time::Duration};

use flannel_status::RequestCounts;
use flannel_store::config::AccessKeys;
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;

use self::{
    answer::{AliEntry, EntryPage, INSTANCE, VSwitch},
    metadata::{AliPlace, ROLE, place_of, service},
    signature::{AliAction, AliApi, signed},
    words::WORDS,
};
use super::{
    client::{CloudClient, Reply},
    error::CloudError,
    http::Http,
    keys::KeySource,
    plan::{RouteChange, RouteStep, Table},
    record::{CloudKind, RecordedRoute},
    variable::variable,
};
use crate::shared::count;

/// The variable with another address of the API than that of the region.
const API_VARIABLE: &str = "FLANNEL_ALI_API_URL";
/// The time for a request to the API.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two questions for a change, and their number, as stock flannel's.
const BETWEEN_POLLS: Duration = Duration::from_secs(1);
const POLLS: u32 = 60;
/// Routes of a page, the most that the API gives; and pages, where a table has a few hundred.
const PAGE: &str = "100";
const PAGES: usize = 20;

/// The client of a region.
#[derive(Debug)]
struct Ali {
    http: Http,
    api: AliApi,
    keys: KeySource,
    requests: RequestCounts,
}

/// The client, and this node's place in the VPC.
#[derive(Debug)]
pub(super) struct AliNode {
    ali: Ali,
    place: AliPlace,
}

impl Ali {
    /// A client for a region, or that of this instance.
    async fn connect(
        region: Option<&str>,
        configured: Option<&AccessKeys>,
    ) -> Result<Self, CloudError> {
        let http = Http::new()?;
        let metadata = service(http.clone());
        let region = match region {
            Some(region) => region.to_owned(),
            None => metadata.required("region-id").await?,
        };
        let endpoint =
            variable(API_VARIABLE).unwrap_or_else(|| format!("https://vpc.{region}.aliyuncs.com"));
        let api = AliApi {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            region,
        };
        let keys = KeySource::new(configured, metadata, &ROLE);
        Ok(Self {
            http,
            api,
            keys,
            requests: RequestCounts::default(),
        })
    }

    /// Reads the routes of a table: all, or those to one destination.
    async fn entries(
        &mut self,
        table: &str,
        destination: Option<Ipv4Net>,
    ) -> Result<Vec<AliEntry>, CloudError> {
        let destination = destination.map(|destination| destination.to_string());
        let (mut entries, mut next) = (Vec::new(), None::<String>);
        for _ in 0..PAGES {
            let mut parameters = vec![("RouteTableId", table), ("MaxResult", PAGE)];
            parameters.extend(
                destination
                    .as_ref()
                    .map(|destination| ("DestinationCidrBlock", destination.as_str())),
            );
            parameters.extend(next.as_ref().map(|token| ("NextToken", token.as_str())));
            let page: EntryPage = self
                .call(AliAction::DescribeRouteEntryList, &parameters)
                .await?;
            entries.extend(page.route_entrys.route_entry);
            match page.next_token.filter(|token| !token.is_empty()) {
                None => return Ok(entries),
                token => next = token,
            }
        }
        let action = AliAction::DescribeRouteEntryList.name();
        Err(CloudError::BadAnswer {
            action,
            problem: "it has no end".to_owned(),
        })
    }

    /// Makes the route to an instance, and waits until it carries packets.
    async fn create(
        &mut self,
        table: &str,
        destination: Ipv4Net,
        instance: &str,
    ) -> Result<(), CloudError> {
        let prefix = destination.to_string();
        let parameters = [
            ("RouteTableId", table),
            ("DestinationCidrBlock", &prefix),
            ("NextHopType", INSTANCE),
            ("NextHopId", instance),
        ];
        self.call::<Value>(AliAction::CreateRouteEntry, &parameters)
            .await?;
        // The next round handles a route that another party has changed since.
        let is_made = |entries: &[AliEntry]| {
            let mut of_subnet = entries.iter().filter(|entry| entry.is_to(destination));
            of_subnet.any(|entry| entry.is_available() || !entry.is_ours(destination, instance))
        };
        self.finish(AliAction::CreateRouteEntry, table, destination, is_made)
            .await
    }

    /// Deletes a route, and waits until it is gone. One that is gone needs no deletion.
    async fn delete(
        &mut self,
        table: &str,
        destination: Ipv4Net,
        hop: &str,
    ) -> Result<(), CloudError> {
        let prefix = destination.to_string();
        let parameters = [
            ("RouteTableId", table),
            ("DestinationCidrBlock", &prefix),
            ("NextHopId", hop),
        ];
        match self
            .call::<Value>(AliAction::DeleteRouteEntry, &parameters)
            .await
        {
            Err(error) if error.code() == Some("InvalidRouteEntry.NotFound") => return Ok(()),
            answer => answer?,
        };
        let is_gone = |entries: &[AliEntry]| !entries.iter().any(|entry| entry.is_to(destination));
        self.finish(AliAction::DeleteRouteEntry, table, destination, is_gone)
            .await
    }

    async fn finish(
        &mut self,
        action: AliAction,
        table: &str,
        destination: Ipv4Net,
        is_done: impl Fn(&[AliEntry]) -> bool + Send,
    ) -> Result<(), CloudError> {
        for _ in 0..POLLS {
            if is_done(&self.entries(table, Some(destination)).await?) {
                return Ok(());
            }
            sleep(BETWEEN_POLLS).await;
        }
        Err(CloudError::Unfinished {
            action: action.name(),
            seconds: POLLS,
        })
    }

    /// Removes a route that an agent recorded, unless it leads elsewhere now.
    async fn undo(&mut self, recorded: &RecordedRoute) -> Result<(), CloudError> {
        let RecordedRoute {
            table,
            destination,
            target,
            ..
        } = recorded;
        let entries = match self.entries(table, Some(*destination)).await {
            Err(error) if error.code() == Some("InvalidRouteTableId.NotFound") => return Ok(()),
            entries => entries?,
        };
        if entries
            .iter()
            .any(|entry| entry.is_ours(*destination, target))
        {
            self.delete(table, *destination, target).await
        } else {
            Ok(())
        }
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        action: AliAction,
        parameters: &[(&str, &str)],
    ) -> Result<T, CloudError> {
        let answer = self.send(action, parameters).await;
        count(&mut self.requests, &answer);
        if let Err(CloudError::BadCredentials { .. }) = answer {
            self.keys.forget();
        }
        answer
    }

    async fn send<T: DeserializeOwned>(
        &mut self,
        action: AliAction,
        parameters: &[(&str, &str)],
    ) -> Result<T, CloudError> {
        let keys = self.keys.current().await?;
        let nonce = format!("{:032x}", rand::random::<u128>());
        let request = signed(
            &self.api,
            &keys,
            (Timestamp::now(), &nonce),
            action,
            parameters,
        )?;
        let answer = self.http.send(request, PATIENCE).await;
        let answer = answer.map_err(|error| CloudError::Http {
            action: action.name(),
            error,
        })?;
        answer::read(action, &answer)
    }
}

impl AliNode {
    /// Finds this node by the address of its external interface.
    pub(super) async fn connect(
        address: IpAddr,
        configured: Option<&AccessKeys>,
    ) -> Result<Self, CloudError> {
        let ali = Ali::connect(None, configured).await?;
        let place = place_of(&service(ali.http.clone()), address).await?;
        Ok(Self { ali, place })
    }

    /// Reads the table of this node's subnet.
    async fn read_table(&mut self) -> Result<Vec<Table>, CloudError> {
        let parameters = [("VSwitchId", self.place.vswitch.as_str())];
        let vswitch: VSwitch = self
            .ali
            .call(AliAction::DescribeVSwitchAttributes, &parameters)
            .await?;
        let id = vswitch.route_table.route_table_id;
        let entries = self.ali.entries(&id, None).await?;
        let routes = entries
            .iter()
            .filter_map(|entry| entry.row(&self.place.instance))
            .collect();
        Ok(vec![Table { id, routes }])
    }

    async fn make(&mut self, step: &RouteStep) -> Result<(), CloudError> {
        let Self { ali, place } = self;
        let RouteStep {
            table,
            destination,
            change,
        } = step;
        match change {
            RouteChange::Create { routes } => {
                match ali.create(table, *destination, &place.instance).await {
                    Err(error) if error.code().is_some_and(|code| code.contains("Quota")) => {
                        let code = error.code().unwrap_or_default().to_owned();
                        Err(CloudError::TableFull {
                            words: &WORDS,
                            table: table.clone(),
                            routes: *routes,
                            code,
                        })
                    }
                    made => made,
                }
            }
            RouteChange::Replace { .. } => {
                for entry in ali.entries(table, Some(*destination)).await? {
                    if entry.is_to(*destination) {
                        ali.delete(table, *destination, entry.hop()).await?;
                    }
                }
                ali.create(table, *destination, &place.instance).await
            }
            RouteChange::Delete { .. } => ali.delete(table, *destination, &place.instance).await,
        }
    }
}

impl CloudClient for AliNode {
    fn target(&self) -> &str {
        &self.place.instance
    }

    fn take_requests(&mut self) -> RequestCounts {
        std::mem::take(&mut self.ali.requests)
    }

    /// Alibaba's VPC has no such check for routes to an instance.
    fn allow_pods(&mut self) -> Reply<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn tables(&mut self) -> Reply<'_, Vec<Table>> {
        Box::pin(self.read_table())
    }

    fn apply<'a>(&'a mut self, step: &'a RouteStep) -> Reply<'a, ()> {
        Box::pin(self.make(step))
    }

    fn record(&self, table: &str, destination: Ipv4Net) -> RecordedRoute {
        RecordedRoute {
            cloud: CloudKind::Ali,
            region: self.ali.api.region.clone(),
            table: table.to_owned(),
            destination,
            target: self.place.instance.clone(),
        }
    }

    fn can_undo(&self, route: &RecordedRoute) -> bool {
        route.cloud == CloudKind::Ali && route.region == self.ali.api.region
    }

    fn undo<'a>(&'a mut self, route: &'a RecordedRoute) -> Reply<'a, ()> {
        Box::pin(self.ali.undo(route))
    }
}

/// Removes a route that an agent recorded, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    Ali::connect(Some(&route.region), None)
        .await?
        .undo(route)
        .await
}
