//! Routes of a network of Google's Compute Engine, by the [API
//! v1](https://cloud.google.com/compute/docs/reference/rest/v1/routes).
//!
//! A route is an object of the network's project, and its name is made from the subnet of a node,
//! as stock flannel names it. So a node knows the routes that nodes made, and leaves all others
//! alone. A route cannot be changed: it is deleted and made again. Both are operations, which are
//! asked for until they are done.

mod action;
mod answer;
mod place;
mod route_name;
mod token;
mod words;

use std::{net::IpAddr, time::Duration};

use flannel_status::RequestCounts;
use http::{
    HeaderValue, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use tokio::time::sleep;

pub(super) use self::route_name::route_name;
use self::{
    action::GceAction,
    answer::{GceInstance, GceOperation, GceRoute, RoutePage},
    place::{GceMetadata, GcePlace},
    token::TokenSource,
    words::WORDS,
};
use super::{
    client::{CloudClient, Reply},
    error::CloudError,
    http::Http,
    plan::{RouteChange, RouteStep, Table},
    record::{CloudKind, RecordedRoute},
    variable::variable,
};
use crate::shared::count;

/// The address of the API, and the variable of Google's own programs for another.
const API: &str = "https://compute.googleapis.com/compute/v1";
const API_VARIABLE: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE";
/// The start of URLs of resources in requests, wherever the API is.
const RESOURCES: &str = "https://www.googleapis.com/compute/v1";
/// The time for a request to the API.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two questions for an operation, and their number.
const BETWEEN_POLLS: Duration = Duration::from_secs(1);
const POLLS: u32 = 100;
/// Pages of 500 routes; a network has a few hundred.
const PAGES: u32 = 20;
/// As stock flannel's.
const PRIORITY: u32 = 1000;

/// The client of the API.
#[derive(Debug)]
struct Gce {
    http: Http,
    api: String,
    token: TokenSource,
    requests: RequestCounts,
}

/// The client, and this node's place in the network.
#[derive(Debug)]
pub(super) struct GceNode {
    gce: Gce,
    place: GcePlace,
    target: String,
}

impl Gce {
    fn new(http: Http) -> Self {
        let api = variable(API_VARIABLE).map_or_else(
            || API.to_owned(),
            |url| url.trim_end_matches('/').to_owned(),
        );
        let token = TokenSource::new(GceMetadata::new(http.clone()));
        Self {
            http,
            api,
            token,
            requests: RequestCounts::default(),
        }
    }

    /// Reads all routes of the project.
    async fn routes(&mut self, project: &str) -> Result<Vec<GceRoute>, CloudError> {
        let first = format!("projects/{project}/global/routes?maxResults=500");
        let (mut routes, mut path) = (Vec::new(), first.clone());
        for _ in 0..PAGES {
            let body = self.call(GceAction::ListRoutes, &path, None).await?;
            let RoutePage {
                items,
                next_page_token,
            } = answer::read(GceAction::ListRoutes, &body)?;
            routes.extend(items);
            let Some(token) = next_page_token else {
                return Ok(routes);
            };
            let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
            path = format!("{first}&pageToken={token}");
        }
        Err(CloudError::BadAnswer {
            action: GceAction::ListRoutes.name(),
            problem: "it has no end".to_owned(),
        })
    }

    async fn insert(&mut self, place: &GcePlace, destination: Ipv4Net) -> Result<(), CloudError> {
        let path = format!("projects/{}/global/routes", place.project);
        let body = self
            .call(
                GceAction::InsertRoute,
                &path,
                Some(&route(place, destination)),
            )
            .await?;
        self.finish(&place.project, GceAction::InsertRoute, &body)
            .await
    }

    /// Deletes the route to a subnet. One that is gone needs no deletion.
    async fn delete(&mut self, project: &str, destination: Ipv4Net) -> Result<(), CloudError> {
        let path = format!(
            "projects/{project}/global/routes/{}",
            route_name(destination)
        );
        match self.call(GceAction::DeleteRoute, &path, None).await {
            Err(error) if error.code() == Some("notFound") => Ok(()),
            body => self.finish(project, GceAction::DeleteRoute, &body?).await,
        }
    }

    /// Waits until an operation is done.
    async fn finish(
        &mut self,
        project: &str,
        action: GceAction,
        body: &str,
    ) -> Result<(), CloudError> {
        let mut operation: GceOperation = answer::read(action, body)?;
        for _ in 0..POLLS {
            if answer::is_done(action, &operation)? {
                return Ok(());
            }
            sleep(BETWEEN_POLLS).await;
            let path = format!("projects/{project}/global/operations/{}", operation.name);
            let body = self.call(GceAction::GetOperation, &path, None).await?;
            operation = answer::read(GceAction::GetOperation, &body)?;
        }
        Err(CloudError::Unfinished {
            action: action.name(),
            seconds: POLLS,
        })
    }

    /// Removes a route that an agent recorded, unless it leads elsewhere now.
    async fn undo(&mut self, recorded: &RecordedRoute) -> Result<(), CloudError> {
        let RecordedRoute {
            region: project,
            table,
            destination,
            target,
            ..
        } = recorded;
        let path = format!(
            "projects/{project}/global/routes/{}",
            route_name(*destination)
        );
        let found: GceRoute = match self.call(GceAction::GetRoute, &path, None).await {
            Err(error) if error.code() == Some("notFound") => return Ok(()),
            body => answer::read(GceAction::GetRoute, &body?)?,
        };
        let network = format!("projects/{project}/global/networks/{table}");
        if found.target() != target || !found.is_of(&network) {
            return Ok(());
        }
        self.delete(project, *destination).await
    }

    async fn call(
        &mut self,
        action: GceAction,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, CloudError> {
        let answer = self.send(action, path, body).await;
        count(&mut self.requests, &answer);
        if let Err(CloudError::BadCredentials { .. }) = answer {
            self.token.forget();
        }
        answer
    }

    async fn send(
        &mut self,
        action: GceAction,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, CloudError> {
        let token = self.token.current().await?;
        let unsigned = |problem: String| CloudError::Unsigned {
            action: action.name(),
            problem,
        };
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.reveal()))
            .map_err(|_has_it| unsigned("the token is no text of a header".to_owned()))?;
        bearer.set_sensitive(true);
        let request = Request::builder()
            .method(action.method())
            .uri(format!("{}/{path}", self.api));
        let request = request.header(AUTHORIZATION, bearer);
        let request = match body {
            Some(body) => request
                .header(CONTENT_TYPE, "application/json")
                .body(body.to_string()),
            None => request.body(String::new()),
        };
        let request = request.map_err(|error| unsigned(error.to_string()))?;
        let answer = self.http.send(request, PATIENCE).await;
        let answer = answer.map_err(|error| CloudError::Http {
            action: action.name(),
            error,
        })?;
        answer::accepted(action, answer)
    }
}

/// The route to this node.
fn route(place: &GcePlace, destination: Ipv4Net) -> Value {
    let mut route = json!({
        "name": route_name(destination),
        "destRange": destination.to_string(),
        "network": format!("{RESOURCES}/{}", place.network_path()),
        "priority": PRIORITY,
    });
    if place.is_shared {
        route["nextHopIp"] = json!(place.address.to_string());
    } else {
        route["nextHopInstance"] = json!(format!("{RESOURCES}/{}", place.instance));
    }
    route
}

impl GceNode {
    /// Finds this node by the address of its external interface.
    pub(super) async fn connect(address: IpAddr) -> Result<Self, CloudError> {
        let http = Http::new()?;
        let metadata = GceMetadata::new(http.clone());
        let place = GcePlace::find(&metadata, address, variable(place::NETWORK_PROJECT)).await?;
        Ok(Self {
            gce: Gce::new(http),
            target: place.target(),
            place,
        })
    }

    /// Looks at the instance: it cannot be changed while it runs.
    async fn look_at_forwarding(&mut self) -> Result<(), CloudError> {
        let body = self
            .gce
            .call(GceAction::GetInstance, &self.place.instance, None)
            .await?;
        let GceInstance { can_ip_forward } = answer::read(GceAction::GetInstance, &body)?;
        if can_ip_forward {
            Ok(())
        } else {
            Err(CloudError::NoForwarding(self.place.instance.clone()))
        }
    }

    async fn read_table(&mut self) -> Result<Vec<Table>, CloudError> {
        let routes = self.gce.routes(&self.place.project).await?;
        Ok(vec![answer::table(&routes, &self.place)])
    }

    async fn make(&mut self, step: &RouteStep) -> Result<(), CloudError> {
        let Self { gce, place, .. } = self;
        let RouteStep {
            table,
            destination,
            change,
        } = step;
        match change {
            RouteChange::Create { routes } => match gce.insert(place, *destination).await {
                Err(error) if matches!(error.code(), Some("quotaExceeded" | "QUOTA_EXCEEDED")) => {
                    let code = error.code().unwrap_or_default().to_owned();
                    Err(CloudError::TableFull {
                        words: &WORDS,
                        table: table.clone(),
                        routes: *routes,
                        code,
                    })
                }
                made => made,
            },
            RouteChange::Replace { .. } => {
                gce.delete(&place.project, *destination).await?;
                gce.insert(place, *destination).await
            }
            RouteChange::Delete { .. } => gce.delete(&place.project, *destination).await,
        }
    }
}

impl CloudClient for GceNode {
    fn target(&self) -> &str {
        &self.target
    }

    fn take_requests(&mut self) -> RequestCounts {
        std::mem::take(&mut self.gce.requests)
    }

    fn allow_pods(&mut self) -> Reply<'_, ()> {
        Box::pin(self.look_at_forwarding())
    }

    fn tables(&mut self) -> Reply<'_, Vec<Table>> {
        Box::pin(self.read_table())
    }

    fn apply<'a>(&'a mut self, step: &'a RouteStep) -> Reply<'a, ()> {
        Box::pin(self.make(step))
    }

    fn record(&self, table: &str, destination: Ipv4Net) -> RecordedRoute {
        RecordedRoute {
            cloud: CloudKind::Gce,
            region: self.place.project.clone(),
            table: table.to_owned(),
            destination,
            target: self.target.clone(),
        }
    }

    fn can_undo(&self, route: &RecordedRoute) -> bool {
        route.cloud == CloudKind::Gce
    }

    fn undo<'a>(&'a mut self, route: &'a RecordedRoute) -> Reply<'a, ()> {
        Box::pin(self.gce.undo(route))
    }
}

