//! The task that keeps the process, its keys and its connections: what is wanted, what charon says
//! there is, and the difference.
//!
//! A round is due when the leases change, and every few seconds, because charon announces neither
//! its end nor a change. Everything is loaded once into a process that this task does not know yet:
//! a former agent may have loaded other settings, and charon leaves equal ones as they are. Nothing
//! is removed before the store has shown everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use flannel_host::error_chain::chain;
use flannel_netlink::Netlink;
use flannel_status::{IpsecPeerState, IpsecStatus};
use ipnet::Ipv4Net;
use tokio::{
    process::Child,
    sync::mpsc,
    task::JoinSet,
    time::{sleep, sleep_until},
};

use super::{
    IpsecError, IpsecSetup,
    associations::Associations,
    charon,
    configuration::CharonFiles,
    names::{self, IpsecEnd},
    vici::{IkeSa, Vici, no_answer},
};
use crate::udp::Backoff;

/// Between two looks at the process.
const LOOK: Duration = Duration::from_secs(5);
/// Between two attempts to agree with a peer. Loading a connection is the first.
const ATTEMPT: Duration = Duration::from_secs(30);
/// The first attempt has failed if the kernel has no associations after this time.
const FIRST: Duration = Duration::from_secs(4);
/// Attempts at once.
const AT_ONCE: usize = 8;
/// For changes of the leases that come together.
const TOGETHER: Duration = Duration::from_millis(50);

/// A message of the main loop.
#[derive(Debug)]
pub(super) struct IpsecRequest {
    /// This node.
    pub(super) own: Option<IpsecEnd>,
    /// Peers that are not named are gone.
    pub(super) all: bool,
    pub(super) peers: BTreeMap<Ipv4Net, Option<Ipv4Addr>>,
    /// True once the store has shown everything.
    pub(super) in_sync: bool,
}

/// The state of the task.
pub(super) struct IpsecWorker {
    setup: IpsecSetup,
    netlink: Netlink,
    files: CharonFiles,
    /// True once the kernel was seen to have ESP.
    has_esp: bool,
    own: Option<IpsecEnd>,
    peers: BTreeMap<Ipv4Net, Ipv4Addr>,
    in_sync: bool,
    status: IpsecStatus,
    /// The process, if this task started it.
    child: Option<Child>,
    backoff: Backoff,
    /// Loaded into the process of `status.pid` by this task.
    keys: BTreeSet<String>,
    connections: BTreeSet<String>,
    tunnels: BTreeMap<Ipv4Net, Attempts>,
    attempts: JoinSet<(Ipv4Net, Result<(), String>)>,
}

/// The attempts to agree with a peer.
struct Attempts {
    next: Instant,
    error: Option<String>,
}

impl Attempts {
    fn new() -> Self {
        Self {
            next: Instant::now() + FIRST,
            error: None,
        }
    }
}

impl IpsecWorker {
    /// Creates the task's state, without knowledge about the process.
    pub(super) fn new(setup: IpsecSetup, netlink: Netlink, files: CharonFiles) -> Self {
        let status = IpsecStatus {
            udp_encap: setup.config.udp_encap,
            ..IpsecStatus::default()
        };
        setup.shared.set_process(status.clone());
        Self {
            setup,
            netlink,
            files,
            has_esp: false,
            own: None,
            peers: BTreeMap::new(),
            in_sync: false,
            status,
            child: None,
            backoff: Backoff::default(),
            keys: BTreeSet::new(),
            connections: BTreeSet::new(),
            tunnels: BTreeMap::new(),
            attempts: JoinSet::new(),
        }
    }

    /// Runs until the main loop is gone.
    pub(super) async fn run(mut self, mut requests: mpsc::UnboundedReceiver<IpsecRequest>) {
        loop {
            let result = self.round().await;
            self.report(result.err().as_ref());
            let due = Instant::now() + LOOK;
            tokio::select! {
                request = requests.recv() => {
                    let Some(request) = request else { return };
                    self.take(request);
                    sleep(TOGETHER).await;
                    while let Ok(request) = requests.try_recv() {
                        self.take(request);
                    }
                }
                Some(ended) = self.attempts.join_next() => self.ended(ended.ok()),
                () = sleep_until(due.into()) => {}
            }
        }
    }

