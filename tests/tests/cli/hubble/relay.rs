//! The observers of two nodes for `hubble-relay`: each names all of them, and the real relay shows
//! the flows of both where `FLANNEL_HUBBLE_RELAY` and `FLANNEL_HUBBLE` name the programs.

use std::{env, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_hubble::peer::{ChangeNotification, ChangeNotificationType, NotifyRequest};
use flannel_tests::{Agent, ChildGuard, Node, Pod, TwoNodes, cluster::VXLAN, eventually, not_run};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::{SOCKET, observer, socket};

const TLS: &str = "/run/flannel/tls";
/// The names that relay expects in the certificates of nodes.
const SERVERS: &str = "*.default.hubble-grpc.cilium.io";
const RELAY: &str = "127.0.0.1:4245";

/// Two nodes whose observers listen, with a pod on each.
struct Observed {
    agents: [Agent; 2],
    pods: [Pod; 2],
    _nodes: TwoNodes,
}

impl Observed {
    fn new(name: &str) -> Result<Self> {
        let nodes = TwoNodes::new(name, VXLAN)?;
        let certificates = certificates()?;
        let agent = |node: &Node, name: &str| {
            write(&node.outside_path(TLS), &certificates)?;
            let mut options = nodes.options()?.with(&[
                "--datapath=encap",
                &format!("--hubble-socket={SOCKET}"),
                "--hubble-listen=0.0.0.0:4244",
                &format!("--hubble-certfile={TLS}/server.crt"),
                &format!("--hubble-keyfile={TLS}/server.key"),
                &format!("--hubble-client-cafile={TLS}/ca.crt"),
            ]);
            options
                .environment
                .push(("NODE_NAME".to_owned(), name.to_owned()));
            node.ready_agent(options)
        };
        let agents = [
            agent(&nodes.a, "first.lab")?,
            agent(&nodes.b, "second.lab")?,
        ];
        agents.iter().try_for_each(|agent| agent.wait_peers(1))?;
        let pods = [nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?];
        pods[0].wait_ping(pods[1].ip())?;
        Ok(Self {
            agents,
            pods,
            _nodes: nodes,
        })
    }

    /// Packets between the pods, until the test ends.
    fn pings(&self) -> Result<ChildGuard> {
        self.pods[0].spawn("pings", ["ping", "-i0.2", &self.pods[1].ip().to_string()])
    }
}

/// The files of an authority, of an observer and of a client, with their contents.
fn certificates() -> Result<Vec<(String, String)>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let mut files = vec![("ca.crt".to_owned(), issuer.pem())];
    for (name, subject) in [("server", SERVERS), ("client", "relay.example.org")] {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec![subject.to_owned()])?.signed_by(&key, &issuer)?;
        files.push((format!("{name}.crt"), certificate.pem()));
        files.push((format!("{name}.key"), key.serialize_pem()));
    }
    Ok(files)
}

fn write(directory: &Path, files: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(directory)?;
    files
        .iter()
        .try_for_each(|(name, content)| fs::write(directory.join(name), content))?;
    Ok(())
}

/// The first notifications of an observer.
fn peers(agent: &Agent, count: usize) -> Result<Vec<ChangeNotification>> {
    let mut found = Vec::new();
    observer::ask(
        &socket(agent),
        "peer.Peer/Notify",
        &NotifyRequest {},
        |notification| {
            found.push(notification);
            found.len() >= count
        },
    )?;
    Ok(found)
}

