//! Cables between hosts.

use anyhow::Result;

use crate::{Host, Lab};

impl Lab {
    /// A veth pair from `from` to `to`, both ends up. Names are the ends' names inside the two
    /// hosts.
    pub fn link(&self, from: &Host, from_device: &str, to: &Host, to_device: &str) -> Result<()> {
        let peer = to.pid();
        from.sh(&format!(
            "ip link add {from_device} up type veth peer name {to_device} netns {peer}"
        ))?;
        to.sh(&format!("ip link set {to_device} up")).map(drop)
    }
}