    fn take(
        &mut self,
        IpsecRequest {
            own,
            all,
            peers,
            in_sync,
        }: IpsecRequest,
    ) {
        (self.own, self.in_sync) = (own, in_sync);
        if all {
            self.peers.retain(|subnet, _| peers.contains_key(subnet));
        }
        for (subnet, address) in peers {
            let before = match address {
                Some(address) => self.peers.insert(subnet, address),
                None => self.peers.remove(&subnet),
            };
            if before != address {
                self.tunnels.remove(&subnet);
            }
        }
        self.tunnels
            .retain(|subnet, _| self.peers.contains_key(subnet));
    }

    fn ends(&self) -> Vec<IpsecEnd> {
        self.peers
            .iter()
            .map(|(subnet, address)| IpsecEnd {
                subnet: *subnet,
                address: *address,
            })
            .collect()
    }

    /// Reconciles the process, its keys and its connections with the leases, and reads the
    /// associations.
    async fn round(&mut self) -> Result<(), IpsecError> {
        self.check_kernel().await;
        self.ensure().await?;
        let Some(own) = self.own else { return Ok(()) };
        let mut vici = Vici::connect(&self.files.socket).await?;
        self.sync_keys(&mut vici, own).await?;
        self.sync_connections(&mut vici, own).await?;
        let associations = vici.associations().await?;
        let waiting = self.read(own, &associations);
        self.attempt(own, waiting);
        Ok(())
    }

    /// Without ESP nodes know each other and no packet passes.
    async fn check_kernel(&mut self) {
        if self.has_esp {
            return;
        }
        let result = self.netlink.check_esp().await;
        self.has_esp = result.is_ok();
        let before = self.status.kernel.take();
        self.status.kernel = result
            .err()
            .map(|error| format!("{}; it needs the module esp4", chain(&error)));
        if let Some(reason) = &self.status.kernel
            && before.is_none()
        {
            tracing::warn!(
                reason,
                "the kernel makes no IPsec associations: packets to peers are dropped"
            );
        }
    }

    /// Adopts a running process, or starts one.
    async fn ensure(&mut self) -> Result<(), IpsecError> {
        if let Some(pid) = charon::pid_at(&self.files.socket)? {
            self.adopt(pid);
            return Ok(());
        }
        let now = Instant::now();
        if self.status.pid.take().is_some() {
            let status = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            let problem = status.map_or_else(
                || "it ended".to_owned(),
                |status| format!("it ended with {status}"),
            );
            tracing::warn!(problem, "charon is gone; it is started again");
            self.backoff.ended(problem, now);
        }
        if let Some((wait, problem)) = self.backoff.waiting(now) {
            return Err(IpsecError::Waiting { wait, problem });
        }
        match charon::start(&self.setup.program, &self.files).await {
            Ok((child, pid)) => {
                tracing::info!(pid, program = %self.setup.program.display(), "started charon");
                self.backoff.started(Instant::now());
                (self.child, self.status.starts) = (Some(child), self.status.starts + 1);
                self.adopt(pid);
                Ok(())
            }
            Err(error) => {
                self.backoff.failed(chain(&error), Instant::now());
                Err(error)
            }
        }
    }

    /// Records the process. If it is a new one, its keys and connections are unknown.
    fn adopt(&mut self, pid: u32) {
        if self.status.pid.replace(pid) != Some(pid) {
            self.keys.clear();
            self.connections.clear();
            self.tunnels.clear();
        }
    }

    /// The secret is loaded for this node and for each peer, as flannel loads it.
    async fn sync_keys(&mut self, vici: &mut Vici, own: IpsecEnd) -> Result<(), IpsecError> {
        let addresses = self.peers.values().copied().chain([own.address]);
        let wanted: BTreeMap<String, Ipv4Addr> = addresses
            .map(|address| (names::shared_key(address), address))
            .collect();
        let there = vici.keys().await?;
        self.keys.retain(|name| there.contains(name));
        for (name, address) in &wanted {
            if !self.keys.contains(name) {
                vici.load_key(*address, &self.setup.config).await?;
                self.keys.insert(name.clone());
            }
        }
        if self.in_sync {
            for name in there.iter().filter(|name| !wanted.contains_key(*name)) {
                vici.unload_key(name).await?;
                self.keys.remove(name);
            }
        }
        Ok(())
    }

