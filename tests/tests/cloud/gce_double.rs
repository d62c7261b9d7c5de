//! The part of Google's Compute Engine that routes need: a server that refuses what the API
//! refuses, and the metadata service of an instance.
//!
//! Routes come and go by operations, each of which is running when it is first asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use flannel_tests::{AgentOptions, Node};
use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

use super::double::{Answered, Double, Received};

const PORT: u16 = 5100;
const METADATA_PORT: u16 = 5101;
const PROJECT: &str = "pods-17";
const RESOURCES: &str = "https://www.googleapis.com/compute/v1/projects/pods-17";
/// The instance that the node is, and its address in the network.
pub(crate) const OWN: &str = "projects/pods-17/zones/europe-west4-a/instances/node-a";
pub(crate) const OTHER: &str = "projects/pods-17/zones/europe-west4-a/instances/node-b";
pub(crate) const NETWORK: &str = "nodes";
const ADDRESS: &str = "192.168.1.11";
/// Routes of a page. Google's have more.
const PAGE: usize = 3;
/// The fields of a route in a request.
const FIELDS: [&str; 8] = [
    "name",
    "description",
    "destRange",
    "network",
    "priority",
    "tags",
    "nextHopInstance",
    "nextHopIp",
];
/// The permissions that an agent needs.
pub(crate) const PERMISSIONS: [&str; 6] = [
    "compute.routes.list",
    "compute.routes.get",
    "compute.routes.create",
    "compute.routes.delete",
    "compute.globalOperations.get",
    "compute.instances.get",
];

/// The project, with one network.
pub(crate) struct Compute {
    state: Arc<Mutex<State>>,
    _servers: [Double; 2],
}

#[derive(Default)]
struct State {
    routes: BTreeMap<String, Value>,
    instances: BTreeSet<String>,
    can_ip_forward: bool,
    permissions: BTreeSet<String>,
    /// The number of the token that is accepted.
    token: u32,
    /// Changes that are not done.
    running: BTreeMap<String, Change>,
    operations: u32,
    /// Requests that were refused, each with its reason.
    refusals: Vec<String>,
}

enum Change {
    Insert(Value),
    Delete(String),
    Done,
}

impl Compute {
    /// Starts it. The instance forwards packets, and its account may do everything.
    pub(crate) fn start(node: &Node) -> Result<Self> {
        let state = State {
            instances: [OWN, OTHER].map(str::to_owned).into(),
            permissions: PERMISSIONS.map(str::to_owned).into(),
            can_ip_forward: true,
            token: 1,
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let (of_api, of_metadata) = (Arc::clone(&state), Arc::clone(&state));
        let api = Double::start(node, PORT, move |request| lock(&of_api).answer(request))?;
        let metadata = Double::start(node, METADATA_PORT, move |request| {
            lock(&of_metadata).metadata(request)
        })?;
        Ok(Self {
            state,
            _servers: [api, metadata],
        })
    }

    /// The variables by which programs find it.
    pub(crate) fn environment() -> [(String, String); 2] {
        [
            (
                "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE".to_owned(),
                format!("http://127.0.0.1:{PORT}/compute/v1/"),
            ),
            (
                "GCE_METADATA_HOST".to_owned(),
                format!("127.0.0.1:{METADATA_PORT}"),
            ),
        ]
    }

    /// The options of an agent on this instance, which looks at the routes each second.
    pub(crate) fn agent(mut options: AgentOptions) -> AgentOptions {
        options.environment.extend(Self::environment());
        options.flag("--cloud-route-interval=1")
    }

    /// Name, destination and next hop of each route.
    pub(crate) fn routes(&self) -> Vec<[String; 3]> {
        lock(&self.state).routes.values().map(row).collect()
    }

    /// Makes a route, or changes it.
    pub(crate) fn put(&self, name: &str, destination: &str, instance: &str) {
        let route = json!({
            "name": name,
            "destRange": destination,
            "network": format!("{RESOURCES}/global/networks/{NETWORK}"),
            "priority": 1000,
            "nextHopInstance": instance.replacen("projects/pods-17", RESOURCES, 1),
        });
        lock(&self.state).routes.insert(name.to_owned(), route);
    }

    pub(crate) fn remove(&self, name: &str) {
        lock(&self.state).routes.remove(name);
    }

    /// Gives the account these permissions and no others.
    pub(crate) fn permit(&self, permissions: &[&str]) {
        lock(&self.state).permissions = permissions.iter().map(|name| (*name).to_owned()).collect();
    }

    pub(crate) fn forward(&self, can_ip_forward: bool) {
        lock(&self.state).can_ip_forward = can_ip_forward;
    }

    /// Ends the token before its time.
    pub(crate) fn expire_token(&self) {
        lock(&self.state).token += 1;
    }

    /// The refused requests since the last call.
    pub(crate) fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).refusals)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn row(route: &Value) -> [String; 3] {
    let text = |name: &str| route[name].as_str().unwrap_or_default().to_owned();
    let hop = text("nextHopInstance");
    [
        text("name"),
        text("destRange"),
        hop.replacen(RESOURCES, "projects/pods-17", 1),
    ]
}

