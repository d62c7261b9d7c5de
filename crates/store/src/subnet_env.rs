//! subnet.env: how the container runtime, the CNI plugin and our own next start learn our subnet.
//!
//! Writing it, and what the next start takes from it; its lines are read by `flannel_subnet_env`,
//! as by the CNI plugin.

use std::{fmt::Write as _, fs, io, path::Path};

use flannel_host::file::{self, FileError};
use flannel_subnet_env::value_of;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::LeaseKey;
use crate::config::Prefix;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetEnv {
    /// The IPv4 pod network and our subnet in it.
    pub v4: Option<(Ipv4Net, Ipv4Net)>,
    /// The IPv6 pod network and our subnet in it.
    pub v6: Option<(Ipv6Net, Ipv6Net)>,
    /// The MTU of pods, in bytes.
    pub mtu: u16,
    /// True if the agent masquerades, so that other components need not.
    pub ip_masq: bool,
}

impl SubnetEnv {
    /// The text of the file. A subnet is given as its first usable address, the bridge's, with the
    /// length.
    pub fn render(&self) -> String {
        let mut text = String::new();
        if let Some((network, subnet)) = self.v4 {
            push_family(&mut text, "", network, subnet);
        }
        if let Some((network, subnet)) = self.v6 {
            push_family(&mut text, "IPV6_", network, subnet);
        }
        let _infallible = write!(
            text,
            "FLANNEL_MTU={}\nFLANNEL_IPMASQ={}\n",
            self.mtu, self.ip_masq
        );
        text
    }

    /// Replaces the file, which everybody may read; see [`file::replace`].
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        file::replace(path, self.render().as_bytes(), 0o644)
    }
}

fn push_family<P: Prefix>(text: &mut String, infix: &str, network: P, subnet: P) {
    let (gateway, length) = (P::to_address(subnet.first() + 1), subnet.length());
    let _infallible = write!(
        text,
        "FLANNEL_{infix}NETWORK={network}\nFLANNEL_{infix}SUBNET={gateway}/{length}\n"
    );
}

/// Returns the subnets an earlier run wrote, host bits cleared; `None` without a file or without a
/// subnet in it.
///
/// This is as tolerant as flannel's reader: it accepts quotes, comments and `export`, and a comma
/// list with exactly one valid entry.
pub fn read_previous(path: &Path) -> Result<Option<LeaseKey>, FileError> {
    let text = read_text(path)?;
    let key = LeaseKey {
        v4: value_of(&text, "FLANNEL_SUBNET").and_then(only_network),
        v6: value_of(&text, "FLANNEL_IPV6_SUBNET").and_then(only_network),
    };
    Ok(Some(key).filter(|key| *key != LeaseKey::default()))
}

/// Returns the pod networks an earlier run wrote, as tolerant as [`read_previous`].
pub fn read_previous_networks(path: &Path) -> Result<Vec<IpNet>, FileError> {
    let text = read_text(path)?;
    let v4 = value_of(&text, "FLANNEL_NETWORK")
        .and_then(only_network::<Ipv4Net>)
        .map(IpNet::V4);
    let v6 = value_of(&text, "FLANNEL_IPV6_NETWORK")
        .and_then(only_network::<Ipv6Net>)
        .map(IpNet::V6);
    Ok(v4.into_iter().chain(v6).collect())
}

/// The file; empty when there is none.
fn read_text(path: &Path) -> Result<String, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(file::failed("read", path)(error)),
    }
}

