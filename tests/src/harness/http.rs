//! One HTTP request inside a host.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::Host;

impl Host {
    /// `GET` of a path at a port of this host's loopback: the status code and the body.
    pub fn http_get(&self, port: u16, path: &str) -> Result<(u16, String)> {
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        self.http(port, &request, Duration::from_secs(2))
    }

    /// Sends a request of HTTP 1.0 to a port of this host's loopback, and waits this long for each
    /// part of the answer: the status code and the body.
    pub fn http(&self, port: u16, request: &str, limit: Duration) -> Result<(u16, String)> {
        let answer = self.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })??;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .with_context(|| format!("no head in {answer:?}"))?;
        let code = head
            .split(' ')
            .nth(1)
            .with_context(|| format!("no status in {head:?}"))?;
        Ok((code.parse()?, body.to_owned()))
    }
}
