//! Connections between real TCP stacks: numbered messages there and back, one at a time, so that
//! each is a segment.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    ops::Range,
    os::fd::AsRawFd as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use flannel_tests::{
    differential::{
        packets::{self, Fields, Key},
        record::Record,
        scenario::{Direction, Ending, Flow, Kind, Phases, Place, Scenario},
    },
    harness::wait::patient,
    load::rr::Protocol,
    packet::pattern,
};
use nix::{
    errno::Errno,
    libc,
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
            sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
};

use super::lab::DiffLab;

/// A message that is not there by then is lost. Longer than TCP waits before it sends again.
const LOST: Duration = Duration::from_millis(600);
/// Bytes of a bulk transfer.
const BULK: usize = 2 << 20;
/// Messages of the connections from a port that was used before.
const AGAIN: u32 = 20;
/// The number of connections from a reused port that have one message each; the last one has the
/// rest.
const SHORT: u32 = 4;

/// All connections of a run.
pub(crate) struct Conversations {
    open: Vec<Conversation>,
    phases: Phases,
}

struct Conversation {
    flow: Flow,
    listener: TcpListener,
    destination: SocketAddr,
    ends: Option<[TcpStream; 2]>,
}

impl Conversations {
    pub(crate) fn open(lab: &DiffLab, scenario: &Scenario, record: &mut Record) -> Result<Self> {
        let mut open = Vec::new();
        for flow in scenario
            .flows
            .iter()
            .filter(|flow| flow.protocol() == Protocol::Tcp)
        {
            let listener = lab
                .pod(flow.to)
                .bound(lab.server(flow), TcpListener::bind)?;
            listener.set_nonblocking(true)?;
            let destination = lab.destination(scenario, flow);
            let mut conversation = Conversation {
                flow: *flow,
                listener,
                destination,
                ends: None,
            };
            record.outcomes.insert(flow.id, "ok".to_owned());
            conversation.connect(lab, record)?;
            open.push(conversation);
        }
        Ok(Self {
            open,
            phases: scenario.phases,
        })
    }

    /// The message of this number of every connection that still lives, and its answer.
    pub(crate) fn round(&mut self, number: u32, record: &mut Record) {
        for conversation in &mut self.open {
            conversation.exchange(number, self.phases, record);
        }
    }

    /// Ends the connections as they are to end.
    pub(crate) fn end(&mut self, lab: &DiffLab, last: u32, record: &mut Record) -> Result<()> {
        for conversation in &mut self.open {
            conversation.end(lab, last, self.phases, record)?;
        }
        Ok(())
    }
}

