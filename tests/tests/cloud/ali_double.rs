//! The part of Alibaba's VPC that routes need: a server that refuses what the API refuses, and the
//! metadata service of an instance in hardened mode, whose items need a token.
//!
//! A signature is computed again from the form as it came. Changes are pending when they are first
//! asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Result;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use flannel_tests::{AgentOptions, Node};
use hmac::{Hmac, KeyInit as _, Mac as _};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha1::Sha1;

use super::double::{Answered, Double, Received};

const PORT: u16 = 5300;
const METADATA_PORT: u16 = 5301;
pub(crate) const REGION: &str = "eu-central-1";
const VSWITCH: &str = "vsw-1";
pub(crate) const TABLE: &str = "vtb-1";
const CIDR: &str = "192.168.0.0/16";
const ADDRESS: &str = "192.168.1.11";
pub(crate) const OWN: &str = "i-own";
pub(crate) const OTHER: &str = "i-other";
/// The keys of a user.
pub(crate) const USER: [&str; 2] = ["LTAI-user", "secret-of-the-user"];
pub(crate) const ACTIONS: [&str; 4] = [
    "DescribeVSwitchAttributes",
    "DescribeRouteEntryList",
    "CreateRouteEntry",
    "DeleteRouteEntry",
];
/// Routes of a page. Alibaba's have more.
const PAGE: usize = 3;
/// The parameters of every request.
const COMMON: [&str; 11] = [
    "AccessKeyId",
    "Action",
    "Format",
    "RegionId",
    "SecurityToken",
    "Signature",
    "SignatureMethod",
    "SignatureNonce",
    "SignatureVersion",
    "Timestamp",
    "Version",
];
const METADATA_TOKEN: &str = "token-of-the-metadata";

/// The region, with one VPC.
pub(crate) struct AliVpc {
    state: Arc<Mutex<State>>,
    _servers: [Double; 2],
}

#[derive(Clone)]
struct Entry {
    kind: &'static str,
    hop_type: &'static str,
    hop: String,
    status: &'static str,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    permissions: BTreeSet<String>,
    nonces: BTreeSet<String>,
    /// The number of the role's keys that are accepted.
    role: u32,
    refusals: Vec<String>,
}

