//! The addresses that the plugin `host-local` gave, which it keeps as files: the name is the
//! address, the first line the container id, the second one the interface.
//! Source: `plugins/ipam/host-local/backend/disk/backend.go` of
//! <https://github.com/containernetworking/plugins/tree/v1.1.1>.
//!
//! Only read: its own DEL frees an address.

use std::{
    fs,
    io::{self, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    netconf::Object,
    regular_file::{self, Links},
};

const NAME: &str = "host-local";
const DATA_DIR: &str = "/var/lib/cni/networks";
/// More than a container id and an interface have, in bytes.
const LARGEST: u64 = 4 << 10;

/// Returns true if a delegate's configuration has host-local manage its addresses.
pub(crate) fn is_used_by(netconf: &Object) -> bool {
    text(netconf, "type") == Some(NAME)
}

/// Returns true if an address is allocated to the interface.
pub(crate) fn has_address(netconf: &Object, container_id: &str, ifname: &str) -> bool {
    let dir = text(netconf, "dataDir")
        .filter(|dir| !dir.is_empty())
        .unwrap_or(DATA_DIR);
    let network = netconf
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let files = fs::read_dir(PathBuf::from(dir).join(network))
        .into_iter()
        .flatten()
        .flatten();
    // On Windows ':' is '_' in a name; here a name is an address.
    let mut addresses = files.filter(|file| {
        file.file_name()
            .to_str()
            .is_some_and(|name| name.parse::<IpAddr>().is_ok())
    });
    addresses.any(|file| is_of(&file.path(), container_id, ifname).unwrap_or(false))
}

/// Files of host-local before 0.8.3 have no interface.
fn is_of(path: &Path, container_id: &str, ifname: &str) -> io::Result<bool> {
    let mut text = String::new();
    regular_file::open(path, Links::Refuse)?
        .take(LARGEST)
        .read_to_string(&mut text)?;
    let mut lines = text.lines().map(str::trim);
    Ok(lines.next() == Some(container_id) && lines.next().is_none_or(|line| line == ifname))
}

fn text<'a>(netconf: &'a Object, key: &str) -> Option<&'a str> {
    netconf.get("ipam")?.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_belongs_to_an_interface_of_a_container() {
        let scratch = tempfile::tempdir().expect("a directory");
        let net = scratch.path().join("net");
        fs::create_dir(&net).expect("created");
        for (name, text) in [
            ("10.1.7.2", "a\r\neth0"),
            ("fd00::3", "b\r\nnet1\r\n"),
            ("10.1.7.4", "old"),
            ("last_reserved_ip.0", "c\r\neth0"),
            ("lock", ""),
        ] {
            fs::write(net.join(name), text).expect("written");
        }
        let netconf = |ipam: &str| -> Object {
            let netconf =
                json!({ "name": "net", "ipam": { "type": ipam, "dataDir": scratch.path() } });
            serde_json::from_value(netconf).expect("an object")
        };
        let netconf_of = netconf("host-local");
        for (container_id, ifname, expected) in [
            ("a", "eth0", true),
            ("a", "net1", false),
            ("b", "net1", true),
            ("old", "eth0", true),
            ("c", "eth0", false),
        ] {
            assert_eq!(
                has_address(&netconf_of, container_id, ifname),
                expected,
                "{container_id} {ifname}"
            );
        }
        assert!(is_used_by(&netconf_of) && !is_used_by(&netconf("dhcp")));
    }
}
