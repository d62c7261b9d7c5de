//! The part of Tencent's VPC that routes need: a server that refuses what the API refuses, and the
//! metadata service of an instance.
//!
//! A signature is computed again from the request as it came, by the headers that it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use flannel_tests::{AgentOptions, Node};
use hmac::{Hmac, KeyInit as _, Mac as _};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::double::{Answered, Double, Received};

const PORT: u16 = 5200;
const METADATA_PORT: u16 = 5201;
pub(crate) const REGION: &str = "eu-frankfurt";
const VPC: &str = "vpc-1";
const CIDR: &str = "192.168.0.0/16";
const SUBNET: &str = "subnet-1";
/// The table of the node's subnet, and the main one of the VPC.
pub(crate) const TABLE: &str = "rtb-nodes";
pub(crate) const MAIN: &str = "rtb-main";
pub(crate) const OWN: &str = "192.168.1.11";
pub(crate) const OTHER: &str = "192.168.1.12";
/// The keys of a user.
pub(crate) const USER: [&str; 2] = ["AKIDuser", "secret-of-the-user"];
pub(crate) const ACTIONS: [&str; 3] = ["DescribeRouteTables", "CreateRoutes", "DeleteRoutes"];
const GATEWAYS: [&str; 7] = [
    "CVM",
    "VPN",
    "DIRECTCONNECT",
    "PEERCONNECTION",
    "NAT",
    "NORMAL_CVM",
    "CCN",
];
const JSON: &str = "application/json; charset=utf-8";

/// The region, with one VPC.
pub(crate) struct Vpc {
    state: Arc<Mutex<State>>,
    _servers: [Double; 2],
}

#[derive(Clone)]
struct Route {
    destination: String,
    gateway_type: String,
    gateway: String,
    is_enabled: bool,
    kind: &'static str,
}

#[derive(Default)]
struct State {
    /// The routes of each table by their numbers.
    tables: BTreeMap<String, BTreeMap<u64, Route>>,
    last_id: u64,
    permissions: BTreeSet<String>,
    /// The number of the role's keys that are accepted.
    role: u32,
    refusals: Vec<String>,
}

impl Vpc {
    /// Starts it. The role and the user may do everything.
    pub(crate) fn start(node: &Node) -> Result<Self> {
        let mut state = State {
            permissions: ACTIONS.map(str::to_owned).into(),
            role: 1,
            ..State::default()
        };
        for table in [TABLE, MAIN] {
            state.add(
                table,
                Route {
                    kind: "NETD",
                    ..route(CIDR, "Local", "LOCAL", true)
                },
            );
        }
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

    /// The variables by which an agent finds it.
    pub(crate) fn environment() -> [(String, String); 2] {
        let local = |port| format!("http://127.0.0.1:{port}");
        [
            ("FLANNEL_TENCENT_API_URL".to_owned(), local(PORT)),
            (
                "FLANNEL_TENCENT_METADATA_URL".to_owned(),
                local(METADATA_PORT),
            ),
        ]
    }

    /// The options of an agent on this instance, which looks at the table each second.
    pub(crate) fn agent(mut options: AgentOptions) -> AgentOptions {
        options.environment.extend(Self::environment());
        options.flag("--cloud-route-interval=1")
    }

    /// The routes of a table that were made by request: destination, gateway and state.
    pub(crate) fn routes(&self, table: &str) -> Vec<[String; 3]> {
        let state = lock(&self.state);
        let by_request = state.tables[table]
            .values()
            .filter(|route| route.kind == "USER");
        let enabled = |route: &Route| {
            if route.is_enabled {
                "enabled"
            } else {
                "disabled"
            }
        };
        let mut rows: Vec<_> = by_request
            .map(|route| {
                [
                    route.destination.clone(),
                    route.gateway.clone(),
                    enabled(route).to_owned(),
                ]
            })
            .collect();
        rows.sort();
        rows
    }

    /// Makes a route in place of those to the same destination.
    pub(crate) fn put(&self, table: &str, destination: &str, gateway: &str, is_enabled: bool) {
        self.remove(table, destination);
        lock(&self.state).add(table, route(destination, gateway, "NORMAL_CVM", is_enabled));
    }

    pub(crate) fn remove(&self, table: &str, destination: &str) {
        let mut state = lock(&self.state);
        state
            .tables
            .get_mut(table)
            .expect("a table")
            .retain(|_, route| route.destination != destination);
    }

    /// Allows these requests and no others.
    pub(crate) fn permit(&self, actions: &[&str]) {
        lock(&self.state).permissions = actions.iter().map(|name| (*name).to_owned()).collect();
    }

    /// Ends the keys of the role before their time.
    pub(crate) fn rotate_role(&self) {
        lock(&self.state).role += 1;
    }

    /// The refused requests since the last call.
    pub(crate) fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).refusals)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn route(destination: &str, gateway: &str, gateway_type: &str, is_enabled: bool) -> Route {
    let [destination, gateway, gateway_type] =
        [destination, gateway, gateway_type].map(str::to_owned);
    Route {
        destination,
        gateway_type,
        gateway,
        is_enabled,
        kind: "USER",
    }
}

