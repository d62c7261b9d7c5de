//! The process of the backend udp: it is there and has our settings, and its peers are those that
//! the plane wants.

use std::{
    any::Any,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Instant,
};

use flannel_backend_api::{Device, DeviceError, Node, TunnelDevice, TunnelPeer, TunnelPeers};
use flannel_host::{error_chain::chain, family::Family};
use flannel_netlink::Netlink;
use flannel_status::Dirty;
use flannel_tracker::{Failure, Tracker};
use flannel_udp::{Peers, Reply, Request, State, TunnelOptions};
use futures::future::{FutureExt as _, LocalBoxFuture};
use ipnet::{IpNet, Ipv4Net};

use super::{Backoff, Process, SharedUdpStatus, UdpError, UdpSpec, fits};

/// The process, and its peers.
pub struct UdpTunnel {
    process: Process,
    shared: SharedUdpStatus,
    backoff: Backoff,
    /// The process id of the one whose peers are known.
    known: Option<u32>,
    own: Option<Ipv4Net>,
    peers: Tracker<Ipv4Net, Ipv4Addr>,
}

impl UdpTunnel {
    /// With the path of the control socket.
    pub fn new(control: PathBuf, shared: SharedUdpStatus) -> Self {
        let process = Process::new(control);
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
    async fn read_back(
        &mut self,
        device: &Device,
        spec: &UdpSpec,
        node: &Node,
        read_back: bool,
    ) -> Result<(), UdpError> {
        let (IpNet::V4(network), IpNet::V4(own)) = (node.network.prefix, node.subnet) else {
            return Ok(());
        };
        let UdpSpec { source, port, .. } = *spec;
        let control = self.process.control().to_owned();
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
        let process = self.process.clone();
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
        let process = &self.process;
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

    /// Makes the peers of the process as they are wanted, and with `sweep` removes those that are
    /// not wanted, by one request.
    async fn make(&mut self, sweep: bool) {
        if self.known.is_none() {
            return;
        }
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
        match self.process.ask(request).await {
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
}

impl TunnelPeers for UdpTunnel {
    fn prepare<'a>(
        &'a mut self,
        _netlink: &'a Netlink,
        device: &'a Device,
        wanted: &'a dyn TunnelDevice,
        node: &'a Node,
        read_back: bool,
    ) -> LocalBoxFuture<'a, Result<(), DeviceError>> {
        let wanted = (wanted as &dyn Any).downcast_ref::<UdpSpec>();
        async move {
            match wanted {
                Some(spec) => Ok(self.read_back(device, spec, node, read_back).await?),
                None => Ok(()),
            }
        }
        .boxed_local()
    }

    fn change(
        &mut self,
        _device: &str,
        before: &BTreeMap<IpNet, TunnelPeer>,
        after: &BTreeMap<IpNet, TunnelPeer>,
    ) {
        self.peers.change(&addresses(before), &addresses(after));
    }

    fn clear_desired(&mut self, _device: &str, family: Family) {
        if family == Family::V4 {
            self.peers.clear_desired();
        }
    }

    fn apply<'a>(&'a mut self, _device: &'a str, sweep: bool) -> LocalBoxFuture<'a, ()> {
        self.make(sweep).boxed_local()
    }

    fn dirty(&self) -> Vec<Dirty> {
        let named = |(subnet, failure): (&Ipv4Net, &Failure)| {
            failure.to_dirty(format!("peer {subnet} of the tunnel process"))
        };
        self.peers.failures().map(named).collect()
    }

    fn next_retry(&self) -> Option<Instant> {
        self.peers.next_retry()
    }
}

/// The nodes by subnet. The port is the same on all.
fn addresses(peers: &BTreeMap<IpNet, TunnelPeer>) -> BTreeMap<Ipv4Net, Ipv4Addr> {
    let of_v4 = |(subnet, peer): (&IpNet, &TunnelPeer)| match (subnet, peer.endpoint.ip()) {
        (IpNet::V4(subnet), IpAddr::V4(node)) => Some((*subnet, node)),
        _ => None,
    };
    peers.iter().filter_map(of_v4).collect()
}
