//! Names of devices by their index, asked for once: a packet's device may be gone when its event is
//! read.

use std::collections::HashMap;

use nix::net::if_::if_indextoname;

/// The devices seen so far.
#[derive(Debug, Default)]
pub struct DeviceNames(HashMap<u32, String>);

impl DeviceNames {
    /// The name of a device; `#7` for one that has none any more.
    pub fn name(&mut self, ifindex: u32) -> &str {
        self.0.entry(ifindex).or_insert_with(|| match if_indextoname(ifindex) {
            // The empty name is how this version of nix says that there is no such device.
            Ok(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
            _ => format!("#{ifindex}"),
        })
    }
}
