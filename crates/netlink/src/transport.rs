//! One request, its answers, and what they mean: the only place that reads netlink flags and
//! errnos.
//!
//! Any number of requests may be in flight on clones of a [`Transport`]; each is answered on its
//! own. A request whose caller stops waiting may still be carried out. What waits to be sent goes
//! to the kernel together: it works a batch off in order within one system call, and that call,
//! with its wake-ups, costs as much as the work. The kernel allows one dump at a time per socket
//! (`__netlink_dump_start()` in [net/netlink/af_netlink.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/netlink/af_netlink.c)), so dumps take
//! turns. A dump that the kernel calls interrupted (the table changed while it was being read,
//! `nl_dump_check_consistent()` in [include/net/netlink.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/netlink.h)) is read again.

use std::{
    fmt::Debug,
    num::NonZeroI32,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_proto::{ConnectionHandle, NetlinkCodec, from_socket_with_codec};
use netlink_sys::{SocketAddr, TokioSocket};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};
use tracing::warn;

use super::{
    error::Fault,
    reply::{Prune, Reply, request},
};

/// The number of reads of a dump before the caller gets an error.
const DUMP_ATTEMPTS: u32 = 10;
/// Silence on the whole socket after which an answer counts as lost. Longer than the kernel holds
/// its configuration lock on a very large node. Requests that wait behind others have no deadline.
const SILENCE: Duration = Duration::from_secs(30);
/// The error that a caller gets after that.
const SILENT: Fault = Fault::TimedOut {
    seconds: SILENCE.as_secs(),
};
/// Requests sent together at most. All their answers fit the receive buffer.
const BATCH: usize = 128;
/// `struct nlmsghdr`: what a capped error message repeats of the request.
const HEADER_LEN: usize = 16;
/// `NLMSGERR_ATTR_MSG`.
const REMARK: u16 = 1;

/// A protocol's messages both ways.
pub(super) trait Message:
    NetlinkSerializable + NetlinkDeserializable + Prune + Debug + Clone + Send + Sync + Unpin
where
    Self: 'static,
{
}
impl<T> Message for T where
    T: NetlinkSerializable
        + NetlinkDeserializable
        + Prune
        + Debug
        + Clone
        + Send
        + Sync
        + Unpin
        + 'static
{
}

/// A handle on one request socket; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Transport<T: Message> {
    line: Line<T>,
    waiting: mpsc::UnboundedSender<Asked<T>>,
    dumping: Arc<Mutex<()>>,
}

/// The connection, and how long it has been silent.
#[derive(Debug, Clone)]
struct Line<T: Message> {
    handle: ConnectionHandle<Reply<T>>,
    /// Messages received on the socket by all clones.
    received: Arc<AtomicU64>,
}

/// A request that waits to be sent, and where its answer goes.
struct Asked<T> {
    message: NetlinkMessage<Reply<T>>,
    answer: oneshot::Sender<Result<Answer<T>, Fault>>,
}

/// The entries of a dump, and the number of those that could not be decoded.
#[derive(Debug)]
pub(super) struct Dump<T> {
    entries: Vec<T>,
    undecodable: usize,
    message_type: u16,
}

impl<T> Dump<T> {
    /// Every entry; refuses a dump with a gap.
    pub(super) fn complete(self) -> Result<Vec<T>, Fault> {
        match self {
            Self {
                entries,
                undecodable: 0,
                ..
            } => Ok(entries),
            Self {
                undecodable: count,
                message_type,
                ..
            } => Err(Fault::Undecodable {
                message_type,
                count,
            }),
        }
    }

    /// The entries that could be decoded. For tables where what we cannot read cannot be ours.
    pub(super) fn readable(self) -> Vec<T> {
        if self.undecodable > 0 {
            warn!(
                count = self.undecodable,
                message_type = self.message_type,
                "skipped undecodable netlink entries"
            );
        }
        self.entries
    }
}

impl<T: Message> Transport<T> {
    /// Starts the connection task on `socket`; it ends when the last clone is dropped.
    pub(super) fn spawn(socket: TokioSocket) -> Self {
        let (mut connection, handle, _unsolicited) =
            from_socket_with_codec::<Reply<T>, _, NetlinkCodec>(socket);
        // A dying connection closes the answers of every request in flight. Only a forwarded ack or
        // end of dump distinguishes success from that.
        connection.set_forward_ack(true);
        connection.set_forward_done(true);
        tokio::spawn(connection);
        let line = Line {
            handle,
            received: Arc::default(),
        };
        let (waiting, asked) = mpsc::unbounded_channel();
        tokio::spawn(line.clone().serve(asked));
        Self {
            line,
            waiting,
            dumping: Arc::default(),
        }
    }