#[test]
fn an_observer_names_the_observers_of_all_nodes() -> Result<()> {
    let observed = Observed::new("hubblepeers")?;
    for (agent, own, others) in [
        (&observed.agents[0], "first.lab", ["11", "12"]),
        (&observed.agents[1], "second.lab", ["12", "11"]),
    ] {
        let found = peers(agent, 2)?;
        let (mine, theirs): (Vec<_>, Vec<_>) = found.iter().partition(|peer| peer.name == own);
        let ([mine], [other]) = (mine.as_slice(), theirs.as_slice()) else {
            anyhow::bail!("{found:#?}")
        };
        ensure!(
            found
                .iter()
                .all(|peer| peer.r#type() == ChangeNotificationType::PeerAdded),
            "{found:#?}"
        );
        let addresses = others.map(|last| format!("192.168.1.{last}:4244"));
        ensure!(
            [&mine.address, &other.address] == addresses.each_ref(),
            "{found:#?}"
        );
        let tls = mine.tls.as_ref().context("TLS")?;
        ensure!(
            tls.server_name == SERVERS.replace('*', &own.replace('.', "-")),
            "{found:#?}"
        );
    }
    Ok(())
}

/// The real relay on a node, which asks this observer for the others. Its flags are given as
/// variables, by their names in Cilium 1.13 and since 1.14.
fn relay(agent: &Agent, binary: &str, peer_service: &str) -> Result<ChildGuard> {
    let file = |flag: &str, name: &str| format!("RELAY_{flag}={TLS}/{name}");
    let mut argv = vec!["env".to_owned(), "RELAY_GOPS=false".to_owned()];
    for flag in ["TLS-CLIENT", "TLS-HUBBLE-CLIENT"] {
        argv.push(file(&format!("{flag}-CERT-FILE"), "client.crt"));
        argv.push(file(&format!("{flag}-KEY-FILE"), "client.key"));
    }
    argv.push(file("TLS-HUBBLE-SERVER-CA-FILES", "ca.crt"));
    let flags = [
        "serve",
        "--disable-server-tls",
        &format!("--listen-address={RELAY}"),
    ]
    .map(str::to_owned);
    argv.extend(
        [binary.to_owned()]
            .into_iter()
            .chain(flags)
            .chain([format!("--peer-service={peer_service}")]),
    );
    agent.node().spawn("relay", argv)
}

#[test]
fn the_real_relay_shows_the_flows_of_both_nodes() -> Result<()> {
    let (Ok(binary), Ok(client)) = (env::var("FLANNEL_HUBBLE_RELAY"), env::var("FLANNEL_HUBBLE"))
    else {
        not_run(
            "hubble-relay",
            "FLANNEL_HUBBLE_RELAY and FLANNEL_HUBBLE do not name the programs",
        );
        return Ok(());
    };
    let observed = Observed::new("hubblerelay")?;
    let _pings = observed.pings()?;
    for peer_service in [&format!("unix://{SOCKET}"), "192.168.1.12:4244"] {
        let relay = relay(&observed.agents[0], &binary, peer_service)?;
        shows_both_nodes(&observed.agents[0], &client, &relay)
            .with_context(|| peer_service.to_owned())?;
    }
    Ok(())
}

fn shows_both_nodes(agent: &Agent, client: &str, relay: &ChildGuard) -> Result<()> {
    let hubble = |args: &[&str]| {
        let server = format!("--server={RELAY}");
        let argv = [
            &["env", "HOME=/run", client],
            args,
            &[&server, "--timeout=20s"],
        ]
        .concat();
        agent
            .node()
            .run(argv)
            .map(|output| output.stdout)
            .with_context(|| relay.log())
    };
    eventually("flows of both nodes", Duration::from_mins(1), || {
        let nodes = hubble(&["list", "nodes"])?;
        ensure!(
            nodes.matches("Connected").count() == 2,
            "{nodes}{}",
            relay.log()
        );
        let flows = hubble(&["observe", "--last=40", "--print-node-name"])?;
        ensure!(
            ["first.lab", "second.lab"]
                .iter()
                .all(|name| flows.contains(name)),
            "{flows}{}",
            relay.log()
        );
        let status = hubble(&["status"])?;
        ensure!(status.contains("Connected Nodes: 2/2"), "{status}");
        println!("{nodes}{flows}{status}");
        Ok(())
    })
}
