//! The table of kube-proxy's mode `nftables`, rebuilt in one transaction.

use std::fmt::Write as _;

use ipnet::IpNet;

use super::Service;

/// The part that exists with and without Services. The maps lead from addresses and ports to a
/// Service's chain.
const BASE: &str = "
    map service-ips { type FAMILY_addr . inet_proto . inet_service : verdict; }
    map no-endpoint-services { type FAMILY_addr . inet_proto . inet_service : verdict; }
    map service-nodeports { type inet_proto . inet_service : verdict; }
    chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
    chain reject-chain { reject; }
    chain services {
        FAMILY daddr . meta l4proto . th dport vmap @service-ips
        fib daddr type local meta l4proto . th dport vmap @service-nodeports
    }
    chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
    chain nat-output { type nat hook output priority -100; jump services; }
    chain nat-postrouting {
        type nat hook postrouting priority srcnat;
        meta mark and 0x4000 == 0 return
        meta mark set meta mark xor 0x4000
        masquerade fully-random
    }
    chain service-endpoints-check \
    { FAMILY daddr . meta l4proto . th dport vmap @no-endpoint-services; }
    chain filter-forward {
        type filter hook forward priority -110;
        ct state invalid drop
        ct state new jump service-endpoints-check
    }
    chain filter-output \
    { type filter hook output priority -110; ct state new jump service-endpoints-check; }
";

/// A script that makes the table as it should be, whatever it was.
pub(super) fn table(pods: IpNet, services: &[Service]) -> String {
    let family = if pods.addr().is_ipv4() { "ip" } else { "ip6" };
    let addr = if pods.addr().is_ipv4() {
        "ipv4_addr"
    } else {
        "ipv6_addr"
    };
    let base = BASE.replace("FAMILY_addr", addr).replace("FAMILY", family);
    let (mut chains, mut elements) = (String::new(), String::new());
    let name = format!("{family} kube-proxy");
    for (number, service) in services.iter().enumerate() {
        write_service(&mut chains, &mut elements, (family, pods), number, service).expect("memory");
    }
    format!("add table {name}\ndelete table {name}\ntable {name} {{{base}{chains}}}\n{elements}")
}

fn write_service(
    chains: &mut String,
    elements: &mut String,
    (family, pods): (&str, IpNet),
    number: usize,
    service: &Service,
) -> std::fmt::Result {
    let (protocol, address, port) = (service.protocol.name(), service.at.ip(), service.at.port());
    let at = format!("{address} . {protocol} . {port}");
    let element = format!("add element {family} kube-proxy");
    if service.backends.is_empty() {
        return writeln!(
            elements,
            "{element} no-endpoint-services {{ {at} : goto reject-chain }}"
        );
    }
    writeln!(
        elements,
        "{element} service-ips {{ {at} : goto service-{number} }}"
    )?;
    for (place, backend) in service.backends.iter().enumerate() {
        let hairpin = format!("{family} saddr {} jump mark-for-masquerade", backend.ip());
        let dnat = format!("meta l4proto {protocol} dnat {family} to {backend}");
        writeln!(
            chains,
            "chain endpoint-{number}-{place} {{\n{hairpin}\n{dnat}\n}}"
        )?;
    }
    let outside = format!(
        "{family} daddr {address} {protocol} dport {port} {family} saddr != {pods} jump \
         mark-for-masquerade"
    );
    let choices: Vec<_> = (0..service.backends.len())
        .map(|place| format!("{place} : goto endpoint-{number}-{place}"))
        .collect();
    let choice = format!(
        "numgen random mod {} vmap {{ {} }}",
        choices.len(),
        choices.join(", ")
    );
    writeln!(chains, "chain service-{number} {{\n{outside}\n{choice}\n}}")?;
    if let Some(port) = service.node_port {
        writeln!(
            chains,
            "chain external-{number} {{\njump mark-for-masquerade\ngoto service-{number}\n}}"
        )?;
        writeln!(
            elements,
            "{element} service-nodeports {{ {protocol} . {port} : goto external-{number} }}"
        )?;
    }
    Ok(())
}
