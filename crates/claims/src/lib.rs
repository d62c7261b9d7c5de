//! Claims: an agent is the only owner of its tunnel devices, pod networks and pins.
//!
//! A claim is a listening Unix socket in the abstract namespace
//! ([unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)), named after the object. The
//! kernel keeps those names per network namespace, as it does devices, routes and firewall rules,
//! so a claim reaches agents in other containers, whose processes and state directories cannot be
//! seen. The name is free as soon as the process has ended, however it ended. A client that
//! connects gets the name of the owner.
//!
//! Agents of other network namespaces may share a BPF filesystem, and not one of those names. So a
//! claim of a pin root is a lock on its directory as well (`pin_lock`).
//!
//! Abstract names have no permissions. A name that a process of another user has is not an agent's,
//! and does not keep this agent from starting.

mod holder;
mod listing;
mod pin_lock;
pub mod state_dir;

use std::{
    fs::File,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::MetadataExt as _,
            net::{SocketAddr, UnixStream as StdStream},
        },
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use flannel_host::networks::overlap;
use ipnet::IpNet;
use nix::fcntl::Flock;
use thiserror::Error;
use tokio::{
    io::AsyncWriteExt as _,
    net::UnixListener,
    task::JoinHandle,
    time::{Instant, sleep},
};

use self::{holder::NameHolder, listing::PREFIX, pin_lock::PinLockError};
pub use self::{
    holder::{Claimant, Identity},
    listing::networks_of_others,
};

/// The time for which claims of another agent are waited for: one that was stopped, as by an
/// upgrade, has ended by then.
const HANDOVER: Duration = Duration::from_secs(3);
/// Between two tries.
const PERIOD: Duration = Duration::from_millis(50);
/// Between two tries to accept, while this process has too many descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// An object of which an agent is the only owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A tunnel device, by its name. With a vxlan device that is the VNI.
    Device(String),
    /// A pod network.
    Network(IpNet),
    /// A pin root.
    Pins {
        /// Its path here.
        path: String,
        /// Its directory on its filesystem, which is the same in each mount namespace.
        place: String,
    },
}

impl Claim {
    /// The claim of a pin root. It may not exist yet, and a filesystem may be mounted on it later;
    /// the directory in which it lies stays.
    pub fn pins(root: &Path) -> Self {
        let parent = root.parent().and_then(|parent| parent.metadata().ok());
        let name = root.file_name().unwrap_or_default().to_string_lossy();
        let path = root.display().to_string();
        let place = parent.map_or_else(
            || path.clone(),
            |dir| format!("{}:{}/{name}", dir.dev(), dir.ino()),
        );
        Self::Pins { path, place }
    }

    /// Returns true if no process has it.
    pub fn is_free(&self) -> bool {
        let connected = SocketAddr::from_abstract_name(self.name())
            .and_then(|name| StdStream::connect_addr(&name));
        let is_locked = self
            .pin_root()
            .is_some_and(|root| pin_lock::holder(root).is_some());
        !is_locked && connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    const fn network(&self) -> Option<IpNet> {
        match self {
            Self::Network(network) => Some(*network),
            Self::Device(_) | Self::Pins { .. } => None,
        }
    }

    fn pin_root(&self) -> Option<&Path> {
        match self {
            Self::Pins { path, .. } => Some(Path::new(path)),
            Self::Device(_) | Self::Network(_) => None,
        }
    }

    /// The name of its socket.
    fn name(&self) -> String {
        match self {
            Self::Device(name) => format!("{PREFIX}device/{name}"),
            Self::Network(network) => format!("{}{network}", listing::NETWORKS),
            Self::Pins { place, .. } => format!("{PREFIX}pins/{place}"),
        }
    }
}

/// An object that another agent owns.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "another agent runs here: {owner}. It owns {object}; stop it, or give this agent another \
     {remedy}"
)]
pub struct Taken {
    owner: Claimant,
    object: String,
    remedy: &'static str,
}

impl Taken {
    fn new(owner: Claimant, claim: &Claim) -> Self {
        let (object, remedy) = match claim {
            Claim::Device(name) => (
                format!("the tunnel device {name}"),
                "network, with another VNI (Backend.VNI of its configuration)",
            ),
            Claim::Network(network) => (format!("the pod network {network}"), "pod network"),
            Claim::Pins { path, .. } => (format!("the pins below {path}"), "--bpf-pin-root"),
        };
        Self {
            owner,
            object,
            remedy,
        }
    }
}

/// Claims that this process holds, until it ends or drops them.
#[derive(Debug, Default)]
pub struct Claims {
    answering: Vec<JoinHandle<()>>,
    _locks: Vec<Flock<File>>,
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.answering.iter().for_each(JoinHandle::abort);
    }
}

