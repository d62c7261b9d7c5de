//! UDP messages there and back that a test leads step by step.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Host, harness::wait::patient};

/// Both ends.
#[derive(Debug)]
pub struct Datagrams {
    /// The end that asks.
    pub client: UdpSocket,
    /// The end that answers every sender.
    pub server: UdpSocket,
    /// The number of the message under way.
    message: u32,
}

impl Datagrams {
    /// From a host to the address `at` of another; `to` is where the client sends instead, such as
    /// a Service.
    pub fn open(from: &Host, host: &Host, at: SocketAddr, to: Option<SocketAddr>) -> Result<Self> {
        let server = server(host, at)?;
        let to = to.map_or_else(|| server.local_addr(), Ok)?;
        let any: IpAddr = if to.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let client = from.enter(|| -> Result<UdpSocket> {
            let client = UdpSocket::bind((any, 0))?;
            client.connect(to).with_context(|| to.to_string())?;
            Ok(client)
        })??;
        client.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
        Ok(Self {
            client,
            server,
            message: 0,
        })
    }

    /// Messages there and back, one after the other. What a failed exchange left on its way is
    /// passed over by the next.
    pub fn exchange(&mut self, messages: u32) -> Result<()> {
        for _ in 0..messages {
            self.message += 1;
            self.client.send(&self.message.to_be_bytes())?;
            let asker = self.receive(&self.server).context("on the way there")?;
            self.server.send_to(&self.message.to_be_bytes(), asker)?;
            self.receive(&self.client).context("on the way back")?;
        }
        Ok(())
    }

    /// Waits for the message under way; who sent it.
    fn receive(&self, end: &UdpSocket) -> Result<SocketAddr> {
        let mut message = [0; 4];
        loop {
            let (_, from) = end.recv_from(&mut message)?;
            match u32::from_be_bytes(message) {
                read if read == self.message => return Ok(from),
                read => ensure!(read < self.message, "message {read} before it was sent"),
            }
        }
    }
}

/// A socket that is asked at `at` of a host.
pub fn server(host: &Host, at: SocketAddr) -> Result<UdpSocket> {
    let server = host.bound(at, UdpSocket::bind)?;
    server.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
    Ok(server)
}