impl Conversation {
    fn connect(&mut self, lab: &DiffLab, record: &mut Record) -> Result<()> {
        let source = SocketAddr::new(
            lab.addresses.of(Place::Near, self.flow.family),
            self.flow.client_port(),
        );
        let opened = lab
            .pod(Place::Near)
            .enter(|| client(source, self.destination))??;
        let ends = opened.and_then(|client| {
            setsockopt(
                &client,
                sockopt::Linger,
                &libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                },
            )?;
            let server = accept(&self.listener)?;
            setsockopt(
                &client,
                sockopt::Linger,
                &libc::linger {
                    l_onoff: 0,
                    l_linger: 0,
                },
            )?;
            for end in [&client, &server] {
                end.set_nodelay(true)?;
                end.set_read_timeout(Some(patient(LOST)))?;
            }
            Ok([client, server])
        });
        match ends {
            Ok(ends) => self.ends = Some(ends),
            Err(error) => self.lose("opening", &error, record),
        }
        Ok(())
    }

    /// Ends the connection at both ends at once: what is closed goes on to send, into the next run
    /// too.
    fn abort(&mut self) {
        for end in self.ends.take().into_iter().flatten() {
            // It was never connected, or is no more.
            setsockopt(
                &end,
                sockopt::Linger,
                &libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                },
            )
            .ok();
        }
    }

    fn lose(&mut self, when: &str, error: &io::Error, record: &mut Record) {
        self.abort();
        let how = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "lost".to_owned(),
            _ if error.raw_os_error() == Some(libc::EINPROGRESS) => "lost".to_owned(),
            other => format!("{other:?}"),
        };
        record
            .outcomes
            .insert(self.flow.id, format!("{when}: {how}"));
    }

    fn exchange(&mut self, number: u32, phases: Phases, record: &mut Record) {
        let Some([client, server]) = &mut self.ends else {
            return;
        };
        if self.flow.kind == Kind::Bulk
            && number == phases.warm_up
            && let Err(error) = bulk(client, server)
        {
            return self.lose("bulk", &error, record);
        }
        let done = match self.flow.kind {
            Kind::Ftp => command(client, server, number, &mut record.sent).map(|seen| {
                // The addresses the client reads, and how often.
                let outcome = record.outcomes.entry(self.flow.id).or_default();
                if let Some(address) = seen.filter(|address| !outcome.contains(address.as_str())) {
                    outcome.push_str(", ");
                    outcome.push_str(&address);
                }
            }),
            _ => message(&self.flow, client, server, number, phases, record),
        };
        if let Err(error) = done {
            self.lose(
                if number < phases.warm_up {
                    "warm-up"
                } else {
                    "varying"
                },
                &error,
                record,
            );
        }
    }

    fn end(&mut self, lab: &DiffLab, last: u32, phases: Phases, record: &mut Record) -> Result<()> {
        if self.flow.kind == Kind::Ftp || self.flow.ending == Ending::Open {
            return Ok(());
        }
        let Some([client, mut server]) = self.ends.take() else {
            return Ok(());
        };
        if self.flow.ending == Ending::Reset {
            setsockopt(
                &client,
                sockopt::Linger,
                &libc::linger {
                    l_onoff: 1,
                    l_linger: 0,
                },
            )?;
            drop(client);
            return match server.read(&mut [0; 4]) {
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
                other => {
                    record
                        .outcomes
                        .insert(self.flow.id, format!("reset: {other:?}"));
                    setsockopt(
                        &server,
                        sockopt::Linger,
                        &libc::linger {
                            l_onoff: 1,
                            l_linger: 0,
                        },
                    )?;
                    Ok(())
                }
            };
        }
        self.close(client, server, record)?;
        if self.flow.ending == Ending::Reuse {
            for number in last..last + SHORT {
                self.again(lab, number..number + 1, phases, record)?;
                let Some([client, server]) = self.ends.take() else {
                    return Ok(());
                };
                self.close(client, server, record)?;
            }
            self.again(lab, last + SHORT..last + AGAIN, phases, record)?;
        }
        Ok(())
    }

    /// Exchanges these messages over a new connection, if the one before it has ended.
    fn again(
        &mut self,
        lab: &DiffLab,
        messages: Range<u32>,
        phases: Phases,
        record: &mut Record,
    ) -> Result<()> {
        if self.ends.is_none() {
            self.connect(lab, record)?;
            for number in messages {
                self.exchange(number, phases, record);
            }
        }
        Ok(())
    }

    /// Closes a connection by FIN. One that does not close stays. The side that ends first keeps
    /// the port for a while, unless it is the other one's that is used again.
    fn close(
        &mut self,
        mut client: TcpStream,
        mut server: TcpStream,
        record: &mut Record,
    ) -> Result<()> {
        let (first, second) = if self.flow.ending == Ending::Reuse {
            (&mut server, &mut client)
        } else {
            (&mut client, &mut server)
        };
        first.shutdown(std::net::Shutdown::Write)?;
        let seen = second.read(&mut [0; 4]);
        second.shutdown(std::net::Shutdown::Write).ok();
        let answered = first.read(&mut [0; 4]);
        if !matches!((&seen, &answered), (Ok(0), Ok(0))) {
            record
                .outcomes
                .insert(self.flow.id, format!("close: {seen:?} {answered:?}"));
            self.ends = Some([client, server]);
        }
        Ok(())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.abort();
    }
}

