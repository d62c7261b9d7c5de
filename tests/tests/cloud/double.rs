//! A server on a socket of a node, which answers as a cloud does: the HTTP of the doubles.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::Node;
use nix::sys::socket::{Shutdown, shutdown};

/// A request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// The path without the query.
    pub(crate) path: String,
    pub(crate) query: String,
    /// The headers, with names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// The status and the body of an answer.
pub(crate) type Answered = (u16, String);

/// A server. It ends with this value.
pub(crate) struct Double {
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Double {
    /// Starts it on a port of a node's loopback.
    pub(crate) fn start(
        node: &Node,
        port: u16,
        answer: impl Fn(&Received) -> Answered + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = node.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)))??;
        let accepting = listener.try_clone()?;
        let answer = Arc::new(answer);
        let serve = move || {
            while let Ok((stream, _)) = accepting.accept() {
                // A client that goes away early has its own reasons.
                drop(exchange(stream, &*answer));
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("double-{port}"))
            .spawn(serve)?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        // It ends the accept of the thread.
        let _ended = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn exchange(mut stream: TcpStream, answer: &dyn Fn(&Received) -> Answered) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = receive(&mut stream)?;
    let (status, body) = answer(&request);
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Double\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    Ok(())
}

fn receive(stream: &mut TcpStream) -> Result<Received> {
    let mut text = Vec::new();
    loop {
        let mut part = [0; 4096];
        let length = stream.read(&mut part)?;
        ensure!(length > 0, "half a request");
        text.extend_from_slice(&part[..length]);
        let so_far = str::from_utf8(&text)?;
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else {
            continue;
        };
        let request = parse(head)?;
        let size = request
            .headers
            .get("content-length")
            .map_or(Ok(0), |size| size.parse())?;
        if body.len() >= size {
            return Ok(Received {
                body: body.to_owned(),
                ..request
            });
        }
    }
}

fn parse(head: &str) -> Result<Received> {
    let mut lines = head.lines();
    let mut first = lines.next().context("a request line")?.split(' ');
    let (method, target) = first
        .next()
        .zip(first.next())
        .context("a method and a path")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |line: &str| {
        line.split_once(':')
            .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
    };
    Ok(Received {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: lines.filter_map(header).collect(),
        body: String::new(),
    })
}
