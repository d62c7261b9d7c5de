//! UDP messages there and back that a test leads step by step.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{Host, wait::patient};

/// Both ends.
#[derive(Debug)]
pub struct Datagrams {
    /// The end that asks.
    pub client: UdpSocket,
    /// The end that answers whoever asks.
    pub server: UdpSocket,
}

impl Datagrams {
    /// From a host to the address `at` of another; `to` is where the client sends instead, such as a Service.
    pub fn open(from: &Host, host: &Host, at: SocketAddr, to: Option<SocketAddr>) -> Result<Self> {
        let server = server(host, at)?;
        let to = to.map_or_else(|| server.local_addr(), Ok)?;
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let client = from.enter(|| -> Result<UdpSocket> {
            let client = UdpSocket::bind((any, 0))?;
            client.connect(to).with_context(|| to.to_string())?;
            Ok(client)
        })??;
        client.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
        Ok(Self { client, server })
    }

    /// Messages there and back, one after the other.
    pub fn exchange(&mut self, messages: u32) -> Result<()> {
        let mut message = [0; 4];
        for number in 0..messages {
            self.client.send(&number.to_be_bytes())?;
            let (_, from) = self.server.recv_from(&mut message).context("on the way there")?;
            self.server.send_to(&message, from)?;
            self.client.recv(&mut message).context("on the way back")?;
            ensure!(u32::from_be_bytes(message) == number, "another message came back");
        }
        Ok(())
    }
}

/// A socket that is asked at `at` of a host.
pub fn server(host: &Host, at: SocketAddr) -> Result<UdpSocket> {
    let server = host.enter(|| UdpSocket::bind(at))?.with_context(|| at.to_string())?;
    server.set_read_timeout(Some(patient(Duration::from_millis(500))))?;
    Ok(server)
}