    /// A connection that charon refuses holds up no other.
    async fn sync_connections(&mut self, vici: &mut Vici, own: IpsecEnd) -> Result<(), IpsecError> {
        let wanted: BTreeMap<String, IpsecEnd> = self
            .ends()
            .into_iter()
            .map(|peer| (names::connection(own, peer), peer))
            .collect();
        let there = vici.connections().await?;
        self.connections.retain(|name| there.contains(name));
        if self.in_sync {
            for name in there.iter().filter(|name| !wanted.contains_key(*name)) {
                vici.unload_connection(name).await?;
                self.connections.remove(name);
                tracing::info!(connection = name, "removed a connection that has no lease");
            }
        }
        for (name, peer) in wanted {
            if self.connections.contains(&name) {
                continue;
            }
            let attempts = self
                .tunnels
                .entry(peer.subnet)
                .or_insert_with(Attempts::new);
            match vici.load_connection(own, peer, &self.setup.config).await {
                Ok(()) => {
                    *attempts = Attempts::new();
                    self.connections.insert(name);
                }
                Err(error) => attempts.error = Some(chain(&error)),
            }
        }
        Ok(())
    }

    /// Takes in the associations. Returns the peers that need an attempt.
    fn read(&mut self, own: IpsecEnd, associations: &[IkeSa]) -> Vec<IpsecEnd> {
        let associations = Associations::of(associations);
        let (mut peers, mut waiting) = (BTreeMap::new(), Vec::new());
        for peer in self.ends() {
            let mut status = associations.status(own, peer, SystemTime::now());
            let attempts = self
                .tunnels
                .entry(peer.subnet)
                .or_insert_with(Attempts::new);
            if status.state == IpsecPeerState::Installed {
                attempts.error = None;
            } else {
                let is_late =
                    attempts.next <= Instant::now() && status.state == IpsecPeerState::Connecting;
                status.error = attempts
                    .error
                    .clone()
                    .or_else(|| is_late.then(|| no_answer(peer.address)));
            }
            waiting.extend(status.state.needs_attempt().then_some(peer));
            peers.insert(peer.subnet, status);
        }
        self.setup.shared.set_peers(peers);
        waiting
    }

    /// Tries again to agree with peers without associations. While charon itself is at it, it is
    /// left to that.
    fn attempt(&mut self, own: IpsecEnd, waiting: Vec<IpsecEnd>) {
        let now = Instant::now();
        for peer in waiting {
            let Some(attempts) = self.tunnels.get_mut(&peer.subnet) else {
                continue;
            };
            let is_loaded = self.connections.contains(&names::connection(own, peer));
            if !is_loaded || attempts.next > now || self.attempts.len() >= AT_ONCE {
                continue;
            }
            attempts.next = now + ATTEMPT;
            self.attempts
                .spawn(initiate(self.files.socket.clone(), own, peer));
        }
    }

    fn ended(&mut self, result: Option<(Ipv4Net, Result<(), String>)>) {
        let Some((subnet, result)) = result else {
            return;
        };
        let Some(attempts) = self.tunnels.get_mut(&subnet) else {
            return;
        };
        let error = result.err();
        if error.is_some() && attempts.error != error {
            tracing::warn!(%subnet, error, "no IPsec associations with a peer; tried again");
        }
        attempts.error = error;
    }

    /// Writes down the outcome of a round.
    fn report(&mut self, error: Option<&IpsecError>) {
        let is_waiting = matches!(error, Some(IpsecError::Waiting { .. }));
        let error = error.map(|error| chain(error));
        if error.is_some() && self.status.error.is_none() && !is_waiting {
            tracing::warn!(error, "the backend ipsec cannot agree on keys; tried again");
        }
        self.status.error = error;
        self.setup.shared.set_process(self.status.clone());
    }
}

async fn initiate(socket: PathBuf, own: IpsecEnd, peer: IpsecEnd) -> (Ipv4Net, Result<(), String>) {
    let result = match Vici::connect(&socket).await {
        Ok(mut vici) => vici.initiate(own, peer).await,
        Err(error) => Err(chain(&error)),
    };
    (peer.subnet, result)
}
