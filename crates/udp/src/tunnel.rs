//! The life of the process: it takes over from its predecessor, or begins.

use std::{net::SocketAddrV4, sync::Arc};

use nix::net::if_::if_nametoindex;

use crate::{
    control::{Listener, Server},
    counts::{Counters, Counts},
    datapath::{Datapath, Parts},
    error::TunnelError,
    options::TunnelOptions,
    socket,
    table::{PeerTable, SharedTable},
    takeover::Handover,
    tun,
};

/// Carries packets until the process is to end.
pub fn run(options: TunnelOptions) -> Result<(), TunnelError> {
    let failed = |error| TunnelError::Control {
        path: options.control.clone(),
        error,
    };
    let listener = Listener::open(&options.control).map_err(failed)?;
    let started = begin(&options).inspect_err(|_| listener.abandon())?;
    let listener = listener.publish(&options.control).map_err(failed)?;
    let (parts, datapath) = started;
    Server {
        options,
        parts,
        datapath: Some(datapath),
    }
    .serve(&listener)
}

/// Starts the datapath. A predecessor ends only once that is done.
fn begin(options: &TunnelOptions) -> Result<(Parts, Datapath), TunnelError> {
    let failed = |error| TunnelError::Control {
        path: options.control.clone(),
        error,
    };
    let mut former = Handover::ask(&options.control).map_err(failed)?;
    let parts = parts(options, former.as_ref())?;
    let broken = |error| TunnelError::Broken {
        what: "the device",
        error,
    };
    let datapath = Datapath::start(&parts).map_err(broken)?;
    if let Some(former) = &mut former
        && let Err(error) = former.confirm()
    {
        // It goes on itself.
        datapath.stop()?;
        return Err(failed(error));
    }
    Ok((parts, datapath))
}

fn parts(options: &TunnelOptions, former: Option<&Handover>) -> Result<Parts, TunnelError> {
    let TunnelOptions {
        device,
        network,
        source,
        port,
        ..
    } = options;
    let name = device;
    let clone = |error| TunnelError::device(name, error);
    // A device that was made again has another index; the former process has the one that is gone.
    let is_same = |former: &&Handover| if_nametoindex(name.as_str()) == Ok(former.state.index);
    let device = match former.filter(is_same) {
        Some(former) => former.device.try_clone().map_err(clone)?,
        None => tun::open(name)?,
    };
    let index = if_nametoindex(name.as_str()).map_err(|error| clone(error.into()))?;
    let same = |former: &&Handover| former.state.source == *source && former.state.port == *port;
    let socket = match former.filter(same) {
        Some(former) => former.socket.try_clone().map_err(clone)?,
        None => socket::bind(SocketAddrV4::new(*source, *port))?,
    };
    let table = PeerTable::new(*network);
    let (table, counts) = match former {
        Some(former) => (
            table.changed(former.peers.own, &former.peers.peers, &[]),
            former.state.counts,
        ),
        None => (table, Counts::default()),
    };
    Ok(Parts {
        index,
        device: Arc::new(device),
        socket: Arc::new(socket),
        table: SharedTable::new(table),
        counters: Counters::from(counts),
        port: *port,
    })
}
