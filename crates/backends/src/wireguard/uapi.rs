//! The protocol of WireGuard processes: lines on a socket (wireguard.com/xplatform). The texts are
//! made and read here without I/O.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use flannel_host::wireguard_key::{KEY_LEN, PublicKey, SecretKey};
use flannel_netlink::{WireguardDevice, WireguardPeer, WireguardPeerState};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::WireguardError;

/// The directory in which every implementation has its sockets.
const DIRECTORY: &str = "/var/run/wireguard";
/// A process that takes longer for an answer counts as dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// An answer that is longer is not read: a thousand bytes for each of 60,000 peers.
const MOST: u64 = 64 << 20;

/// The socket of a device's process.
pub(super) fn socket(device: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{device}.sock"))
}

/// Returns true if a process serves the device of this name.
pub async fn has_process(device: &str) -> bool {
    UnixStream::connect(socket(device)).await.is_ok()
}

/// Sends a request and returns the lines of the answer, without the `errno` that ends it.
pub(super) async fn ask(socket: &Path, request: &str) -> Result<String, WireguardError> {
    let silent = |error: io::Error| WireguardError::NoAnswer {
        socket: socket.to_owned(),
        error,
    };
    let answer = timeout(PATIENCE, exchange(socket, request)).await;
    let answer = answer
        .map_err(|_late| silent(io::ErrorKind::TimedOut.into()))?
        .map_err(silent)?;
    let (lines, errno) =
        split(&answer).ok_or_else(|| silent(io::ErrorKind::UnexpectedEof.into()))?;
    match errno {
        0 => Ok(lines.to_owned()),
        errno => Err(WireguardError::Refused {
            socket: socket.to_owned(),
            errno: errno.saturating_abs(),
        }),
    }
}

/// The process keeps the connection open for further requests, so the answer's end is in its text.
async fn exchange(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(request.as_bytes()).await?;
    let (mut answer, mut stream) = (Vec::new(), stream.take(MOST));
    while !answer.ends_with(b"\n\n") && stream.read_buf(&mut answer).await? > 0 {}
    String::from_utf8(answer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The lines before `errno=`, and its number.
fn split(answer: &str) -> Option<(&str, i32)> {
    let end = answer.rfind("errno=")?;
    let errno = answer[end..]
        .trim_end()
        .strip_prefix("errno=")?
        .parse()
        .ok()?;
    Some((&answer[..end], errno))
}

/// The request for everything there is.
pub(super) const READ: &str = "get=1\n\n";

/// The request for another key and port. Peers stay.
pub(super) fn identity(key: &SecretKey, port: u16) -> String {
    format!("set=1\nprivate_key={}\nlisten_port={port}\n\n", hex(&key.0))
}

/// The request that makes a peer, or makes it this way.
pub(super) fn peer(key: &PublicKey, peer: &WireguardPeer) -> String {
    let preshared = peer.preshared_key.map_or([0; KEY_LEN], |key| key.0);
    let mut text = format!(
        "set=1\npublic_key={}\npreshared_key={}\n",
        hex(&key.0),
        hex(&preshared)
    );
    // Writing to a string cannot fail.
    if let Some(endpoint) = peer.endpoint {
        let _ = writeln!(text, "endpoint={endpoint}");
    }
    let _ = writeln!(
        text,
        "persistent_keepalive_interval={}",
        peer.keepalive.unwrap_or(0)
    );
    text.push_str("replace_allowed_ips=true\n");
    for prefix in &peer.allowed {
        let _ = writeln!(text, "allowed_ip={prefix}");
    }
    text + "\n"
}

/// The request that removes a peer.
pub(super) fn removal(key: &PublicKey) -> String {
    format!("set=1\npublic_key={}\nremove=true\n\n", hex(&key.0))
}

/// Reads the answer to [`READ`]. The error is a line that is not understood, without its value.
pub(super) fn device(lines: &str) -> Result<WireguardDevice, String> {
    let mut device = WireguardDevice::default();
    let mut current: Option<PublicKey> = None;
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| "a line without =".to_owned())?;
        let bad = || format!("{name}=");
        match name {
            "private_key" => device.private_key = Some(SecretKey(unhex(value).ok_or_else(bad)?)),
            "listen_port" => device.port = value.parse().ok().ok_or_else(bad)?,
            "public_key" => {
                let key = PublicKey(unhex(value).ok_or_else(bad)?);
                device.peers.insert(key, new_peer());
                current = Some(key);
            }
            _ => {
                let state = current.and_then(|key| device.peers.get_mut(&key));
                state
                    .map_or(Some(()), |state| take(state, name, value))
                    .ok_or_else(bad)?;
            }
        }
    }
    Ok(device)
}

