//! The tunnel device of one family.

use flannel_backend_api::{Device, DeviceError, TunnelDevice};
use flannel_netlink::Netlink;

use crate::tunnel::rivals;

/// Ensures that the device exists as it is wanted, and is up. At start (`adopt_mac`) an existing
/// device keeps its Ethernet address. An error names the owner of what the device needs.
pub async fn ensure(
    netlink: &Netlink,
    wanted: &dyn TunnelDevice,
    adopt_mac: bool,
) -> Result<Device, DeviceError> {
    match wanted.ensure(netlink, adopt_mac).await {
        Err(error) => Err(rivals::named(netlink, wanted, error).await),
        device => device,
    }
}