/// The reason of a refusal: the status, Google's word for it, and a message.
struct Refusal(u16, &'static str, String);

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal(400, "invalid", message.into())
}

impl State {
    fn token(&self) -> String {
        format!("ya29.secret-{}", self.token)
    }

    fn metadata(&mut self, request: &Received) -> Answered {
        if request.header("metadata-flavor") != "Google"
            || request.headers.contains_key("x-forwarded-for")
        {
            self.refusals.push(format!("metadata {}", request.path));
            return (403, "Missing Metadata-Flavor:Google header.".to_owned());
        }
        let text = match request
            .path
            .strip_prefix("/computeMetadata/v1/")
            .unwrap_or_default()
        {
            "project/project-id" => PROJECT.to_owned(),
            "instance/zone" => "projects/4711/zones/europe-west4-a".to_owned(),
            "instance/name" => "node-a".to_owned(),
            "instance/network-interfaces/" if request.query == "recursive=true" => {
                let network = format!("projects/4711/networks/{NETWORK}");
                json!([{ "ip": ADDRESS, "mtu": 1460, "network": network }]).to_string()
            }
            "instance/service-accounts/default/token" => {
                let token = self.token();
                json!({ "access_token": token, "expires_in": 3600, "token_type": "Bearer" })
                    .to_string()
            }
            _ => return (404, "not found".to_owned()),
        };
        (200, text)
    }

    fn answer(&mut self, request: &Received) -> Answered {
        match self.serve(request) {
            Ok(value) => (200, value.to_string()),
            Err(Refusal(status, reason, message)) => {
                self.refusals.push(format!(
                    "{} {}: {reason}: {message}",
                    request.method, request.path
                ));
                let error = json!({ "message": message, "domain": "global", "reason": reason });
                (
                    status,
                    json!({ "error": { "code": status, "message": message, "errors": [error] } })
                        .to_string(),
                )
            }
        }
    }

