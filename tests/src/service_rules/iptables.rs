//! The chains of kube-proxy's mode `iptables`, as `iptables-restore` reads them. Chains no rule
//! leads to any more stay, as kube-proxy leaves them for a while.

use std::fmt::Write as _;

use ipnet::IpNet;

use super::Service;

/// The mark of packets to masquerade.
const MASQUERADE: &str = "0x4000";

/// Returns the rules that exist once: the jumps into the chains.
pub(super) fn base() -> String {
    format!(
        "*filter
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark {MASQUERADE}/{MASQUERADE} -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment \"kubernetes postrouting rules\" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark {MASQUERADE}
-A KUBE-POSTROUTING -m mark ! --mark {MASQUERADE}/{MASQUERADE} -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark {MASQUERADE}
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
"
    )
}

/// All Services. Naming a chain empties it.
pub(super) fn services(pods: IpNet, services: &[Service]) -> String {
    let mut chains = String::from(":KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n");
    let (mut nat, mut filter) = (String::new(), String::new());
    for (number, service) in services.iter().enumerate() {
        if service.backends.is_empty() {
            writeln!(filter, "-A KUBE-SERVICES {} -j REJECT", at(service)).expect("memory");
        } else {
            write_service(&mut chains, &mut nat, pods, number, service).expect("memory");
        }
    }
    let node_ports = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS";
    format!(
        "*filter\n:KUBE-SERVICES - [0:0]\n{filter}COMMIT\n*nat\n{chains}{nat}{node_ports}\nCOMMIT\n"
    )
}

/// A match of the Service's own address.
fn at(service: &Service) -> String {
    format!(
        "-d {} -p {} --dport {}",
        service.at.ip(),
        service.protocol.name(),
        service.at.port()
    )
}

fn write_service(
    chains: &mut String,
    nat: &mut String,
    pods: IpNet,
    number: usize,
    service: &Service,
) -> std::fmt::Result {
    let (at, protocol) = (at(service), service.protocol.name());
    writeln!(chains, ":KUBE-SVC-{number} - [0:0]")?;
    writeln!(nat, "-A KUBE-SERVICES {at} -j KUBE-SVC-{number}")?;
    if let Some(port) = service.node_port {
        writeln!(chains, ":KUBE-EXT-{number} - [0:0]")?;
        writeln!(
            nat,
            "-A KUBE-NODEPORTS -p {protocol} --dport {port} -j KUBE-EXT-{number}"
        )?;
        writeln!(nat, "-A KUBE-EXT-{number} -j KUBE-MARK-MASQ")?;
        writeln!(nat, "-A KUBE-EXT-{number} -j KUBE-SVC-{number}")?;
    }
    writeln!(
        nat,
        "-A KUBE-SVC-{number} ! -s {pods} {at} -j KUBE-MARK-MASQ"
    )?;
    for (place, backend) in service.backends.iter().enumerate() {
        let chance = match service.backends.len() - place {
            1 => String::new(),
            left => format!(
                "-m statistic --mode random --probability {:.10} ",
                share(left)
            ),
        };
        let chain = format!("KUBE-SEP-{number}-{place}");
        writeln!(chains, ":{chain} - [0:0]")?;
        writeln!(nat, "-A KUBE-SVC-{number} {chance}-j {chain}")?;
        writeln!(nat, "-A {chain} -s {} -j KUBE-MARK-MASQ", backend.ip())?;
        writeln!(
            nat,
            "-A {chain} -p {protocol} -j DNAT --to-destination {backend}"
        )?;
    }
    Ok(())
}

/// Returns the probability of one of `of` backends.
#[expect(clippy::cast_precision_loss, reason = "a handful of backends")]
fn share(of: usize) -> f64 {
    1.0 / of as f64
}
