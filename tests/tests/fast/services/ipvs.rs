//! Services by IPVS, as kube-proxy's mode `ipvs` makes them: addresses on a dummy device, a virtual
//! server for each port, pods as real servers behind a translation. These tests run on kernels of
//! Debian, by `cargo xtask test --kernel`.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Node, eventually,
    fast::{Conversation, Family, FastLab, arrivals::Arrivals},
    load::rr::Protocol,
    not_run,
    service_rules::Service,
};

/// The device on which kube-proxy puts the addresses of Services.
const DEVICE: &str = "kube-ipvs0";
const MODULES: [&str; 3] = ["dummy", "ip_vs", "ip_vs_rr"];
/// The longest time until a flow is refreshed, with a margin for a busy machine.
const INTERVAL: Duration = Duration::from_secs(5);
/// After that long without an answer TCP tries again.
const RETRANSMISSION: Duration = Duration::from_secs(15);

#[test]
fn services_of_ipvs() -> Result<()> {
    if let Some(module) = MODULES
        .iter()
        .find(|module| !Path::new("/sys/module").join(module).exists())
    {
        not_run(
            "Services of IPVS",
            &format!("the module {module} is not loaded"),
        );
        return Ok(());
    }
    let lab = FastLab::new("svc-ipvs", &[])?;
    prepare(&lab.nodes.a)?;
    for family in Family::ALL {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            modes_agree(&lab, family, protocol)
                .with_context(|| format!("{family:?}, {protocol:?}"))?;
        }
    }
    for pod in [&lab.near, &lab.far] {
        ensure!(
            pod.checksum_errors()? == 0,
            "wrong checksums at {}",
            pod.name()
        );
    }
    Ok(())
}

/// Makes the settings and the device that kube-proxy makes once.
fn prepare(node: &Node) -> Result<()> {
    node.sh("sysctl -qw net.ipv4.vs.conntrack=1")?;
    node.sh(&format!("ip link add {DEVICE} type dummy"))?;
    node.sh(&format!("ip link set {DEVICE} up"))?;
    for family in Family::ALL {
        node.sh(&format!(
            "ip address add {} dev {DEVICE}",
            family.service(1).ip()
        ))?;
    }
    Ok(())
}

/// A Service with a pod of the other node delivers the same packets in each mode, and none once the
/// pod ceases to be a real server.
fn modes_agree(lab: &FastLab, family: Family, protocol: Protocol) -> Result<()> {
    let service = Service::new(family.service(1), protocol, [family.end(&lab.far)?]);
    let server = VirtualServer {
        node: &lab.nodes.a,
        service: &service,
    };
    server.add()?;
    let arrivals = Arrivals::capture(lab, family)?;
    let mut seen: Vec<BTreeSet<_>> = Vec::new();
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        arrivals.take();
        let mut talk = Conversation::open(
            protocol,
            &lab.near,
            &lab.far,
            service.backends[0],
            Some(service.at),
        )
        .context(mode)?;
        if mode == "fast" {
            lab.until_replayed(|messages| talk.exchange(messages))
                .context(mode)?;
        } else {
            talk.exchange(200).context(mode)?;
        }
        seen.push(arrivals.take());
        server.is_cut_and_goes_on(&mut talk).context(mode)?;
    }
    for (mode, arrived) in ["encap", "fast"].iter().zip(&seen[1..]) {
        ensure!(
            !seen[0].is_empty() && *arrived == seen[0],
            "mode {mode}: {arrived:#?}, mode kernel: {:#?}",
            seen[0]
        );
    }
    server.remove()
}

/// A Service as IPVS of a node knows it.
struct VirtualServer<'a> {
    node: &'a Node,
    service: &'a Service,
}

impl VirtualServer<'_> {
    fn add(&self) -> Result<()> {
        self.ipvsadm("--add-service", "--scheduler rr")?;
        self.add_pod()
    }

    fn remove(&self) -> Result<()> {
        self.ipvsadm("--delete-service", "")
    }

    fn add_pod(&self) -> Result<()> {
        self.ipvsadm(
            "--add-server",
            &format!("--real-server {} --masquerading", self.service.backends[0]),
        )
    }

    /// A conversation stops with its real server and goes on with it: IPVS does not announce its
    /// changes, so the next refresh of the flow notices them.
    fn is_cut_and_goes_on(&self, talk: &mut Conversation) -> Result<()> {
        self.ipvsadm(
            "--delete-server",
            &format!("--real-server {}", self.service.backends[0]),
        )?;
        eventually("a flow that is cut", INTERVAL, || {
            ensure!(talk.exchange(20).is_err(), "{talk:?} still comes through");
            Ok(())
        })?;
        self.add_pod()?;
        eventually("a flow that goes on", RETRANSMISSION, || talk.exchange(1))
    }

    fn ipvsadm(&self, command: &str, options: &str) -> Result<()> {
        let kind = match self.service.protocol {
            Protocol::Tcp => "--tcp-service",
            Protocol::Udp => "--udp-service",
        };
        self.node
            .sh(&format!(
                "ipvsadm {command} {kind} {} {options}",
                self.service.at
            ))
            .map(drop)
    }
}