/// Removes a route that an agent recorded, unless it leads elsewhere now.
pub(super) async fn undo(route: &RecordedRoute) -> Result<(), CloudError> {
    Gce::new(Http::new()?).undo(route).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_as_stock_flannel_makes_it() {
        let [project, network] = ["p1", "default"].map(str::to_owned);
        let instance = "projects/p1/zones/z/instances/n1".to_owned();
        let address = "10.128.0.2".parse().expect("an address");
        let mut place = GcePlace {
            project,
            network,
            instance,
            address,
            is_shared: false,
        };
        let destination = "10.5.7.0/24".parse().expect("a prefix");
        let compute = "https://www.googleapis.com/compute/v1";
        let expected = json!({
            "name": "flannel-10-5-7-0-24",
            "destRange": "10.5.7.0/24",
            "network": format!("{compute}/projects/p1/global/networks/default"),
            "priority": 1000,
            "nextHopInstance": format!("{compute}/projects/p1/zones/z/instances/n1"),
        });
        assert_eq!(route(&place, destination), expected);
        place.is_shared = true;
        let shared = route(&place, destination);
        assert_eq!(
            (&shared["nextHopIp"], &shared["nextHopInstance"]),
            (&json!("10.128.0.2"), &Value::Null)
        );
    }
}