    fn serve(&mut self, request: &Received) -> Result<Value, Refusal> {
        if request.header("authorization") != format!("Bearer {}", self.token()) {
            return Err(Refusal(
                401,
                "authError",
                "Request had invalid authentication credentials.".to_owned(),
            ));
        }
        let unknown = || Refusal(404, "notFound", format!("no {}", request.path));
        let path = request
            .path
            .strip_prefix("/compute/v1/projects/pods-17/")
            .ok_or_else(unknown)?;
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method.as_str(), &parts[..]) {
            ("GET", ["global", "routes"]) => self.list(&request.query),
            ("GET", ["global", "routes", name]) => self.get(name),
            ("POST", ["global", "routes"]) => self.insert(request),
            ("DELETE", ["global", "routes", name]) => self.delete(name),
            ("GET", ["global", "operations", name]) => self.operation(name),
            ("GET", ["zones", "europe-west4-a", "instances", "node-a"]) => {
                self.may("compute.instances.get")?;
                // A value that is false is left out, as Google's are.
                Ok(if self.can_ip_forward {
                    json!({ "canIpForward": true })
                } else {
                    json!({ "name": "node-a" })
                })
            }
            _ => Err(unknown()),
        }
    }

    fn may(&self, permission: &str) -> Result<(), Refusal> {
        let message = || format!("Required '{permission}' permission for 'projects/{PROJECT}'");
        self.permissions
            .contains(permission)
            .then_some(())
            .ok_or_else(|| Refusal(403, "forbidden", message()))
    }

    fn list(&self, query: &str) -> Result<Value, Refusal> {
        self.may("compute.routes.list")?;
        let mut start = 0;
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "maxResults"
                    if value
                        .parse()
                        .is_ok_and(|count: u32| (1..=500).contains(&count)) => {}
                "pageToken" => {
                    let number = value
                        .strip_prefix("page%2F")
                        .and_then(|number| number.parse().ok());
                    start = number.ok_or_else(|| invalid("Invalid value for field 'pageToken'"))?;
                }
                _ => return Err(invalid(format!("Invalid value for field '{name}'"))),
            }
        }
        let page: Vec<Value> = self
            .routes
            .values()
            .skip(start)
            .take(PAGE)
            .map(|route| self.shown(route))
            .collect();
        let mut answer = json!({ "kind": "compute#routeList", "items": page });
        if start + PAGE < self.routes.len() {
            answer["nextPageToken"] = json!(format!("page/{}", start + PAGE));
        }
        Ok(answer)
    }

    /// A route with the warnings that Google adds.
    fn shown(&self, route: &Value) -> Value {
        let mut shown = route.clone();
        let [_, _, hop] = row(route);
        if !hop.is_empty() && !self.instances.contains(&hop) {
            shown["warnings"] = json!([{ "code": "NEXT_HOP_INSTANCE_NOT_FOUND", "message": hop }]);
        }
        shown
    }

    fn get(&self, name: &str) -> Result<Value, Refusal> {
        self.may("compute.routes.get")?;
        let route = self.routes.get(name).map(|route| self.shown(route));
        route.ok_or_else(|| {
            Refusal(
                404,
                "notFound",
                format!("The resource 'routes/{name}' was not found"),
            )
        })
    }

    fn insert(&mut self, request: &Received) -> Result<Value, Refusal> {
        self.may("compute.routes.create")?;
        if request.header("content-type") != "application/json" {
            return Err(invalid("no JSON"));
        }
        let route: Map<String, Value> =
            serde_json::from_str(&request.body).map_err(|error| invalid(error.to_string()))?;
        if let Some(field) = route.keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return Err(invalid(format!("Unknown name \"{field}\"")));
        }
        let name = self.check(&route)?;
        let is_known = |change: &Change| match change {
            Change::Insert(route) => route["name"] == name.as_str(),
            _ => false,
        };
        if self.routes.contains_key(&name) || self.running.values().any(is_known) {
            return Err(Refusal(
                409,
                "alreadyExists",
                format!("The resource 'routes/{name}' already exists"),
            ));
        }
        Ok(self.start_operation(Change::Insert(route.into())))
    }

    /// The name of a route that Google would accept.
    fn check(&self, route: &Map<String, Value>) -> Result<String, Refusal> {
        let text = |field: &str| {
            let value = route.get(field).and_then(Value::as_str);
            value.ok_or_else(|| invalid(format!("Invalid value for field 'resource.{field}'")))
        };
        let name = text("name")?;
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.len() > 63
            || !name.starts_with(|first: char| first.is_ascii_lowercase())
            || !name.bytes().all(is_plain)
        {
            return Err(invalid("Invalid value for field 'resource.name'"));
        }
        let destination: Ipv4Net = text("destRange")?
            .parse()
            .map_err(|_no_prefix| invalid("destRange"))?;
        if destination.trunc() != destination {
            return Err(invalid("Invalid IPCidrRange: it has host bits"));
        }
        if text("network")? != format!("{RESOURCES}/global/networks/{NETWORK}") {
            return Err(invalid("Invalid value for field 'resource.network'"));
        }
        if route
            .get("priority")
            .and_then(Value::as_u64)
            .is_none_or(|priority| priority > 65_535)
        {
            return Err(invalid("Invalid value for field 'resource.priority'"));
        }
        let instance = text("nextHopInstance")?
            .strip_prefix("https://www.googleapis.com/compute/v1/")
            .unwrap_or_default();
        if !self.instances.contains(instance) || route.contains_key("nextHopIp") {
            return Err(invalid(
                "Invalid value for field 'resource.nextHopInstance'",
            ));
        }
        Ok(name.to_owned())
    }

    fn delete(&mut self, name: &str) -> Result<Value, Refusal> {
        self.may("compute.routes.delete")?;
        if !self.routes.contains_key(name) {
            return Err(Refusal(
                404,
                "notFound",
                format!("The resource 'routes/{name}' was not found"),
            ));
        }
        Ok(self.start_operation(Change::Delete(name.to_owned())))
    }

    fn start_operation(&mut self, change: Change) -> Value {
        self.operations += 1;
        let name = format!("operation-{}", self.operations);
        self.running.insert(name.clone(), change);
        json!({ "kind": "compute#operation", "name": name, "status": "RUNNING", "progress": 0 })
    }

    fn operation(&mut self, name: &str) -> Result<Value, Refusal> {
        self.may("compute.globalOperations.get")?;
        let change = self
            .running
            .get_mut(name)
            .ok_or_else(|| Refusal(404, "notFound", name.to_owned()))?;
        match std::mem::replace(change, Change::Done) {
            Change::Insert(route) => {
                let [name, ..] = row(&route);
                self.routes.insert(name, route);
            }
            Change::Delete(route) => {
                self.routes.remove(&route);
            }
            Change::Done => {}
        }
        Ok(json!({ "kind": "compute#operation", "name": name, "status": "DONE", "progress": 100 }))
    }
}
