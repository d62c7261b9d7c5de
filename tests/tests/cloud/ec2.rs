//! The part of Amazon's EC2 that the tests need: moto, an independent implementation of its API,
//! which checks signatures and permissions, and the metadata service of an instance.
//!
//! Both are on the loopback of the node. `tests/python/ec2.py` is the program; `cargo xtask setup`
//! brings it with moto.

use std::{process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{AgentOptions, ChildGuard, Node, eventually};
use serde_json::{Value, json};

/// The program, in the search path.
const PROGRAM: &str = "flannel-test-ec2";
/// The reason why the tests cannot run.
pub(crate) const MISSING: &str = "no moto (by cargo xtask setup, from PyPI: python3 with venv)";
const PORT: u16 = 5000;
const METADATA_PORT: u16 = 5001;
const TLS_PORT: u16 = 5002;
/// The certificate of the API with TLS.
const CERTIFICATE: &str = "/run/ec2.pem";
const ADDRESS: &str = "192.168.1.11";
/// The policy of the instance's role.
const ROLE: [&str; 2] = ["node", "routes"];

/// The region with one VPC, in which a node is an instance.
pub(crate) struct Ec2 {
    node: Node,
    facts: Value,
    _server: ChildGuard,
}

impl Ec2 {
    /// Starts it; `None` if it is not installed.
    pub(crate) fn start(node: &Node) -> Result<Option<Self>> {
        // To start it takes five seconds of a CPU, so it is not started only to see that it can be.
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {PROGRAM}")])
            .output();
        if !found.context("sh")?.status.success() {
            return Ok(None);
        }
        let [port, metadata, tls] = [PORT, METADATA_PORT, TLS_PORT].map(|port| port.to_string());
        let server = node.spawn(
            "ec2",
            [
                PROGRAM,
                "serve",
                &port,
                &metadata,
                &tls,
                CERTIFICATE,
                ADDRESS,
            ],
        )?;
        let facts = eventually("EC2", Duration::from_mins(1), || {
            let log = server.log();
            let line = log
                .lines()
                .find(|line| line.starts_with('{'))
                .with_context(|| log.clone())?;
            Ok(serde_json::from_str(line)?)
        })?;
        Ok(Some(Self {
            node: node.clone(),
            facts,
            _server: server,
        }))
    }

    /// A fact of the VPC: `vpc`, `subnet`, `table`, and the interfaces `own` and `other`.
    pub(crate) fn fact(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap_or_default()
    }

    /// The administrator's keys.
    pub(crate) fn administrator(&self) -> [&str; 2] {
        [0, 1].map(|number| {
            self.facts["administrator"][number]
                .as_str()
                .unwrap_or_default()
        })
    }

    /// The variables by which programs find it.
    pub(crate) fn environment() -> [(String, String); 2] {
        let local = |port| format!("http://127.0.0.1:{port}");
        [
            ("AWS_ENDPOINT_URL".to_owned(), local(PORT)),
            (
                "AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(),
                local(METADATA_PORT),
            ),
        ]
    }

    /// The variables by which programs find the API with TLS, in addition to the others.
    pub(crate) fn tls() -> [(String, String); 2] {
        [
            (
                "AWS_ENDPOINT_URL_EC2".to_owned(),
                format!("https://127.0.0.1:{TLS_PORT}"),
            ),
            ("SSL_CERT_FILE".to_owned(), CERTIFICATE.to_owned()),
        ]
    }

    /// The options of an agent on this instance, which looks at the tables each second.
    pub(crate) fn agent(mut options: AgentOptions) -> AgentOptions {
        options.environment.extend(Self::environment());
        options.flag("--cloud-route-interval=1")
    }

    /// A request of the administrator.
    pub(crate) fn call(&self, service: &str, method: &str, parameters: &Value) -> Result<Value> {
        let body =
            json!({ "service": service, "method": method, "parameters": parameters }).to_string();
        let request = format!(
            "POST /administrator HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let limit = Duration::from_secs(10);
        let (code, body) = self.node.http(METADATA_PORT, &request, limit)?;
        ensure!(code == 200, "{method}: {code} {body}");
        serde_json::from_str(&body).with_context(|| format!("{method}: {body}"))
    }

    /// The routes of a table but for the local one: destination, interface and state of each.
    pub(crate) fn routes(&self, table: &str) -> Result<Vec<[String; 3]>> {
        let answer = self.call(
            "ec2",
            "describe_route_tables",
            &json!({ "RouteTableIds": [table] }),
        )?;
        let routes = answer["RouteTables"][0]["Routes"]
            .as_array()
            .context("routes")?;
        let text = |route: &Value, name: &str| route[name].as_str().unwrap_or_default().to_owned();
        let row = |route: &Value| {
            ["DestinationCidrBlock", "NetworkInterfaceId", "State"].map(|name| text(route, name))
        };
        let mut rows: Vec<_> = routes
            .iter()
            .filter(|route| route["GatewayId"] != "local")
            .map(row)
            .collect();
        rows.sort();
        Ok(rows)
    }

    /// Makes a route to an interface.
    pub(crate) fn route(
        &self,
        method: &str,
        table: &str,
        destination: &str,
        interface: &str,
    ) -> Result<()> {
        let route = json!({
            "RouteTableId": table,
            "DestinationCidrBlock": destination,
            "NetworkInterfaceId": interface,
        });
        self.call("ec2", method, &route).map(drop)
    }

    /// Makes a route to an interface that is gone.
    pub(crate) fn blackhole(&self, table: &str, destinations: &[&str]) -> Result<()> {
        let made = self.call(
            "ec2",
            "create_network_interface",
            &json!({ "SubnetId": self.fact("subnet") }),
        )?;
        let interface = made["NetworkInterface"]["NetworkInterfaceId"]
            .as_str()
            .context("an interface")?;
        for destination in destinations {
            self.route("create_route", table, destination, interface)?;
        }
        self.call(
            "ec2",
            "delete_network_interface",
            &json!({ "NetworkInterfaceId": interface }),
        )
        .map(drop)
    }

    /// Gives the role of the instance these permissions and no others.
    pub(crate) fn permit(&self, actions: &[&str]) -> Result<()> {
        let actions: Vec<String> = actions
            .iter()
            .map(|action| format!("ec2:{action}"))
            .collect();
        let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": "*" });
        let document = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
        let [role, policy] = ROLE;
        let policy = json!({ "RoleName": role, "PolicyName": policy, "PolicyDocument": document });
        self.call("iam", "put_role_policy", &policy).map(drop)
    }

    /// Returns true if the VPC drops packets of pods of this instance.
    pub(crate) fn checks_source(&self) -> Result<bool> {
        let of = json!({ "NetworkInterfaceId": self.fact("own"), "Attribute": "sourceDestCheck" });
        let answer = self.call("ec2", "describe_network_interface_attribute", &of)?;
        answer["SourceDestCheck"]["Value"]
            .as_bool()
            .context("a value")
    }
}
