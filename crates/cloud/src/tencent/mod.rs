//! Route tables of Tencent's VPC, by its API of 2017-03-12.
//!
//! A route leads to the address of the external interface. The table is that of the interface's
//! subnet of the VPC. A route is removed by its number, so the tables are kept as last read.

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
use serde_json::{Value, json};

use self::{
    answer::{INSTANCE, TablePage, TencentTable},
    metadata::{ROLE, TencentPlace, place_of, service},
    signature::{TencentAction, TencentApi, signed},
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

/// The address of the API.
const API: &str = "https://vpc.tencentcloudapi.com";
const API_VARIABLE: &str = "FLANNEL_TENCENT_API_URL";
/// The time for a request to the API.
const PATIENCE: Duration = Duration::from_secs(15);
/// Tables of a page, the most that the API gives; and pages, where a VPC has ten tables.
const PAGE: usize = 100;
const PAGES: usize = 10;

/// The client of a region.
#[derive(Debug)]
struct Tencent {
    http: Http,
    api: TencentApi,
    keys: KeySource,
    requests: RequestCounts,
}

/// The client, and this node's place in the VPC.
#[derive(Debug)]
pub(super) struct TencentNode {
    tencent: Tencent,
    place: TencentPlace,
    /// The table as last read.
    table: Option<TencentTable>,
}

impl Tencent {
    /// A client for a region, or that of this instance.
    async fn connect(
        region: Option<&str>,
        configured: Option<&AccessKeys>,
    ) -> Result<Self, CloudError> {
        let http = Http::new()?;
        let metadata = service(http.clone());
        let region = match region {
            Some(region) => region.to_owned(),
            None => metadata.required("placement/region").await?,
        };
        let endpoint = variable(API_VARIABLE)
            .unwrap_or_else(|| API.to_owned())
            .trim_end_matches('/')
            .to_owned();
        let keys = KeySource::new(configured, metadata, &ROLE);
        Ok(Self {
            http,
            api: TencentApi { endpoint, region },
            keys,
            requests: RequestCounts::default(),
        })
    }

    /// Reads the tables of a VPC.
    async fn tables_of(&mut self, vpc: &str) -> Result<Vec<TencentTable>, CloudError> {
        let mut tables = Vec::new();
        for page in 0..PAGES {
            // The API takes both numbers as texts.
            let (offset, limit) = ((page * PAGE).to_string(), PAGE.to_string());
            let filter = json!({ "Name": "vpc-id", "Values": [vpc] });
            let parameters = json!({ "Filters": [filter], "Offset": offset, "Limit": limit });
            let read: TablePage = self
                .call(TencentAction::DescribeRouteTables, &parameters)
                .await?;
            let is_last = read.route_table_set.len() < PAGE;
            tables.extend(read.route_table_set);
            if is_last || tables.len() >= read.total_count {
                break;
            }
        }
        Ok(tables)
    }

    async fn create(
        &mut self,
        table: &str,
        destination: Ipv4Net,
        address: &str,
    ) -> Result<(), CloudError> {
        let route = json!({
            "DestinationCidrBlock": destination.to_string(),
            "GatewayType": INSTANCE,
            "GatewayId": address,
            "Enabled": true,
        });
        let parameters = json!({ "RouteTableId": table, "Routes": [route] });
        self.call::<Value>(TencentAction::CreateRoutes, &parameters)
            .await
            .map(drop)
    }

    /// Deletes routes by their numbers. Those that are gone need no deletion.
    async fn delete(&mut self, table: &str, ids: &[u64]) -> Result<(), CloudError> {
        if ids.is_empty() {
            return Ok(());
        }
        let routes: Vec<Value> = ids.iter().map(|id| json!({ "RouteId": id })).collect();
        let parameters = json!({ "RouteTableId": table, "Routes": routes });
        match self
            .call::<Value>(TencentAction::DeleteRoutes, &parameters)
            .await
        {
            Err(error) if error.code() == Some("ResourceNotFound") => Ok(()),
            done => done.map(drop),
        }
    }

    /// Removes a route that an agent recorded, unless it leads elsewhere now.
    async fn undo(&mut self, recorded: &RecordedRoute) -> Result<(), CloudError> {
        let RecordedRoute {
            table: id,
            destination,
            target,
            ..
        } = recorded;
        let parameters = json!({ "RouteTableIds": [id] });
        let page: TablePage = match self
            .call(TencentAction::DescribeRouteTables, &parameters)
            .await
        {
            Err(error) if error.code() == Some("ResourceNotFound") => return Ok(()),
            page => page?,
        };
        let ids: Vec<u64> = page
            .route_table_set
            .iter()
            .flat_map(|table| table.ids_to(*destination, target))
            .collect();
        self.delete(id, &ids).await
    }

    async fn call<T: DeserializeOwned>(
        &mut self,
        action: TencentAction,
        parameters: &Value,
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
        action: TencentAction,
        parameters: &Value,
    ) -> Result<T, CloudError> {
        let keys = self.keys.current().await?;
        let request = signed(&self.api, &keys, Timestamp::now(), action, parameters)?;
        let answer = self.http.send(request, PATIENCE).await;
        let answer = answer.map_err(|error| CloudError::Http {
            action: action.name(),
            error,
        })?;
        answer::read(action, &answer)
    }
}

impl TencentNode {
    /// Finds this node by the address of its external interface.
    pub(super) async fn connect(
        address: IpAddr,
        configured: Option<&AccessKeys>,
    ) -> Result<Self, CloudError> {
        let tencent = Tencent::connect(None, configured).await?;
        let place = place_of(&service(tencent.http.clone()), address).await?;
        Ok(Self {
            tencent,
            place,
            table: None,
        })
    }

    /// Reads the table of this node's subnet; the main one of the VPC where none names the subnet.
    async fn read_table(&mut self) -> Result<Vec<Table>, CloudError> {
        let TencentPlace {
            vpc,
            subnet,
            address,
        } = &self.place;
        let mut tables = self.tencent.tables_of(vpc).await?;
        let of_subnet = tables.iter().position(|table| table.serves(subnet));
        let chosen = of_subnet.or_else(|| tables.iter().position(|table| table.main));
        let chosen = chosen.ok_or_else(|| CloudError::NoTableOf {
            subnet: subnet.clone(),
            vpc: vpc.clone(),
        })?;
        let table = self.table.insert(tables.swap_remove(chosen));
        Ok(vec![table.table(address)])
    }

    async fn make(&mut self, step: &RouteStep) -> Result<(), CloudError> {
        let Self {
            tencent,
            place,
            table: known,
        } = self;
        let RouteStep {
            table,
            destination,
            change,
        } = step;
        let ids = known
            .as_ref()
            .map(|known| known.ids(*destination))
            .unwrap_or_default();
        match change {
            RouteChange::Create { routes } => match tencent
                .create(table, *destination, &place.address)
                .await
            {
                Err(error) if error.code() == Some("LimitExceeded") => Err(CloudError::TableFull {
                    words: &WORDS,
                    table: table.clone(),
                    routes: *routes,
                    code: "LimitExceeded".to_owned(),
                }),
                made => made,
            },
            RouteChange::Replace { .. } => {
                tencent.delete(table, &ids).await?;
                tencent.create(table, *destination, &place.address).await
            }
            RouteChange::Delete { .. } => {
                let own = known
                    .as_ref()
                    .map(|known| known.ids_to(*destination, &place.address));
                tencent.delete(table, &own.unwrap_or_default()).await
            }
        }
    }
}

impl CloudClient for TencentNode {
    fn target(&self) -> &str {
        &self.place.address
    }

    fn take_requests(&mut self) -> RequestCounts {
        std::mem::take(&mut self.tencent.requests)
    }

    /// Tencent has no such check.
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
            cloud: CloudKind::Tencent,
            region: self.tencent.api.region.clone(),
            table: table.to_owned(),
            destination,
            target: self.place.address.clone(),
        }
    }

    fn can_undo(&self, route: &RecordedRoute) -> bool {
        route.cloud == CloudKind::Tencent && route.region == self.tencent.api.region
    }

    fn undo<'a>(&'a mut self, route: &'a RecordedRoute) -> Reply<'a, ()> {
        Box::pin(self.tencent.undo(route))
    }
}

/// Removes a route that an agent recorded, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    Tencent::connect(Some(&route.region), None)
        .await?
        .undo(route)
        .await
}