const fn new_peer() -> WireguardPeerState {
    WireguardPeerState {
        peer: WireguardPeer {
            endpoint: None,
            allowed: BTreeSet::new(),
            preshared_key: None,
            keepalive: None,
        },
        last_handshake: None,
        received: 0,
        sent: 0,
    }
}

/// Takes one line of a peer in; `None` if its value is not understood. Other lines are of later
/// versions of the protocol.
fn take(state: &mut WireguardPeerState, name: &str, value: &str) -> Option<()> {
    match name {
        "preshared_key" => {
            state.peer.preshared_key =
                Some(SecretKey(unhex(value)?)).filter(|key| key.0 != [0; KEY_LEN]);
        }
        "endpoint" => state.peer.endpoint = Some(value.parse().ok()?),
        "persistent_keepalive_interval" => {
            state.peer.keepalive = Some(value.parse().ok()?).filter(|seconds| *seconds != 0);
        }
        "allowed_ip" => {
            state.peer.allowed.insert(value.parse().ok()?);
        }
        "last_handshake_time_sec" => {
            let seconds: u64 = value.parse().ok()?;
            state.last_handshake =
                (seconds > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        }
        "rx_bytes" => state.received = value.parse().ok()?,
        "tx_bytes" => state.sent = value.parse().ok()?,
        _ => {}
    }
    Some(())
}

fn hex(key: &[u8; KEY_LEN]) -> String {
    key.iter()
        .fold(String::with_capacity(2 * KEY_LEN), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn unhex(text: &str) -> Option<[u8; KEY_LEN]> {
    let mut key = [0; KEY_LEN];
    if text.len() != 2 * KEY_LEN || !text.is_ascii() {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted() -> WireguardPeer {
        WireguardPeer {
            endpoint: Some("[2001:db8::9]:51821".parse().expect("an endpoint")),
            allowed: ["10.244.9.0/24", "fd00:10:244:9::/64"]
                .map(|prefix| prefix.parse().expect("a prefix"))
                .into(),
            preshared_key: Some(SecretKey([3; KEY_LEN])),
            keepalive: Some(25),
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let key = PublicKey([0xab; KEY_LEN]);
        let lines = |request: String| {
            request
                .replace("set=1\n", "")
                .replace("replace_allowed_ips=true\n", "")
        };
        let text = lines(identity(&SecretKey([9; KEY_LEN]), 51820))
            + &lines(peer(&key, &wanted()))
            + "last_handshake_time_sec=1700000000\nlast_handshake_time_nsec=5\nrx_bytes=7\n\
                tx_bytes=8\nprotocol_version=1\n";
        let device = device(&text).expect("a device");
        assert_eq!(
            (device.private_key, device.port),
            (Some(SecretKey([9; KEY_LEN])), 51820)
        );
        let state = &device.peers[&key];
        assert_eq!((&state.peer, state.received, state.sent), (&wanted(), 7, 8));
        assert_eq!(
            state.last_handshake,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        );
        assert_eq!(
            removal(&key),
            format!(
                "set=1\npublic_key={}\nremove=true\n\n",
                "ab".repeat(KEY_LEN)
            )
        );
    }

    #[test]
    fn zero_is_no_value() {
        let text = format!(
            "public_key={}\npreshared_key={}\n",
            "01".repeat(32),
            "00".repeat(32)
        );
        let text = text + "last_handshake_time_sec=0\npersistent_keepalive_interval=0\n";
        let device = device(&text).expect("a device");
        assert_eq!(device.peers[&PublicKey([1; KEY_LEN])], new_peer());
    }

    #[test]
    fn an_answer_ends_with_its_errno() {
        assert_eq!(
            split("listen_port=1\nerrno=0\n\n"),
            Some(("listen_port=1\n", 0))
        );
        assert_eq!(split("errno=-22\n\n"), Some(("", -22)));
        assert_eq!(split("listen_port=1\n"), None);
    }

    #[test]
    fn a_line_that_is_not_understood_is_named_without_its_value() {
        for (text, expected) in [
            ("private_key=xyz", "private_key="),
            ("listen_port=a", "listen_port="),
            ("a", "a line"),
        ] {
            let error = device(text).expect_err(text);
            assert!(
                error.starts_with(expected) && !error.contains("xyz"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(
            text in "(private_key|public_key|endpoint|allowed_ip|errno|rx_bytes)?=?[ -~\n]{0,80}",
        ) {
            let _ = device(&text);
            let _ = split(&text);
        }
    }
}