/// The code and the message of a refusal.
struct Refusal(&'static str, String);

fn refuse<T>(code: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(code, message.into()))
}

/// The time of a request, which has to be of these minutes.
fn time_of(request: &Received) -> Result<Timestamp, Refusal> {
    let Some(at) = request
        .header("x-tc-timestamp")
        .parse()
        .ok()
        .and_then(|at| Timestamp::from_second(at).ok())
    else {
        return refuse("MissingParameter", "X-TC-Timestamp");
    };
    if at.duration_since(Timestamp::now()).as_secs().abs() > 300 {
        return refuse("AuthFailure.SignatureExpire", "more than five minutes");
    }
    Ok(at)
}

impl State {
    fn add(&mut self, table: &str, route: Route) -> u64 {
        self.last_id += 1;
        self.tables
            .entry(table.to_owned())
            .or_default()
            .insert(self.last_id, route);
        self.last_id
    }

    /// Identifier, secret and token of the role.
    fn role(&self) -> [String; 3] {
        ["AKIDrole", "secret-of-the-role", "token-of-the-role"]
            .map(|name| format!("{name}-{}", self.role))
    }

    fn metadata(&mut self, request: &Received) -> Answered {
        let mac = "network/interfaces/macs/52:54:00:BF:B3:51";
        let path = request
            .path
            .strip_prefix("/latest/meta-data/")
            .unwrap_or_default();
        if request.method != "GET" || !request.body.is_empty() {
            self.refusals
                .push(format!("metadata {} {}", request.method, request.path));
            return (405, String::new());
        }
        let text = match path.strip_prefix(mac).unwrap_or(path) {
            "placement/region" => REGION.to_owned(),
            "network/interfaces/macs/" => "52:54:00:BF:B3:51/".to_owned(),
            "/local-ipv4s/" => format!("{OWN}/"),
            "/vpc-id" => VPC.to_owned(),
            "/subnet-id" => SUBNET.to_owned(),
            "cam/security-credentials/" => "node".to_owned(),
            "cam/security-credentials/node" => {
                let [id, secret, token] = self.role();
                let end = Timestamp::now().as_second() + 3600;
                let keys = json!({
                    "TmpSecretId": id,
                    "TmpSecretKey": secret,
                    "Token": token,
                    "ExpiredTime": end,
                    "Code": "Success",
                });
                keys.to_string()
            }
            _ => return (404, "not found".to_owned()),
        };
        (200, text)
    }

    fn answer(&mut self, request: &Received) -> Answered {
        let response = match self.serve(request) {
            Ok(mut response) => {
                response["RequestId"] = json!("1");
                response
            }
            Err(Refusal(code, message)) => {
                self.refusals.push(format!(
                    "{}: {code}: {message}",
                    request.header("x-tc-action")
                ));
                json!({ "Error": { "Code": code, "Message": message }, "RequestId": "1" })
            }
        };
        (200, json!({ "Response": response }).to_string())
    }

    fn serve(&mut self, request: &Received) -> Result<Value, Refusal> {
        if (
            request.method.as_str(),
            request.path.as_str(),
            request.query.as_str(),
        ) != ("POST", "/", "")
        {
            return refuse("InvalidRequest", "POST / alone");
        }
        self.verify(request)?;
        if request.header("x-tc-version") != "2017-03-12" {
            return refuse("NoSuchVersion", request.header("x-tc-version"));
        }
        if request.header("x-tc-region") != REGION {
            return refuse("UnsupportedRegion", request.header("x-tc-region"));
        }
        let action = request.header("x-tc-action");
        if !ACTIONS.contains(&action) {
            return refuse("InvalidAction", action);
        }
        if !self.permissions.contains(action) {
            return refuse(
                "UnauthorizedOperation",
                format!("no permission for vpc:{action}"),
            );
        }
        let Ok(parameters) = serde_json::from_str::<Map<String, Value>>(&request.body) else {
            return refuse("InvalidParameter", "no JSON object");
        };
        match action {
            "DescribeRouteTables" => self.describe(&parameters),
            "CreateRoutes" => self.create(&parameters),
            _ => self.delete(&parameters),
        }
    }

