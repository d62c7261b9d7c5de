//! Other devices and programs with the UDP port or the VNI of the tunnel.

use std::path::Path;

use flannel_netlink::Link;
use flannel_reconcile::tunnel::rivals::{SocketOwners, owners_of_sockets};

use super::{code::HostCode, finding::Finding, network::is_flannels};

/// The VNI where nothing says otherwise.
const DEFAULT_VNI: u32 = 1;

/// Looks who has the port. A tunnel device that is up has it, so that no other program can.
pub(super) fn look(links: &[Link], port: u16) -> Finding {
    if let Some(own) = links.iter().find(|link| is_flannels(link) && link.up) {
        return Finding::ok("port", format!("{} has UDP port {port}", own.name));
    }
    let mut owners: Vec<String> = links
        .iter()
        .filter(|link| is_in_the_way(link, port))
        .map(describe)
        .collect();
    let SocketOwners { processes, users } = owners_of_sockets(Path::new("/proc"), port);
    owners.extend(processes);
    if owners.is_empty() && !has_other(links, port) {
        owners.extend(users.iter().map(|user| {
            format!(
                "a process of user {user} that cannot be seen from here, such as one of \
                another container"
            )
        }));
    }
    if owners.is_empty() {
        return Finding::ok(
            "port",
            format!("no other device or program has UDP port {port}"),
        );
    }
    Finding::fail(
        HostCode::PortTaken,
        format!(
            "UDP port {port}, or VNI {DEFAULT_VNI} at it, is taken by {}",
            owners.join(", ")
        ),
        "the agent waits until it is free: remove that device or end that program, or choose \
         another Backend.Port or Backend.VNI",
    )
}

/// Devices for one VNI each share a port, unless they have the same VNI. One for all VNIs shares it
/// with none.
fn is_in_the_way(link: &Link, port: u16) -> bool {
    let takes = |external: bool, vni: u32| external || vni == DEFAULT_VNI;
    !is_flannels(link)
        && link
            .vxlan
            .is_some_and(|vxlan| vxlan.port == port && takes(vxlan.external, vxlan.vni))
}

/// A device whose socket may be shared.
fn has_other(links: &[Link], port: u16) -> bool {
    links
        .iter()
        .any(|link| link.vxlan.is_some_and(|vxlan| vxlan.port == port))
}

fn describe(link: &Link) -> String {
    format!("the vxlan device {}", link.name)
}

#[cfg(test)]
mod tests {
    use flannel_netlink::VxlanInfo;

    use super::*;
    use crate::check::Level;

    /// A port on which no test listens.
    const PORT: u16 = 1;

    fn vxlan(name: &str, vni: u32, external: bool) -> Link {
        let vxlan = Some(VxlanInfo {
            vni,
            port: PORT,
            external,
            ..VxlanInfo::default()
        });
        Link {
            vxlan,
            ..Link::ethernet(3, name, 1450)
        }
    }

    #[test]
    fn only_what_keeps_the_tunnel_device_from_its_port_is_named() {
        for (link, level) in [
            (vxlan("cilium_vxlan", 0, true), Level::Fail),
            (vxlan("oldflannel", 1, false), Level::Fail),
            (vxlan("vx9", 9, false), Level::Ok),
            (vxlan("flannel.1", 1, false), Level::Ok),
        ] {
            let name = link.name.clone();
            let found = look(&[link], PORT);
            assert_eq!(found.level, level, "{name}: {}", found.text);
            assert!(
                level == Level::Ok || found.text.contains(&name),
                "{}",
                found.text
            );
        }
    }
}