    /// Sends `message` with extra `NLM_F_*` flags and waits for the kernel's ack.
    pub(super) async fn command(&self, message: T, flags: u16) -> Result<(), Fault> {
        self.ask(message, flags).await.map(drop)
    }

    /// Asks for one object.
    pub(super) async fn fetch(&self, message: T) -> Result<T, Fault> {
        let answer = self.ask(message, 0).await?;
        answer.dump.complete()?.pop().ok_or(Fault::NoAnswer)
    }

    /// Reads a whole table. Runs to its end even when the caller stops waiting: the kernel refuses
    /// the next dump on a socket while one is half read.
    pub(super) async fn dump(&self, message: T) -> Result<Dump<T>, Fault> {
        let this = self.clone();
        tokio::spawn(async move { this.dump_in_turn(message).await })
            .await
            .unwrap_or(Err(Fault::Closed))
    }

    async fn dump_in_turn(&self, message: T) -> Result<Dump<T>, Fault> {
        let _turn = self.dumping.lock().await;
        for _ in 0..DUMP_ATTEMPTS {
            let answer = self.line.dump(message.clone()).await?;
            if !answer.interrupted {
                return Ok(answer.dump);
            }
        }
        Err(Fault::Interrupted {
            attempts: DUMP_ATTEMPTS,
        })
    }

    async fn ask(&self, message: T, flags: u16) -> Result<Answer<T>, Fault> {
        let (answer, answered) = oneshot::channel();
        let message = request(message, NLM_F_REQUEST | NLM_F_ACK | flags);
        self.waiting
            .send(Asked { message, answer })
            .or(Err(Fault::Closed))?;
        answered.await.unwrap_or(Err(Fault::Closed))
    }
}

fn kernel() -> SocketAddr {
    SocketAddr::new(0, 0)
}

impl<T: Message> Line<T> {
    async fn dump(&self, message: T) -> Result<Answer<T>, Fault> {
        let message = request(message, NLM_F_REQUEST | NLM_F_DUMP);
        self.answer(
            &mut self
                .handle
                .request(message, kernel())
                .or(Err(Fault::Closed))?,
        )
        .await
    }

    /// Sends the requests that wait, batch by batch, until all senders are dropped.
    async fn serve(self, mut asked: mpsc::UnboundedReceiver<Asked<T>>) {
        let mut batch = Vec::new();
        while asked.recv_many(&mut batch, BATCH).await > 0 {
            self.exchange(std::mem::take(&mut batch)).await;
        }
    }

    /// Sends requests together. The kernel answers in the order in which it was asked.
    async fn exchange(&self, batch: Vec<Asked<T>>) {
        let (messages, answers): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|asked| (asked.message, asked.answer))
            .unzip();
        let Ok(mut messages) = self.handle.request_batch(messages, kernel()) else {
            return;
        };
        let mut is_silent = false;
        for answer in answers {
            let result = if is_silent {
                Err(SILENT)
            } else {
                self.answer(&mut messages).await
            };
            is_silent = matches!(result, Err(Fault::TimedOut { .. }));
            // A caller that stopped waiting does not want it.
            drop(answer.send(result));
        }
    }

    async fn answer(
        &self,
        messages: &mut (impl Stream<Item = NetlinkMessage<Reply<T>>> + Unpin),
    ) -> Result<Answer<T>, Fault> {
        let mut answer = Answer::new();
        loop {
            let message = self
                .unless_silent(messages.next())
                .await?
                .ok_or(Fault::Closed)?;
            if answer.take(message)? {
                return Ok(answer);
            }
        }
    }

    async fn unless_silent<M>(&self, next: impl Future<Output = M>) -> Result<M, Fault> {
        let mut next = pin!(next);
        loop {
            let before = self.received.load(Ordering::Relaxed);
            if let Ok(message) = timeout(SILENCE, &mut next).await {
                self.received.fetch_add(1, Ordering::Relaxed);
                return Ok(message);
            }
            if self.received.load(Ordering::Relaxed) == before {
                return Err(SILENT);
            }
        }
    }
}

