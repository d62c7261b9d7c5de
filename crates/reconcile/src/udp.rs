//! The process of the backend udp: it is there and has our settings, and its peers are those that
//! the plane wants.

use std::{net::Ipv4Addr, path::PathBuf, time::Instant};

use flannel_backends::{
    Node, UdpSpec,
    udp::{Backoff, Process, SharedUdpStatus, UdpError, fits},
};
use flannel_host::error_chain::chain;
use flannel_status::Dirty;
use flannel_udp::{Peers, Reply, Request, State, TunnelOptions};
use ipnet::{IpNet, Ipv4Net};

use super::{device::Device, tracker::Tracker};

/// The process, and its peers.
pub(super) struct UdpTunnel {
    process: Option<Process>,
    shared: SharedUdpStatus,
    backoff: Backoff,
    /// The process id of the one whose peers are known.
    known: Option<u32>,
    own: Option<Ipv4Net>,
    peers: Tracker<Ipv4Net, Ipv4Addr>,
}

impl UdpTunnel {
    /// With the path of the control socket; without it for a node whose backend is another.
    pub(super) fn new(control: Option<PathBuf>, shared: SharedUdpStatus) -> Self {
        let process = control.map(Process::new);
        let (backoff, peers) = (Backoff::default(), Tracker::default());
        Self {
            process,
            shared,
            backoff,
            known: None,
            own: None,
            peers,
        }
    }

    /// Sees to it that there is a process for this device, and reads its peers if they are not
    /// known.
    pub(super) async fn prepare(
        &mut self,
        device: &Device,
        spec: &UdpSpec,
        node: &Node,
        read_back: bool,
    ) -> Result<(), UdpError> {
        let (Some(process), IpNet::V4(network), IpNet::V4(own)) =
            (&self.process, node.network.prefix, node.subnet)
        else {
            return Ok(());
        };
        let UdpSpec { source, port, .. } = *spec;
        let control = process.control().to_owned();
        let options = TunnelOptions {
            control: control.clone(),
            device: device.name.clone(),
            network,
            source,
            port,
        };
        let state = self
            .ensure(&options, device.index)
            .await
            .inspect_err(|error| {
                self.known = None;
                self.shared.fail(&control, chain(error));
            })?;
        if read_back || self.known != Some(state.pid) {
            self.read_peers(own).await?;
            self.known = Some(state.pid);
        }
        Ok(())
    }

    /// Adopts the running process if it fits. Otherwise starts a process, which takes over from the
    /// running one.
    async fn ensure(&mut self, options: &TunnelOptions, index: u32) -> Result<State, UdpError> {
        let Some(process) = self.process.clone() else {
            return Err(UdpError::NotStarted {
                problem: String::new(),
            });
        };
        let control = process.control();
        let now = Instant::now();
        match process.state().await {
            Ok(state) if fits(&state, options, index) => {
                self.shared.set(control, &state, false);
                return Ok(state);
            }
            Ok(state) => tracing::info!(
                pid = state.pid,
                build = state.build,
                "replacing the tunnel process"
            ),
            Err(error) if self.known.take().is_some() => {
                tracing::warn!(
                    error = chain(&error),
                    "the tunnel process is gone; it is started again"
                );
                self.backoff.ended(chain(&error), now);
            }
            Err(_) => {}
        }
        if let Some((wait, problem)) = self.backoff.waiting(now) {
            return Err(UdpError::Waiting { wait, problem });
        }
        match process.start(options).await {
            Ok(state) => {
                tracing::info!(
                    pid = state.pid,
                    device = state.device,
                    port = state.port,
                    "started the tunnel process"
                );
                self.backoff.started(Instant::now());
                self.shared.set(control, &state, true);
                Ok(state)
            }
            Err(error) => {
                self.backoff.failed(chain(&error), Instant::now());
                Err(error)
            }
        }
    }

    async fn read_peers(&mut self, own: Ipv4Net) -> Result<(), UdpError> {
        let Some(process) = &self.process else {
            return Ok(());
        };
        let Peers { own: known, peers } = match process.ask(Request::Peers).await? {
            Reply::Peers(peers) => peers,
            other => {
                return Err(UdpError::Unexpected {
                    reply: format!("{other:?}"),
                });
            }
        };
        self.peers.found(peers);
        if known != Some(own) {
            process
                .ask(Request::Change {
                    own: Some(own),
                    upserts: [].into(),
                    removals: Vec::new(),
                })
                .await?;
        }
        self.own = Some(own);
        Ok(())
    }

    /// Access to the peers that the plane wants.
    pub(super) const fn peers_mut(&mut self) -> &mut Tracker<Ipv4Net, Ipv4Addr> {
        &mut self.peers
    }

    /// Makes the peers of the process as they are wanted, and with `sweep` removes those that are
    /// not wanted, by one request.
    pub(super) async fn apply(&mut self, sweep: bool) {
        let Some(process) = self.process.as_ref().filter(|_| self.known.is_some()) else {
            return;
        };
        let now = Instant::now();
        let pending = self.peers.pending(now, sweep);
        if pending.upserts.is_empty() && pending.deletes.is_empty() {
            return;
        }
        let removals: Vec<_> = pending.deletes.iter().map(|(subnet, _)| *subnet).collect();
        let upserts = pending.upserts.iter().copied().collect();
        let request = Request::Change {
            own: self.own,
            upserts,
            removals: removals.clone(),
        };
        match process.ask(request).await {
            Ok(_) => {
                for (subnet, node) in pending.upserts {
                    self.peers.made(&subnet, node);
                }
                for subnet in &removals {
                    self.peers.removed(subnet);
                }
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(
                    error,
                    "the tunnel process does not take its peers; tried again"
                );
                for subnet in pending
                    .upserts
                    .iter()
                    .map(|(subnet, _)| subnet)
                    .chain(&removals)
                {
                    self.peers.failed(subnet, error.clone(), now);
                }
            }
        }
    }

    /// Returns the peers that the process did not take.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.peers.failures().map(|(subnet, failure)| {
            failure.to_dirty(format!("peer {subnet} of the tunnel process"))
        })
    }

    /// When something that failed is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.peers.next_retry()
    }
}
