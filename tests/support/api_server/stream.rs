//! Watches: one line of JSON per change, from a version on.

use std::{collections::VecDeque, io, sync::Arc};

use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    Response,
    body::{Bytes, Frame},
};
use serde_json::{Value, json};

use super::{
    answer::{Body, failure, ok, status},
    double::{Query, Shared},
    state::Unanswered,
};

/// Bytes that a slow server sends at once, so that pieces end at no particular boundary.
const PIECE: usize = 7;

/// The objects that a client asks for.
pub(super) enum Asked {
    /// All Nodes, or the one of this name.
    Nodes(Option<String>),
    /// The Pods of the Node of this name.
    Pods(String),
}

impl Asked {
    /// Bookmarks concern everybody.
    fn concerns(&self, line: &Value) -> bool {
        let object = &line["object"];
        line["type"] == "BOOKMARK"
            || match self {
                Self::Nodes(only) => {
                    object["kind"] == "Node"
                        && only
                            .as_ref()
                            .is_none_or(|only| object["metadata"]["name"] == **only)
                }
                Self::Pods(node) => object["kind"] == "Pod" && object["spec"]["nodeName"] == **node,
            }
    }
}

/// One watch.
struct Watch {
    shared: Arc<Shared>,
    changed: tokio::sync::watch::Receiver<u64>,
    /// The length of the history that this watch has taken.
    at: usize,
    asked: Asked,
    breaks: u64,
    ends: u64,
    /// The length of `State::noise` that this watch has taken.
    noise: usize,
    trickles: bool,
    lines: VecDeque<Bytes>,
    broken: bool,
    over: bool,
}

/// Answers a request to watch.
pub(super) fn open(shared: &Arc<Shared>, query: &Query<'_>, asked: Asked) -> Response<Body> {
    assert_eq!(query.get("allowWatchBookmarks"), Some("true"));
    let version: u64 = query
        .get("resourceVersion")
        .and_then(|version| version.parse().ok())
        .expect("a version");
    let state = shared.lock();
    let gone = "too old resource version";
    if version < state.compacted && state.late_gone {
        return ok(&json!({ "type": "ERROR", "object": status(410, "Expired", gone) }));
    }
    if version < state.compacted {
        return failure(410, "Expired", gone);
    }
    let unseen = state
        .history
        .iter()
        .filter(|(changed, line)| *changed > version && asked.concerns(line));
    let watch = Watch {
        changed: shared.changed.subscribe(),
        shared: Arc::clone(shared),
        at: state.history.len(),
        breaks: state.breaks,
        ends: state.ends,
        noise: state.noise.len(),
        trickles: state.trickles,
        lines: unseen.map(|(_, line)| framed(line)).collect(),
        asked,
        broken: false,
        over: false,
    };
    let frames = stream::unfold(watch, |mut watch| async move {
        let frame = watch.next().await?;
        Some((frame.map(Frame::data), watch))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// An answer that goes on for 400 MB, and says nothing.
pub(super) fn endless(shared: &Arc<Shared>) -> Response<Body> {
    const SPACE: Bytes = Bytes::from_static(&[b' '; 1 << 16]);
    let frames = stream::unfold((Arc::clone(shared), 0), |(shared, sent)| async move {
        let sent = sent + SPACE.len();
        let taken = &mut shared.lock().taken;
        *taken = sent.max(*taken);
        (sent < 400_000_000).then(|| (Ok(Frame::data(SPACE)), (Arc::clone(&shared), sent)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn framed(line: &Value) -> Bytes {
    format!("{line}\n").into()
}

impl Watch {
    /// All of a line, or its first few bytes and the rest later.
    async fn piece_of(&mut self, mut line: Bytes) -> Bytes {
        if !self.trickles || line.len() <= PIECE {
            return line;
        }
        let piece = line.split_to(PIECE);
        self.lines.push_front(line);
        // Each piece goes out by itself.
        tokio::task::yield_now().await;
        piece
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if self.broken {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(self.piece_of(line).await));
            }
            if self.over {
                return None;
            }
            if let Some(half) = self.catch_up() {
                return Some(Ok(half));
            }
            if self.lines.is_empty() && !self.over && self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Takes in what is new. Half a line, if this is the end.
    fn catch_up(&mut self) -> Option<Bytes> {
        let state = self.shared.lock();
        if state.breaks != self.breaks {
            self.broken = true;
            return Some(Bytes::from_static(b"{\"type\":\"MODIF"));
        }
        if state.unanswered != Unanswered::All {
            let new_lines = state.history[self.at..].iter().map(|(_, line)| line);
            self.lines.extend(state.noise[self.noise..].iter().cloned());
            self.lines.extend(
                new_lines
                    .filter(|line| self.asked.concerns(line))
                    .map(framed),
            );
            (self.at, self.noise) = (state.history.len(), state.noise.len());
        }
        self.over = state.ends != self.ends;
        None
    }
}