/// The part of an answer that has arrived.
struct Answer<T> {
    dump: Dump<T>,
    interrupted: bool,
}

impl<T> Answer<T> {
    fn new() -> Self {
        Self {
            dump: Dump {
                entries: Vec::new(),
                undecodable: 0,
                message_type: 0,
            },
            interrupted: false,
        }
    }

    /// Takes one message in; true when it was the last.
    fn take(&mut self, message: NetlinkMessage<Reply<T>>) -> Result<bool, Fault> {
        let (header, payload) = message.into_parts();
        self.interrupted |= header.flags & NLM_F_DUMP_INTR != 0;
        match payload {
            NetlinkPayload::InnerMessage(Reply::Decoded(entry)) => self.dump.entries.push(entry),
            NetlinkPayload::InnerMessage(Reply::Undecodable { message_type }) => {
                self.dump.undecodable += 1;
                self.dump.message_type = message_type;
            }
            NetlinkPayload::Error(error) => {
                let remark = error.header.get(HEADER_LEN..).and_then(remark);
                return refusal(error.code, remark);
            }
            NetlinkPayload::Done(done) => {
                return refusal(NonZeroI32::new(done.code), remark(&done.extended_ack));
            }
            _ => {}
        }
        Ok(false)
    }
}

/// An error message without a code is the ack that ends the answer.
fn refusal(code: Option<NonZeroI32>, remark: Option<String>) -> Result<bool, Fault> {
    match code {
        // A positive value in an end of dump is a length of old kernels, not an error.
        Some(code) if code.get() < 0 => Err(Fault::Refused {
            errno: std::io::Error::from_raw_os_error(code.get().saturating_neg()),
            remark,
        }),
        _ => Ok(true),
    }
}

/// The text among the attributes of an extended ack.
fn remark(attributes: &[u8]) -> Option<String> {
    NlasIterator::new(attributes)
        .flatten()
        .find(|attribute| attribute.kind() == REMARK)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value())
                .trim_end_matches('\0')
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DoneMessage, ErrorMessage, NetlinkHeader};
    use nix::errno::Errno;

    use super::*;

    fn message(flags: u16, payload: NetlinkPayload<Reply<u32>>) -> NetlinkMessage<Reply<u32>> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        NetlinkMessage::new(header, payload)
    }

    fn done() -> NetlinkPayload<Reply<u32>> {
        NetlinkPayload::Done(DoneMessage::default())
    }

    #[test]
    fn an_interrupted_dump_is_recognised_on_an_entry_or_on_its_end() {
        let entry = || NetlinkPayload::InnerMessage(Reply::Decoded(1));
        for (on_entry, on_end, interrupted) in [
            (0, 0, false),
            (NLM_F_DUMP_INTR, 0, true),
            (0, NLM_F_DUMP_INTR, true),
        ] {
            let mut answer = Answer::new();
            assert!(!answer.take(message(on_entry, entry())).expect("an entry"));
            assert!(answer.take(message(on_end, done())).expect("the end"));
            assert_eq!(answer.interrupted, interrupted);
        }
    }

    #[test]
    fn a_gap_is_refused_where_completeness_matters() {
        let mut answer = Answer::new();
        let gap = NetlinkPayload::InnerMessage(Reply::Undecodable { message_type: 32 });
        answer.take(message(0, gap)).expect("an entry");
        assert!(matches!(
            answer.dump.complete(),
            Err(Fault::Undecodable {
                message_type: 32,
                count: 1
            })
        ));
    }

    #[test]
    fn a_refusal_carries_errno_and_remark() {
        let mut error = ErrorMessage::default();
        error.code = NonZeroI32::new(-(Errno::ENODEV as i32));
        error.header = vec![0; HEADER_LEN];
        error.header.extend([
            8,
            0,
            REMARK.to_ne_bytes()[0],
            REMARK.to_ne_bytes()[1],
            b'n',
            b'o',
            b'!',
            0,
        ]);
        let fault = Answer::new()
            .take(message(0, NetlinkPayload::Error(error)))
            .expect_err("a refusal");
        assert_eq!(fault.errno(), Some(Errno::ENODEV));
        assert_eq!(fault.to_string(), "no!");
    }

    #[test]
    fn an_ack_ends_the_answer() {
        let ack = NetlinkPayload::Error(ErrorMessage::default());
        assert!(Answer::new().take(message(0, ack)).expect("an ack"));
    }
}
