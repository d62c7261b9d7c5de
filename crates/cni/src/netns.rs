//! A look into the network namespace of a call: is the interface there, and with which addresses.
//!
//! A separate thread enters the namespace and ends with the look: the plugin and the delegate stay
//! in the node's namespace.

use std::{fs::File, io, net::IpAddr, path::Path, thread};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns},
};

use crate::regular_file::{self, Links};

/// The interface that CNI_NETNS and CNI_IFNAME name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    /// The interface is there, with these addresses.
    Present(Vec<IpAddr>),
    /// The namespace has no such interface.
    Absent,
    /// The file does not exist, or CNI_NETNS is empty.
    NoNamespace,
    /// The file is not a network namespace.
    NotANamespace,
    /// The namespace cannot be entered, for lack of rights.
    Unknown,
}

/// Looks for the interface. Never waits for others.
pub(crate) fn look(netns: Option<&Path>, ifname: &str) -> Interface {
    let Some(netns) = netns else {
        return Interface::NoNamespace;
    };
    let file = match regular_file::open(netns, Links::Follow) {
        Ok(file) => file,
        Err(error) => return without_file(&error),
    };
    thread::scope(|scope| {
        scope
            .spawn(|| look_inside(&file, ifname))
            .join()
            .unwrap_or(Interface::Unknown)
    })
}

fn without_file(error: &io::Error) -> Interface {
    match error.kind() {
        io::ErrorKind::NotFound => Interface::NoNamespace,
        io::ErrorKind::InvalidData => Interface::NotANamespace,
        _ => Interface::Unknown,
    }
}

fn look_inside(netns: &File, ifname: &str) -> Interface {
    match setns(netns, CloneFlags::CLONE_NEWNET) {
        Ok(()) => {}
        // setns(2): the file is not a namespace, or one of another type.
        Err(Errno::EINVAL) => return Interface::NotANamespace,
        Err(_) => return Interface::Unknown,
    }
    match if_nametoindex(ifname) {
        Ok(_) => Interface::Present(addresses(ifname)),
        Err(Errno::ENODEV) => Interface::Absent,
        Err(_) => Interface::Unknown,
    }
}

fn addresses(ifname: &str) -> Vec<IpAddr> {
    let address = |storage: nix::sys::socket::SockaddrStorage| {
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
    };
    let all = getifaddrs()
        .into_iter()
        .flatten()
        .filter(|entry| entry.interface_name == ifname);
    all.filter_map(|entry| entry.address.and_then(address))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_namespace_is_distinguished_from_an_absent_one() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(look(None, "lo"), Interface::NoNamespace);
        assert_eq!(
            look(Some(&scratch.path().join("absent")), "lo"),
            Interface::NoNamespace
        );
        assert_eq!(look(Some(scratch.path()), "lo"), Interface::NotANamespace);
        for path in [file.as_path(), Path::new("/proc/self/ns/mnt")] {
            // Without CAP_SYS_ADMIN the kernel looks at the rights first.
            assert!(
                matches!(
                    look(Some(path), "lo"),
                    Interface::NotANamespace | Interface::Unknown
                ),
                "{path:?}"
            );
        }
    }

    #[test]
    fn an_interface_has_its_addresses() {
        let own = Path::new("/proc/self/ns/net");
        match look(Some(own), "lo") {
            Interface::Present(addresses) => {
                assert!(addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
            }
            Interface::Unknown => {
                return eprintln!("NOT RUN: a look into a namespace needs CAP_SYS_ADMIN");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(look(Some(own), "nosuch0"), Interface::Absent);
    }
}
