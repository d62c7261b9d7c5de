//! Cables between hosts.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};

use crate::{Host, Lab, eventually};

/// More than the kernel lets pass between two events of links.
const USABLE: Duration = Duration::from_secs(10);

impl Lab {
    /// A veth pair from `from` to `to`, both ends up. Names are the ends' names inside the two
    /// hosts.
    pub fn link(&self, from: &Host, from_device: &str, to: &Host, to_device: &str) -> Result<()> {
        let peer = to.pid();
        from.sh(&format!(
            "ip link add {from_device} up type veth peer name {to_device} netns {peer}"
        ))?;
        to.sh(&format!("ip link set {to_device} up"))?;
        from.wait_link(from_device)?;
        to.wait_link(to_device)
    }
}

impl Host {
    /// Waits until packets can leave by a device that has been set up. Until then the kernel drops
    /// them: it gives a device its queue some time after the other end came up.
    ///
    /// The CNI plugin `bridge` waits for the same state of a pod's veth.
    pub fn wait_link(&self, device: &str) -> Result<()> {
        let file = self.outside_path(format!("/sys/class/net/{device}/operstate"));
        let what = format!("the link of {device} on {}", self.name());
        eventually(&what, USABLE, || {
            let state = fs::read_to_string(&file)?;
            ensure!(state.trim() == "up", "{}", state.trim());
            Ok(())
        })
    }
}