/// A connection from a given port, or why there is none.
fn client(source: SocketAddr, to: SocketAddr) -> Result<io::Result<TcpStream>> {
    let family = if source.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let client = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&client, sockopt::ReuseAddr, &true)?;
    let limit = i64::try_from(patient(2 * LOST).as_millis())?;
    setsockopt(&client, sockopt::SendTimeout, &TimeVal::milliseconds(limit))?;
    bind(client.as_raw_fd(), &SockaddrStorage::from(source)).with_context(|| source.to_string())?;
    let start = Instant::now();
    loop {
        match connect(client.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) => return Ok(Ok(client.into())),
            // The connection that had the port before waits for its last acknowledgement.
            Err(Errno::EADDRNOTAVAIL) if start.elapsed() < patient(LOST) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Ok(Err(error.into())),
        }
    }
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((server, _)) => {
                server.set_nonblocking(false)?;
                return Ok(server);
            }
            Err(error)
                if error.kind() == ErrorKind::WouldBlock && start.elapsed() < patient(LOST) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// A message and its answer.
fn message(
    flow: &Flow,
    client: &mut TcpStream,
    server: &mut TcpStream,
    number: u32,
    phases: Phases,
    record: &mut Record,
) -> io::Result<()> {
    for direction in Direction::ALL {
        let (from, to) = match direction {
            Direction::Forward => (&mut *client, &mut *server),
            Direction::Reply => (&mut *server, &mut *client),
        };
        let fields = packets::fields(flow, direction, number, phases);
        set_fields(from, &fields)?;
        let key = Key {
            flow: flow.id,
            direction,
            number,
        };
        let sent = key.payload(fields.length);
        record.sent += 1;
        from.write_all(&sent)?;
        let mut received = vec![0; sent.len()];
        to.read_exact(&mut received)?;
        if received == sent {
            record.deliver(key);
        }
    }
    Ok(())
}

fn set_fields(end: &TcpStream, fields: &Fields) -> io::Result<()> {
    let (tos, ttl) = (i32::from(fields.dscp) << 2, i32::from(fields.ttl));
    if end.local_addr()?.is_ipv4() {
        setsockopt(end, sockopt::Ipv4Tos, &tos)?;
        setsockopt(end, sockopt::Ipv4Ttl, &ttl)?;
    } else {
        setsockopt(end, sockopt::Ipv6TClass, &tos)?;
        setsockopt(end, sockopt::Ipv6Ttl, &ttl)?;
    }
    Ok(())
}

/// Bytes as fast as they go, read on the way.
fn bulk(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let all = pattern(BULK);
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let (mut written, mut read, mut last) = (0, 0, Instant::now());
    let mut buffer = vec![0; 1 << 16];
    while read < BULK {
        let sent = if written < BULK {
            client.write(&all[written..])
        } else {
            Err(ErrorKind::WouldBlock.into())
        };
        let received = server.read(&mut buffer);
        if let Ok(length @ 1..) = received
            && buffer[..length] != all[read..read + length]
        {
            return Err(ErrorKind::InvalidData.into());
        }
        for (done, so_far) in [(sent, &mut written), (received, &mut read)] {
            match done {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => (*so_far, last) = (*so_far + length, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if last.elapsed() > patient(2 * LOST) {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    client.set_nonblocking(false)?;
    server.set_nonblocking(false)
}

/// A command of FTP and its answer: PASV every second time, which names the server's address. The
/// address the client read.
fn command(
    client: &mut TcpStream,
    server: &mut TcpStream,
    number: u32,
    sent: &mut u64,
) -> io::Result<Option<String>> {
    let is_passive = number % 2 == 1;
    let ask = if is_passive { "PASV\r\n" } else { "NOOP\r\n" };
    let answer = if is_passive {
        let address = server.local_addr()?.ip().to_string().replace('.', ",");
        format!(
            "227 Entering Passive Mode ({address},156,{})\r\n",
            64 + number % 64
        )
    } else {
        "200 OK\r\n".to_owned()
    };
    *sent += 2;
    client.write_all(ask.as_bytes())?;
    server.read_exact(&mut vec![0; ask.len()])?;
    server.write_all(answer.as_bytes())?;
    let line = line(client)?;
    let address = line
        .split_once('(')
        .and_then(|(_, rest)| rest.rsplitn(3, ',').last());
    Ok(address.map(str::to_owned))
}

/// Reads up to the end of a line.
fn line(end: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        end.read_exact(&mut byte)?;
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}
