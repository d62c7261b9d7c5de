//! The owner of a VNI or a UDP port that the kernel refuses to a tunnel device, for the message.
//!
//! Both may be free again at any time, so an agent that meets them waits. Only what this process
//! may see is named: processes of another PID namespace are not.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use flannel_backend_api::{DeviceError, TunnelDevice};
use flannel_netlink::{Link, Netlink};
use nix::errno::Errno;

/// The UDP sockets of this network namespace.
const TABLES: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// Adds the owner to an error that says that an object is taken.
pub(crate) async fn named(
    netlink: &Netlink,
    spec: &dyn TunnelDevice,
    error: DeviceError,
) -> DeviceError {
    let Some(source) = error.taken() else {
        return error;
    };
    let errno = source.errno();
    let links = netlink.links().await.unwrap_or_default();
    let owner = match (errno, spec.vni(), spec.port()) {
        (Some(Errno::EEXIST), Some(vni), Some(port)) => {
            let has_vni = |link: &Link| {
                link.vxlan
                    .is_some_and(|vxlan| (vxlan.vni, vxlan.port) == (vni, port))
            };
            let devices = others(&links, spec.name(), has_vni);
            (!devices.is_empty()).then(|| {
                format!(
                    "VNI {vni} with UDP port {port} is taken by {}",
                    devices.join(", ")
                )
            })
        }
        (Some(Errno::EADDRINUSE), _, Some(port)) => {
            Some(owner_of_port(&links, spec.name(), port).await)
        }
        _ => None,
    };
    match owner {
        Some(owner) => DeviceError::Taken {
            owner,
            device: spec.name().to_owned(),
            source: Box::new(error),
        },
        None => error,
    }
}

/// Describes the owners of a UDP port, without the device `own`.
async fn owner_of_port(links: &[Link], own: &str, port: u16) -> String {
    let mut owners = others(links, own, |link| {
        link.vxlan.is_some_and(|vxlan| vxlan.port == port)
    });
    // Looking through all descriptors of all processes takes a while on a large node.
    let sockets =
        tokio::task::spawn_blocking(move || owners_of_sockets(Path::new("/proc"), port)).await;
    let SocketOwners { processes, users } = sockets.unwrap_or_default();
    owners.extend(processes);
    // The socket of a device is like one of a process that may not be seen.
    if owners.is_empty() {
        owners.extend(users.iter().map(|user| {
            format!(
                "a process of user {user}, whose descriptors this agent may not see \
                (`flannel-agent check` names it to root)"
            )
        }));
    }
    if owners.is_empty() {
        owners.push("a socket of the kernel".to_owned());
    }
    format!("UDP port {port} is taken by {}", owners.join(", "))
}

/// Describes the devices that have what a tunnel device needs, other than that one.
fn others(links: &[Link], own: &str, has: impl Fn(&Link) -> bool) -> Vec<String> {
    let found = links.iter().filter(|link| link.name != own && has(link));
    found
        .map(|link| {
            format!(
                "the {} device {}",
                link.kind.as_deref().unwrap_or("network"),
                link.name
            )
        })
        .collect()
}

/// The owners of the UDP sockets of a port.
#[derive(Debug, Default)]
pub struct SocketOwners {
    /// Descriptions of the processes that can be seen.
    pub processes: Vec<String>,
    /// The users of all such sockets. Tunnel devices have sockets without a process.
    pub users: BTreeSet<u32>,
}

/// Looks for the owners of the UDP sockets of a port.
pub fn owners_of_sockets(proc: &Path, port: u16) -> SocketOwners {
    let tables = TABLES
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok());
    let sockets: Vec<(u64, u32)> = tables
        .flat_map(|table| sockets_with_port(&table, port))
        .collect();
    let Some(names) = links_of(&sockets) else {
        return SocketOwners::default();
    };
    let found =
        processes(proc).filter(|(_, dir)| descriptors(dir).any(|target| names.contains(&target)));
    SocketOwners {
        processes: found.map(|(pid, dir)| describe(pid, &dir)).collect(),
        users: sockets.into_iter().map(|(_, user)| user).collect(),
    }
}

/// Inodes and users of the sockets with a local port, in the text of such a table.
fn sockets_with_port(table: &str, port: u16) -> Vec<(u64, u32)> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local) = fields.get(1)?.rsplit_once(':')?;
        let (user, inode) = (fields.get(7)?.parse().ok()?, fields.get(9)?.parse().ok()?);
        (u16::from_str_radix(local, 16).ok()? == port).then_some((inode, user))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// The targets of descriptors of these sockets; `None` without any socket.
fn links_of(sockets: &[(u64, u32)]) -> Option<BTreeSet<PathBuf>> {
    (!sockets.is_empty()).then(|| {
        sockets
            .iter()
            .map(|(inode, _)| format!("socket:[{inode}]").into())
            .collect()
    })
}

fn processes(proc: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn descriptors(process: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok())
}

fn describe(pid: u32, dir: &Path) -> String {
    match fs::read_to_string(dir.join("comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end().escape_debug()),
        Err(_) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use flannel_netlink::VxlanInfo;

    use super::*;

    const TABLE: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
        retrnsmt   uid  timeout inode ref pointer drops\n  \
         12: 00000000:2118 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 \
         4711 2 0000000000000000 0\n  \
         14: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 \
         4712 2 0000000000000000 0\n";

    #[test]
    fn sockets_are_found_by_their_port() {
        assert_eq!(sockets_with_port(TABLE, 8472), [(4711, 0)]);
        assert_eq!(sockets_with_port(TABLE, 53), [(4712, 101)]);
        assert!(sockets_with_port(TABLE, 8473).is_empty());
    }

    #[test]
    fn a_process_with_the_port_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = socket.local_addr().expect("an address").port();
        let found = owners_of_sockets(Path::new("/proc"), port).processes;
        assert!(
            found
                .iter()
                .any(|owner| owner.starts_with(&format!("process {} (", std::process::id()))),
            "{found:?}"
        );
    }

    #[test]
    fn devices_with_the_port_are_named_and_the_own_one_is_not() {
        let vxlan = |name: &str, vni, port| Link {
            kind: Some("vxlan".to_owned()),
            vxlan: Some(VxlanInfo {
                vni,
                port,
                ..VxlanInfo::default()
            }),
            ..Link::ethernet(3, name, 1450)
        };
        let links = [
            vxlan("flannel.1", 1, 8472),
            vxlan("cilium_vxlan", 0, 8472),
            vxlan("vx9", 1, 4789),
        ];
        let found = others(&links, "flannel.1", |link| {
            link.vxlan.is_some_and(|vxlan| vxlan.port == 8472)
        });
        assert_eq!(found, ["the vxlan device cilium_vxlan"]);
    }
}
