//! The largest packet that reaches a server, with fragmentation forbidden.
//!
//! `IP_PMTUDISC_PROBE` sets DF and ignores what the kernel learned of the path
//! ([ip(7)](https://man7.org/linux/man-pages/man7/ip.7.html), Linux 2.6.22), so the only limit of
//! this host is the MTU of its device.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use nix::{errno::Errno, ifaddrs::getifaddrs};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};
use tokio::{net::UdpSocket, time::Instant};

use super::{
    message::ANSWER,
    round::{ProbeError, ROUND, patient, socket_to, udp_round},
    target::Outcome,
};

/// Bytes of the UDP header and of the IP header of each family.
const UDP: u32 = 8;
const IPV4: u32 = 20;
const IPV6: u32 = 40;
/// Tries of each size: one packet may be lost.
const TRIES: u64 = 2;
/// For one try. The server has answered before, so silence means that the packet is too large.
const TRY: Duration = Duration::from_millis(700);
/// The largest packet of IP.
const LARGEST: u32 = 65_535;

/// Writes the largest packet and the MTU of the device into the outcome; an error if the largest is
/// smaller.
pub(super) async fn measure(
    to: SocketAddr,
    deadline: Instant,
    outcome: &mut Outcome,
) -> Result<(), ProbeError> {
    let headers = UDP + if to.is_ipv4() { IPV4 } else { IPV6 };
    // Waits for the server.
    patient(deadline, async || {
        udp_round(&socket_to(to).await?, 0, ANSWER, ROUND).await
    })
    .await?;
    let socket = unfragmented(to).await?;
    let device = device_mtu(socket.local_addr()?.ip())?.min(LARGEST);
    outcome.device_mtu = Some(device);
    let least = headers + u32::try_from(ANSWER).unwrap_or(LARGEST);
    let size = largest(least, device, async |size| {
        passes(&socket, size, size - headers).await
    })
    .await?;
    outcome.size = size;
    match size {
        Some(size) if size == device => Ok(()),
        Some(size) => Err(ProbeError::Smaller { size, device }),
        None => Err(ProbeError::Fragmented),
    }
}

async fn unfragmented(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket_to(to).await?;
    if to.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
    }
    Ok(socket)
}

/// Returns true if a packet with this payload is answered.
async fn passes(socket: &UdpSocket, number: u32, payload: u32) -> Result<bool, ProbeError> {
    let length = usize::try_from(payload).unwrap_or(usize::MAX);
    for attempt in 0..TRIES {
        match udp_round(socket, u64::from(number) * TRIES + attempt, length, TRY).await {
            Ok(answered) => return Ok(answered.length == payload),
            Err(ProbeError::Silent) => {}
            // Larger than a device on this host.
            Err(ProbeError::Io(error)) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The largest size from `least` to `most` that passes; `None` if none does.
async fn largest<E>(
    least: u32,
    most: u32,
    mut passes: impl AsyncFnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    if passes(most).await? {
        return Ok(Some(most));
    }
    if least >= most || !passes(least).await? {
        return Ok(None);
    }
    let (mut good, mut bad) = (least, most);
    while bad - good > 1 {
        let middle = u32::midpoint(good, bad);
        if passes(middle).await? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(Some(good))
}

/// The MTU of the device with a local address.
fn device_mtu(local: IpAddr) -> io::Result<u32> {
    let of = |address: &nix::sys::socket::SockaddrStorage| {
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        v4.or(address
            .as_sockaddr_in6()
            .map(|address| IpAddr::from(address.ip())))
    };
    let device = getifaddrs()?.find(|device| device.address.as_ref().and_then(of) == Some(local));
    let name = device
        .ok_or_else(|| io::Error::other(format!("no device has {local}")))?
        .interface_name;
    let text = fs::read_to_string(format!("/sys/class/net/{name}/mtu"))?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[tokio::test]
    async fn the_largest_size_that_passes_is_found() {
        for limit in [100, 101, 576, 1279, 1449, 1450] {
            let found = largest(100, 1450, async |size| Ok::<_, Infallible>(size <= limit)).await;
            assert_eq!(found, Ok(Some(limit)));
        }
        let none = largest(100, 1450, async |_| Ok::<_, Infallible>(false)).await;
        assert_eq!(none, Ok(None));
    }
}