impl Claims {
    /// Takes all of them, or says who has one. An agent that is about to end has a moment for it;
    /// `waiting` is called with the reason when that begins.
    pub async fn take(
        identity: &Identity,
        claims: &[Claim],
        mut waiting: impl FnMut(&Taken),
    ) -> Result<Self, Taken> {
        let deadline = Instant::now() + HANDOVER;
        let mut is_waiting = false;
        loop {
            let taken = match Held::try_take(identity, claims).await {
                Ok(held) => return Ok(Self::serve(identity, held)),
                Err(taken) => taken,
            };
            if Instant::now() >= deadline {
                return Err(taken);
            }
            if !std::mem::replace(&mut is_waiting, true) {
                waiting(&taken);
            }
            sleep(PERIOD).await;
        }
    }

    fn serve(identity: &Identity, Held { sockets, locks }: Held) -> Self {
        let answer: Arc<str> = identity.answer().into();
        let serve = |socket| tokio::spawn(serve(socket, Arc::clone(&answer)));
        Self {
            answering: sockets.into_iter().map(serve).collect(),
            _locks: locks,
        }
    }
}

/// The claims of a process that does not answer for them yet.
#[derive(Debug, Default)]
struct Held {
    sockets: Vec<UnixListener>,
    locks: Vec<Flock<File>>,
}

impl Held {
    /// Takes all claims, or none.
    async fn try_take(identity: &Identity, claims: &[Claim]) -> Result<Self, Taken> {
        let mut held = Self::default();
        for claim in claims {
            held.sockets.extend(take_name(claim).await?);
            if let Some(root) = claim.pin_root() {
                held.locks.extend(lock(claim, root, identity)?);
            }
        }
        // Both agents have bound their sockets before they look, so that of two one sees the other.
        for claim in claims {
            if let Some(network) = claim.network()
                && let Some(owner) = overlapping(network, claims).await
            {
                return Err(Taken::new(owner, claim));
            }
        }
        Ok(held)
    }
}

/// Binds the socket of a claim. `None` where that is not possible and no agent has it.
async fn take_name(claim: &Claim) -> Result<Option<UnixListener>, Taken> {
    let refused = match bind(&claim.name()) {
        Ok(socket) => return Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => holder::of(&claim.name()).await,
        Err(error) => {
            warn_unclaimed(claim, &error);
            return Ok(None);
        }
    };
    match refused {
        Some(NameHolder::Agent(owner)) => Err(Taken::new(owner, claim)),
        Some(NameHolder::Stranger(user)) => {
            tracing::warn!(
                socket = claim.name(),
                "a process of user {user} has the name by which agents know of each other; a \
                 second agent would not be noticed"
            );
            Ok(None)
        }
        // It ended between the two: the next try gets the name.
        None => Ok(bind(&claim.name())
            .inspect_err(|error| warn_unclaimed(claim, error))
            .ok()),
    }
}

/// Locks a pin root. `None` where that is not possible and no agent has it.
fn lock(claim: &Claim, root: &Path, identity: &Identity) -> Result<Option<Flock<File>>, Taken> {
    match pin_lock::take(root, identity) {
        Ok(lock) => Ok(lock),
        Err(PinLockError::Held(owner)) => Err(Taken::new(owner, claim)),
        // Pins that this agent may not open are not in danger from it.
        Err(PinLockError::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(PinLockError::Io(error)) => {
            warn_unclaimed(claim, &error);
            Ok(None)
        }
    }
}

/// Returns the agent of any network namespace that has this pin root.
pub fn owner_of_pins(root: &Path) -> Option<Claimant> {
    pin_lock::holder(root)
}

/// The network of an agent is worth more than the knowledge of a second one.
fn warn_unclaimed(claim: &Claim, error: &io::Error) {
    tracing::warn!(%error, socket = claim.name(), "cannot claim what this agent owns; a second \
        agent would not be noticed");
}

/// The agent with another pod network that has addresses of this one.
async fn overlapping(network: IpNet, claims: &[Claim]) -> Option<Claimant> {
    let own: Vec<IpNet> = claims.iter().filter_map(Claim::network).collect();
    for other in networks_of_others(&own).ok()? {
        if overlap(other, network)
            && let Some(NameHolder::Agent(owner)) = holder::of(&Claim::Network(other).name()).await
        {
            return Some(owner);
        }
    }
    None
}

fn bind(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind(format!("\0{name}"))
}

/// The agents that run in this network namespace, each once for every object it owns.
pub async fn agents() -> io::Result<Vec<Claimant>> {
    let mut agents = Vec::new();
    for name in listing::names()? {
        if let Some(NameHolder::Agent(agent)) = holder::of(&name).await {
            agents.push(agent);
        }
    }
    Ok(agents)
}

/// Answers every client with the name of the owner. The answer fits into the socket's buffer, so no
/// client is waited for.
async fn serve(socket: UnixListener, answer: Arc<str>) {
    loop {
        match socket.accept().await {
            Ok((mut client, _)) => {
                if let Err(error) = client.write_all(answer.as_bytes()).await {
                    tracing::debug!(%error, "a client that asked for the owner went away");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept on the socket of a claim");
                sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