    /// Checks the time, the keys and the signature of a request.
    fn verify(&self, request: &Received) -> Result<(), Refusal> {
        let at = time_of(request)?;
        let part = |name: &str| {
            let rest = request
                .header("authorization")
                .split_once(&format!("{name}="))?
                .1;
            Some(rest.split(',').next()?.to_owned())
        };
        let parts = (
            part("TC3-HMAC-SHA256 Credential"),
            part("SignedHeaders"),
            part("Signature"),
        );
        let (Some(credential), Some(signed), Some(signature)) = parts else {
            return refuse("AuthFailure.InvalidAuthorization", "no TC3-HMAC-SHA256");
        };
        let (id, scope) = credential.split_once('/').unwrap_or_default();
        if scope != format!("{}/vpc/tc3_request", at.strftime("%Y-%m-%d")) {
            return refuse("AuthFailure.InvalidAuthorization", scope);
        }
        let names: Vec<&str> = signed.split(';').collect();
        if !names.contains(&"content-type")
            || !names.contains(&"host")
            || request.header("content-type") != JSON
        {
            return refuse("AuthFailure.InvalidAuthorization", signed);
        }
        let [role, role_secret, token] = self.role();
        let secret = match id {
            id if id == USER[0] => USER[1].to_owned(),
            id if id == role && request.header("x-tc-token") == token => role_secret,
            id if id == role => return refuse("AuthFailure.TokenFailure", "another token"),
            _ => return refuse("AuthFailure.SecretIdNotFound", "no such key"),
        };
        let headers: Vec<String> = names
            .iter()
            .map(|name| format!("{name}:{}", request.header(name)))
            .collect();
        let body = hex::encode(Sha256::digest(&request.body));
        let canonical = hex::encode(Sha256::digest(format!(
            "POST\n/\n\n{}\n\n{signed}\n{body}",
            headers.join("\n")
        )));
        let text = format!("TC3-HMAC-SHA256\n{}\n{scope}\n{canonical}", at.as_second());
        let mut key = format!("TC3{secret}").into_bytes();
        for part in scope.split('/') {
            key = code(&key, part);
        }
        if hex::encode(code(&key, &text)) != signature {
            return refuse("AuthFailure.SignatureFailure", "another signature");
        }
        Ok(())
    }

    fn describe(&self, parameters: &Map<String, Value>) -> Result<Value, Refusal> {
        known(parameters, &["Filters", "RouteTableIds", "Offset", "Limit"])?;
        let number = |name: &str, default: usize| match parameters.get(name) {
            None => Ok(default),
            Some(Value::String(text)) => text
                .parse()
                .or_else(|_| refuse("InvalidParameterValue", name)),
            Some(_) => refuse("InvalidParameter", format!("{name} is no text")),
        };
        let (offset, limit) = (number("Offset", 0)?, number("Limit", 20)?);
        if limit > 100 {
            return refuse("InvalidParameterValue.Range", "Limit");
        }
        let ids: Vec<&str> = match (parameters.get("Filters"), parameters.get("RouteTableIds")) {
            (Some(filters), None) if *filters == json!([{ "Name": "vpc-id", "Values": [VPC] }]) => {
                vec![MAIN, TABLE]
            }
            (None, Some(Value::Array(ids))) => ids.iter().filter_map(Value::as_str).collect(),
            _ => return refuse("InvalidParameter.Coexist", "Filters or RouteTableIds"),
        };
        if let Some(unknown) = ids.iter().find(|id| !self.tables.contains_key(**id)) {
            return refuse("ResourceNotFound", *unknown);
        }
        let page: Vec<Value> = ids
            .iter()
            .skip(offset)
            .take(limit)
            .map(|id| self.shown(id))
            .collect();
        Ok(json!({ "TotalCount": ids.len(), "RouteTableSet": page }))
    }