fn only_network<P: Prefix>(list: &str) -> Option<P> {
    let mut valid = list
        .split(',')
        .filter_map(|item| P::from_str(item.trim()).ok());
    valid
        .next()
        .filter(|_| valid.next().is_none())
        .map(P::masked)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use flannel_subnet_env::SubnetFile;

    use super::*;

    fn net<P: Prefix>(text: &str) -> P {
        text.parse().ok().expect("a network")
    }

    fn env() -> SubnetEnv {
        let v4 = Some((net("10.42.0.0/16"), net("10.42.7.0/24")));
        SubnetEnv {
            v4,
            v6: None,
            mtu: 1450,
            ip_masq: true,
        }
    }

    #[test]
    fn each_mode_has_its_lines() {
        let v6 = Some((net("2001:cafe:42::/56"), net("2001:cafe:42:1::/64")));
        let tail = "FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";
        let v4_lines = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.7.1/24\n";
        let v6_lines =
            "FLANNEL_IPV6_NETWORK=2001:cafe:42::/56\nFLANNEL_IPV6_SUBNET=2001:cafe:42:1::1/64\n";
        assert_eq!(env().render(), format!("{v4_lines}{tail}"));
        assert_eq!(
            SubnetEnv { v6, ..env() }.render(),
            format!("{v4_lines}{v6_lines}{tail}")
        );
        assert_eq!(
            SubnetEnv {
                v4: None,
                v6,
                ..env()
            }
            .render(),
            format!("{v6_lines}{tail}")
        );
    }

    #[test]
    fn what_is_written_is_what_readers_take() {
        let v6 = Some((net("2001:cafe:42::/56"), net("2001:cafe:42:1::/64")));
        let text = SubnetEnv { v6, ..env() }.render();
        let file = SubnetFile::parse(&text).expect("a good file");
        assert_eq!(
            (file.v4.networks, file.v4.subnet),
            (vec![net("10.42.0.0/16")], Some(net("10.42.7.1/24")))
        );
        assert_eq!(file.v6.subnet, Some(net("2001:cafe:42:1::1/64")));
        assert_eq!((file.mtu, file.ip_masq), (1450, true));
    }

    #[test]
    fn the_file_is_for_everybody_and_the_next_start_reads_it() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("subnet.env");
        env().write(&path).expect("written");
        assert_eq!(
            fs::metadata(&path).expect("metadata").permissions().mode() & 0o7777,
            0o644
        );
        assert_eq!(fs::read_to_string(&path).expect("the file"), env().render());
        let key = read_previous(&path).expect("readable").expect("a subnet");
        assert_eq!(key.to_string(), "10.42.7.0-24");
    }

    #[test]
    fn no_file_is_no_subnet_and_no_directory_an_error() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("file");
        fs::write(&file, "").expect("a file");
        assert!(read_previous(&file.join("subnet.env")).is_err());
        assert_eq!(
            read_previous(&scratch.path().join("absent")).expect("absent"),
            None
        );
    }

    #[test]
    fn the_reader_is_tolerant() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("subnet.env");
        for (text, expected) in [
            ("FLANNEL_SUBNET=10.5.1.1/24\n", "10.5.1.0-24"),
            (
                "# a comment\nexport FLANNEL_SUBNET=\"10.5.1.1/24\" # why\n",
                "10.5.1.0-24",
            ),
            ("FLANNEL_SUBNET = '10.5.1.1/24'", "10.5.1.0-24"),
            ("FLANNEL_SUBNET=10.5.1.1/24 # mine", "10.5.1.0-24"),
            ("FLANNEL_SUBNET=hi, 10.5.1.1/24,", "10.5.1.0-24"),
            (
                "FLANNEL_SUBNET=10.5.1.1/24\nFLANNEL_IPV6_SUBNET=fd00:5:1::1/64",
                "10.5.1.0-24&fd00:5:1::-64",
            ),
            (
                "FLANNEL_IPV6_NETWORK=fd00:5::/48\nFLANNEL_IPV6_SUBNET=fd00:5:0:1::1/64",
                "0.0.0.0-0&fd00:5:0:1::-64",
            ),
            (
                "FLANNEL_SUBNET=\nFLANNEL_IPV6_SUBNET=fd00:5:0:1::1/64",
                "0.0.0.0-0&fd00:5:0:1::-64",
            ),
            (
                "FLANNEL_SUBNET=10.5.1.1/24\nFLANNEL_IPV6_SUBNET=10.5.1.1/24",
                "10.5.1.0-24",
            ),
            (
                "FLANNEL_SUBNET=10.5.1.1/24\nFLANNEL_SUBNET=10.5.2.1/24",
                "10.5.2.0-24",
            ),
            ("FLANNEL_SUBNET=10.5.1.1/24,10.5.2.1/24", ""),
            ("FLANNEL_SUBNET=10.5.1.1", ""),
            ("nonsense\n\u{0}", ""),
        ] {
            fs::write(&path, text).expect("written");
            let key = read_previous(&path).expect("readable").unwrap_or_default();
            assert_eq!(key.to_string(), expected, "{text}");
        }
    }
}
