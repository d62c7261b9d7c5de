//! Names of devices by their index, asked for once: a packet's device may be gone when its event is
//! read.

use std::collections::HashMap;

use flannel_netlink::device_name;

/// The devices seen so far; none for one that has no name any more, or is in another network
/// namespace.
#[derive(Debug, Default)]
pub struct DeviceNames(HashMap<u32, Option<String>>);

impl DeviceNames {
    /// The name of a device.
    pub fn get(&mut self, ifindex: u32) -> Option<&str> {
        self.0
            .entry(ifindex)
            .or_insert_with(|| device_name(ifindex))
            .as_deref()
    }

    /// The name of a device; `#7` for one that has none.
    pub fn name(&mut self, ifindex: u32) -> String {
        self.get(ifindex)
            .map_or_else(|| format!("#{ifindex}"), str::to_owned)
    }

    /// Returns the name of a device and its index, `eth0 (2)`; only the index if it has no name.
    pub fn with_index(&mut self, ifindex: u32) -> String {
        self.get(ifindex)
            .map_or_else(|| ifindex.to_string(), |name| format!("{name} ({ifindex})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_gone_is_its_number() {
        let mut devices = DeviceNames::default();
        assert_eq!(
            (devices.name(4_000_000), devices.with_index(4_000_000)),
            ("#4000000".into(), "4000000".into())
        );
        // Every network namespace has its loopback device, and it is the first.
        assert_eq!(
            (devices.name(1), devices.with_index(1)),
            ("lo".to_owned(), "lo (1)".to_owned())
        );
    }
}