    fn shown(&self, table: &str) -> Value {
        let route = |(id, route): (&u64, &Route)| {
            json!({
                "DestinationCidrBlock": route.destination,
                "GatewayType": route.gateway_type,
                "GatewayId": route.gateway,
                "RouteId": id,
                "RouteItemId": format!("rti-{id}"),
                "RouteType": route.kind,
                "Enabled": route.is_enabled,
                "RouteTableId": table,
                "DestinationIpv6CidrBlock": "",
                "RouteDescription": "",
            })
        };
        let routes: Vec<Value> = self.tables[table].iter().map(route).collect();
        let associations = if table == TABLE {
            json!([{ "SubnetId": SUBNET, "RouteTableId": TABLE }])
        } else {
            json!([])
        };
        json!({
            "VpcId": VPC, "RouteTableId": table, "RouteTableName": table, "Main": table == MAIN,
            "AssociationSet": associations, "RouteSet": routes,
        })
    }

    /// The table and the routes of a request to change it.
    fn change(
        &self,
        parameters: &Map<String, Value>,
    ) -> Result<(String, Vec<Map<String, Value>>), Refusal> {
        known(parameters, &["RouteTableId", "Routes"])?;
        let table = parameters
            .get("RouteTableId")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !self.tables.contains_key(table) {
            return refuse("ResourceNotFound", table);
        }
        let routes = parameters
            .get("Routes")
            .and_then(Value::as_array)
            .filter(|routes| !routes.is_empty());
        let Some(routes) = routes else {
            return refuse("MissingParameter", "Routes");
        };
        let objects = routes
            .iter()
            .map(|route| route.as_object().cloned())
            .collect::<Option<Vec<_>>>();
        objects.map_or_else(
            || refuse("InvalidParameter", "Routes"),
            |objects| Ok((table.to_owned(), objects)),
        )
    }

    fn create(&mut self, parameters: &Map<String, Value>) -> Result<Value, Refusal> {
        let (table, routes) = self.change(parameters)?;
        for fields in routes {
            known(
                &fields,
                &[
                    "DestinationCidrBlock",
                    "GatewayType",
                    "GatewayId",
                    "RouteDescription",
                    "Enabled",
                ],
            )?;
            let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let (destination, kind, gateway) = (
                text("DestinationCidrBlock"),
                text("GatewayType"),
                text("GatewayId"),
            );
            let Ok(prefix) = destination.parse::<Ipv4Net>() else {
                return refuse("InvalidParameterValue.Malformed", destination);
            };
            if prefix.trunc() != prefix {
                return refuse("InvalidParameterValue.Malformed", destination);
            }
            if CIDR
                .parse::<Ipv4Net>()
                .is_ok_and(|vpc| vpc.contains(&prefix))
            {
                return refuse("InvalidParameterValue.VpcCidrConflict", destination);
            }
            if !GATEWAYS.contains(&kind)
                || (kind == "NORMAL_CVM" && ![OWN, OTHER].contains(&gateway))
            {
                return refuse("InvalidParameterValue", format!("{kind} {gateway}"));
            }
            match self.tables[&table]
                .values()
                .find(|route| route.destination == destination)
            {
                Some(found) if found.gateway == gateway => {
                    return refuse("InvalidParameterValue.Duplicate", destination);
                }
                Some(_) => return refuse("UnsupportedOperation.Ecmp", destination),
                None => {}
            }
            let is_enabled = fields
                .get("Enabled")
                .and_then(Value::as_bool)
                .unwrap_or(true);
            self.add(&table, route(destination, gateway, kind, is_enabled));
        }
        Ok(json!({ "TotalCount": 1, "RouteTableSet": [self.shown(&table)] }))
    }

    fn delete(&mut self, parameters: &Map<String, Value>) -> Result<Value, Refusal> {
        let (table, routes) = self.change(parameters)?;
        for fields in routes {
            known(&fields, &["RouteId"])?;
            let id = fields
                .get("RouteId")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            let of_table = self.tables.get_mut(&table).expect("a table");
            match of_table.get(&id) {
                None => return refuse("ResourceNotFound", id.to_string()),
                Some(route) if route.kind != "USER" => {
                    return refuse("UnsupportedOperation.SystemRoute", id.to_string());
                }
                Some(_) => of_table.remove(&id),
            };
        }
        Ok(json!({ "RouteSet": [] }))
    }
}

fn known(parameters: &Map<String, Value>, names: &[&str]) -> Result<(), Refusal> {
    match parameters.keys().find(|key| !names.contains(&key.as_str())) {
        Some(unknown) => refuse("UnknownParameter", unknown),
        None => Ok(()),
    }
}

fn code(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}