impl AliVpc {
    /// Starts it. The role and the user may do everything.
    pub(crate) fn start(node: &Node) -> Result<Self> {
        let local = Entry {
            kind: "System",
            hop_type: "local",
            hop: String::new(),
            status: "Available",
        };
        let state = State {
            entries: [(CIDR.to_owned(), local)].into(),
            permissions: ACTIONS.map(str::to_owned).into(),
            role: 1,
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

    /// The variables by which an agent finds it.
    pub(crate) fn environment() -> [(String, String); 2] {
        let local = |port| format!("http://127.0.0.1:{port}");
        [
            ("FLANNEL_ALI_API_URL".to_owned(), local(PORT)),
            ("FLANNEL_ALI_METADATA_URL".to_owned(), local(METADATA_PORT)),
        ]
    }

    /// The options of an agent on this instance, which looks at the table each second.
    pub(crate) fn agent(mut options: AgentOptions) -> AgentOptions {
        options.environment.extend(Self::environment());
        options.flag("--cloud-route-interval=1")
    }

    /// The routes that were made by request: destination, next hop and status.
    pub(crate) fn routes(&self) -> Vec<[String; 3]> {
        let state = lock(&self.state);
        let by_request = state
            .entries
            .iter()
            .filter(|(_, entry)| entry.kind == "Custom");
        by_request
            .map(|(destination, entry)| {
                [
                    destination.clone(),
                    entry.hop.clone(),
                    entry.status.to_owned(),
                ]
            })
            .collect()
    }

    /// Makes a route, or changes it.
    pub(crate) fn put(&self, destination: &str, instance: &str) {
        let entry = Entry {
            kind: "Custom",
            hop_type: "Instance",
            hop: instance.to_owned(),
            status: "Available",
        };
        lock(&self.state)
            .entries
            .insert(destination.to_owned(), entry);
    }

    pub(crate) fn remove(&self, destination: &str) {
        lock(&self.state).entries.remove(destination);
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

/// The status, the code and the message of a refusal.
struct Refusal(u16, &'static str, String);

fn refuse<T>(status: u16, code: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(status, code, message.into()))
}

/// The parameters of a form.
struct Form(BTreeMap<String, String>);

impl Form {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Refuses parameters that the request does not have.
    fn known(&self, names: &[&str]) -> Result<(), Refusal> {
        let is_known =
            |key: &&String| COMMON.contains(&key.as_str()) || names.contains(&key.as_str());
        match self.0.keys().find(|key| !is_known(key)) {
            Some(unknown) => refuse(400, "InvalidParameter", unknown),
            None => Ok(()),
        }
    }
}

impl State {
    /// Identifier, secret and token of the role.
    fn role(&self) -> [String; 3] {
        ["STS.role", "secret-of-the-role", "token-of-the-role"]
            .map(|name| format!("{name}-{}", self.role))
    }

    fn metadata(&mut self, request: &Received) -> Answered {
        let is_lifetime = |text: &str| {
            text.parse()
                .is_ok_and(|seconds: u32| (1..=21_600).contains(&seconds))
        };
        if request.path == "/latest/api/token" && request.method == "PUT" {
            return if is_lifetime(request.header("x-aliyun-ecs-metadata-token-ttl-seconds")) {
                (200, METADATA_TOKEN.to_owned())
            } else {
                (400, String::new())
            };
        }
        if request.method != "GET"
            || request.header("x-aliyun-ecs-metadata-token") != METADATA_TOKEN
        {
            self.refusals
                .push(format!("metadata {} {}", request.method, request.path));
            return (403, "a token is required".to_owned());
        }
        let mac = "network/interfaces/macs/00:16:3e:0f:01:02";
        let path = request
            .path
            .strip_prefix("/latest/meta-data/")
            .unwrap_or_default();
        let text = match path.strip_prefix(mac).unwrap_or(path) {
            "region-id" => REGION.to_owned(),
            "instance-id" => OWN.to_owned(),
            "network/interfaces/macs/" => "00:16:3e:0f:01:02/".to_owned(),
            "/private-ipv4s" => json!([ADDRESS]).to_string(),
            "/vswitch-id" => VSWITCH.to_owned(),
            "ram/security-credentials/" => "node".to_owned(),
            "ram/security-credentials/node" => {
                let [id, secret, token] = self.role();
                let end =
                    Timestamp::from_second(Timestamp::now().as_second() + 3600).expect("a time");
                let keys =
                    json!({ "AccessKeyId": id, "AccessKeySecret": secret, "SecurityToken": token });
                let mut keys = keys;
                keys["Expiration"] = json!(end.to_string());
                keys.to_string()
            }
            _ => return (404, "not found".to_owned()),
        };
        (200, text)
    }

    fn answer(&mut self, request: &Received) -> Answered {
        match self.serve(request) {
            Ok(answer) => (200, answer.to_string()),
            Err(Refusal(status, code, message)) => {
                self.refusals.push(format!("{code}: {message}"));
                (
                    status,
                    json!({ "Code": code, "Message": message, "RequestId": "1" }).to_string(),
                )
            }
        }
    }

    fn serve(&mut self, request: &Received) -> Result<Value, Refusal> {
        let is_form = request.header("content-type") == "application/x-www-form-urlencoded";
        if (request.method.as_str(), request.path.as_str(), is_form) != ("POST", "/", true)
            || !request.query.is_empty()
        {
            return refuse(400, "UnsupportedHTTPMethod", "a form in POST / alone");
        }
        let form = Form(request.body.split('&').filter_map(pair).collect());
        self.verify(&form)?;
        if form.get("Version") != "2016-04-28"
            || form.get("Format") != "JSON"
            || form.get("RegionId") != REGION
        {
            return refuse(400, "InvalidVersion", "version, format or region");
        }
        let action = form.get("Action").to_owned();
        if !ACTIONS.contains(&action.as_str()) {
            return refuse(404, "InvalidAction.NotFound", action);
        }
        if !self.permissions.contains(&action) {
            return refuse(
                403,
                "Forbidden.RAM",
                format!("not authorized to operate on vpc:{action}"),
            );
        }
        match action.as_str() {
            "DescribeVSwitchAttributes" => {
                form.known(&["VSwitchId"])?;
                if form.get("VSwitchId") != VSWITCH {
                    return refuse(404, "InvalidVSwitchId.NotFound", form.get("VSwitchId"));
                }
                let table = json!({ "RouteTableId": TABLE, "RouteTableType": "System" });
                Ok(json!({ "VSwitchId": VSWITCH, "RouteTable": table }))
            }
            "DescribeRouteEntryList" => self.list(&form),
            "CreateRouteEntry" => self.create(&form),
            _ => self.delete(&form),
        }
    }

    /// Checks the time, the keys, the number used once and the signature of a request.
    fn verify(&mut self, form: &Form) -> Result<(), Refusal> {
        let Ok(at) = form.get("Timestamp").parse::<Timestamp>() else {
            return refuse(400, "InvalidTimeStamp.Format", form.get("Timestamp"));
        };
        if at.duration_since(Timestamp::now()).as_secs().abs() > 900 {
            return refuse(400, "InvalidTimeStamp.Expired", form.get("Timestamp"));
        }
        if (form.get("SignatureMethod"), form.get("SignatureVersion")) != ("HMAC-SHA1", "1.0") {
            return refuse(400, "IncompleteSignature", "method or version");
        }
        let [role, role_secret, token] = self.role();
        let secret = match form.get("AccessKeyId") {
            id if id == USER[0] => USER[1].to_owned(),
            id if id == role && form.get("SecurityToken") == token => role_secret,
            id if id == role => {
                return refuse(400, "InvalidSecurityToken.Malformed", "another token");
            }
            _ => return refuse(404, "InvalidAccessKeyId.NotFound", "no such key"),
        };
        let parameters = form.0.iter().filter(|(name, _)| *name != "Signature");
        let mut pairs: Vec<String> = parameters
            .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
            .collect();
        pairs.sort();
        let text = format!("POST&%2F&{}", escape(&pairs.join("&")));
        let mut mac = Hmac::<Sha1>::new_from_slice(format!("{secret}&").as_bytes())
            .expect("a key of any length");
        mac.update(text.as_bytes());
        if STANDARD.encode(mac.finalize().into_bytes()) != form.get("Signature") {
            return refuse(400, "SignatureDoesNotMatch", "another signature");
        }
        if form.get("SignatureNonce").len() < 16
            || !self.nonces.insert(form.get("SignatureNonce").to_owned())
        {
            return refuse(400, "SignatureNonceUsed", "used before");
        }
        Ok(())
    }

    fn table(form: &Form) -> Result<(), Refusal> {
        if form.get("RouteTableId") == TABLE {
            Ok(())
        } else {
            refuse(404, "InvalidRouteTableId.NotFound", "no table")
        }
    }

    fn list(&mut self, form: &Form) -> Result<Value, Refusal> {
        form.known(&[
            "RouteTableId",
            "MaxResult",
            "NextToken",
            "DestinationCidrBlock",
        ])?;
        Self::table(form)?;
        if !form
            .get("MaxResult")
            .parse()
            .is_ok_and(|count: u32| (1..=100).contains(&count))
        {
            return refuse(400, "InvalidMaxResult", form.get("MaxResult"));
        }
        let start: usize = form
            .get("NextToken")
            .strip_prefix("from ")
            .map_or(0, |text| text.parse().unwrap_or(0));
        let wanted = form.get("DestinationCidrBlock");
        let found = self
            .entries
            .iter()
            .filter(|(destination, _)| wanted.is_empty() || *destination == wanted);
        let all: Vec<Value> = found
            .map(|(destination, entry)| shown(destination, entry))
            .collect();
        let page: Vec<&Value> = all.iter().skip(start).take(PAGE).collect();
        let next = if start + PAGE < all.len() {
            format!("from {}", start + PAGE)
        } else {
            String::new()
        };
        let answer = json!({ "RouteEntrys": { "RouteEntry": page }, "NextToken": next });
        // The next look finds what is pending done.
        self.entries.retain(|_, entry| entry.status != "Deleting");
        self.entries
            .values_mut()
            .for_each(|entry| entry.status = "Available");
        Ok(answer)
    }

    fn create(&mut self, form: &Form) -> Result<Value, Refusal> {
        form.known(&[
            "RouteTableId",
            "DestinationCidrBlock",
            "NextHopType",
            "NextHopId",
        ])?;
        Self::table(form)?;
        let destination = form.get("DestinationCidrBlock");
        match destination.parse::<Ipv4Net>() {
            Ok(prefix) if prefix.trunc() == prefix => {}
            _ => return refuse(400, "InvalidCidrBlock.Malformed", destination),
        }
        if form.get("NextHopType") != "Instance" || ![OWN, OTHER].contains(&form.get("NextHopId")) {
            return refuse(404, "InvalidNextHopId.NotFound", form.get("NextHopId"));
        }
        if self.entries.contains_key(destination) {
            return refuse(400, "RouterEntryConflict.Duplicated", destination);
        }
        let hop = form.get("NextHopId").to_owned();
        let entry = Entry {
            kind: "Custom",
            hop_type: "Instance",
            hop,
            status: "Pending",
        };
        self.entries.insert(destination.to_owned(), entry);
        Ok(json!({ "RequestId": "1", "RouteEntryId": "rte-1" }))
    }

    fn delete(&mut self, form: &Form) -> Result<Value, Refusal> {
        form.known(&["RouteTableId", "DestinationCidrBlock", "NextHopId"])?;
        Self::table(form)?;
        match self.entries.get_mut(form.get("DestinationCidrBlock")) {
            Some(entry) if entry.kind == "Custom" && entry.hop == form.get("NextHopId") => {
                entry.status = "Deleting";
                Ok(json!({ "RequestId": "1" }))
            }
            _ => refuse(
                404,
                "InvalidRouteEntry.NotFound",
                form.get("DestinationCidrBlock"),
            ),
        }
    }
}

fn shown(destination: &str, entry: &Entry) -> Value {
    let hop = json!({
        "NextHopId": entry.hop,
        "NextHopType": entry.hop_type,
        "Enabled": 1,
    });
    json!({
        "DestinationCidrBlock": destination,
        "Type": entry.kind,
        "Status": entry.status,
        "RouteTableId": TABLE,
        "IpVersion": "IPv4",
        "RouteEntryId": "rte-1",
        "NextHops": { "NextHop": [hop] },
    })
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((unescape(name)?, unescape(value)?))
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// As [RFC 3986, section 2.3](https://www.rfc-editor.org/rfc/rfc3986#section-2.3) has it.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a text grows");
        }
    }
    escaped
}
