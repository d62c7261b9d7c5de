//! The flows of this node for clients of Hubble: the observer's thread, which fills the ring of
//! [`flannel_hubble`] from [`flow_events`](flannel_flows::events) and adds names.
//!
//! The thread exists only with `--hubble-socket` or `--hubble-listen`. While no client reads flows
//! it waits for one: the programs report nothing, and no map is read. A minute after the last
//! client it discards the ring. Neither the main loop nor a packet waits for it, and it ends
//! nothing: what it cannot open is tried again.

mod convert;
mod observe;
mod peers;
mod reasons;

use std::{io, net::SocketAddr, time::Duration};

use flannel_datapath::PinRoot;
use flannel_host::error_chain::chain;
use flannel_hubble::{
    Demand, FlowRing, Listener, NodeFacts, ObserverService, Server, TlsFiles, peer::PeerAddresses,
};
use flannel_metrics::FlowCounts;
use flannel_names::NameResolver;
use flannel_options::FlowOptions;
use tokio::{runtime, sync::oneshot, time::sleep};

use self::observe::Observer;

/// Between two attempts to open the listeners.
const RETRY: Duration = Duration::from_secs(10);

/// The observer's thread. It ends when this is dropped.
pub(crate) struct HubbleServer {
    _stop: oneshot::Sender<()>,
}

impl HubbleServer {
    /// Starts the thread, if the options ask for it.
    pub(crate) fn start(
        options: &FlowOptions,
        pins: PinRoot,
        names: NameResolver,
        counts: FlowCounts,
    ) -> io::Result<Option<Self>> {
        let listeners = listeners(options);
        if listeners.is_empty() {
            return Ok(None);
        }
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (ring, demand) = (FlowRing::new(options.ring), Demand::default());
        let listen = options.listen.as_ref().map(|(address, _)| *address);
        let facts = Box::new(Facts {
            names: names.clone(),
            listen,
        });
        let service = ObserverService::new(
            ring.clone(),
            demand.clone(),
            facts,
            env!("CARGO_PKG_VERSION"),
        );
        let observer = Observer::new(ring, demand.subscribe(), pins, names, options.rate, counts);
        let work = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(&listeners, service) => {}
                    () = observer.run() => {}
                    _ = stopped => {}
                }
            });
            // A client that is being answered does not delay the shutdown.
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("hubble".to_owned())
            .spawn(work)?;
        Ok(Some(Self { _stop: stop }))
    }
}

fn listeners(options: &FlowOptions) -> Vec<Listener> {
    let socket = options.socket.clone().map(Listener::Unix);
    let address = options.listen.clone().map(|(address, files)| {
        let files = TlsFiles {
            certificate: files.certificate,
            key: files.key,
            client_ca: files.client_ca,
        };
        Listener::Tls(address, files)
    });
    socket.into_iter().chain(address).collect()
}

/// Opens the listeners, again until it succeeds, and answers.
async fn serve(listeners: &[Listener], service: ObserverService) {
    let mut complaint = String::new();
    loop {
        let error = match Server::open(listeners) {
            Ok(server) => {
                let addresses = server.addresses();
                tracing::info!(?listeners, ?addresses, "answering clients of Hubble");
                match server.serve(service.clone()).await {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => chain(&error),
        };
        if error != complaint {
            tracing::warn!("cannot answer clients of Hubble: {error}; tried again every 10 s");
            complaint = error;
        }
        sleep(RETRY).await;
    }
}

struct Facts {
    names: NameResolver,
    /// The address with TLS.
    listen: Option<SocketAddr>,
}

impl NodeFacts for Facts {
    fn name(&self) -> String {
        self.names.node().to_owned()
    }

    fn others(&self) -> Vec<(String, String)> {
        self.names.other_nodes()
    }

    fn peers(&self) -> Option<PeerAddresses> {
        Some(peers::addresses(
            &self.names.node_addresses(),
            self.names.node(),
            self.listen?,
        ))
    }
}

#[cfg(test)]
mod tests;
