//! `cluster flows --follow`: the events of all nodes as one stream.
//!
//! One `flannel-agent flows list --follow --remote` runs on each node. Its events go into one
//! bounded queue ([`node`]), which a thread empties ([`mod@print`]); events that find it full are
//! left out and counted, so that neither a slow terminal nor a flood on one node takes memory.
//! States of nodes go to standard error when they change, but those of a node that comes and goes
//! only from time to time.
//!
//! Invariant: all commands on nodes end with this one, because their connections do.

mod node;
mod print;
#[cfg(test)]
mod tests;

use std::{
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use flannel_cluster::{
    client::ClusterClient,
    error::ClusterError,
    exec::{Container, LineLimits},
    followed::{FollowedNodes, NodeListing},
    lines::{LineStream, NoLines},
    members::{AgentPods, ClusterNode},
};
use flannel_command::Answer;
use flannel_host::{error_chain::chain, signals::Stop, words::count};
use flannel_node_commands::flows::HEARTBEAT_PERIOD;
use tokio::{
    select,
    sync::{Notify, mpsc, watch},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

use self::{
    node::{EventReader, FollowedNodeState, NotShown},
    print::{ClusterFlowEvent, EventForm},
};
use super::options::ClusterFlowsOptions;

/// Events of all nodes that wait to be printed, some 600 bytes each.
const QUEUE: usize = 4096;
/// The longest event: names of pods and nodes have at most 253 bytes.
const LONGEST: u64 = 64 << 10;
/// Three heartbeats, and the start of the command.
const SILENCE: Duration = HEARTBEAT_PERIOD
    .saturating_mul(3)
    .saturating_add(Duration::from_secs(5));
/// Between two listings of the nodes.
const LISTING: Duration = Duration::from_secs(10);
/// At least, between two lines about a node: one that comes and goes must not fill the terminal.
const PAUSE: Duration = Duration::from_secs(10);
/// Between two looks at what was not said for that reason.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command, which prints by itself.
pub(super) async fn run(options: &ClusterFlowsOptions) -> anyhow::Result<Answer> {
    let client = options.access.client().await?;
    let mut stop = Stop::listen().context("cannot listen for signals")?;
    let settings = FollowSettings {
        command: options.follow_command(),
        silence: SILENCE,
        listing: LISTING,
        queue: QUEUE,
        pause: PAUSE,
    };
    let (mut follower, queue) =
        EventFollower::start(client, options.access.pods(), settings, say).await?;
    let form = EventForm {
        is_json: options.print.is_json(),
        width: follower.width(),
        count: options.follow.count,
    };
    let shown = follower.shown.clone();
    let mut printed = spawn_blocking(move || print::print(queue, form, &shown));
    let ended = select! {
        ended = follower.follow(&mut printed) => ended,
        _ = stop.wait() => Ok(()),
    };
    say(&follower.summary());
    ended.map(|()| Answer::from(String::new()))
}

/// The command on each node, and times.
#[derive(Clone, Debug)]
struct FollowSettings {
    command: Vec<String>,
    /// The time without a line after which a node does not answer.
    silence: Duration,
    listing: Duration,
    /// The most events that wait to be printed.
    queue: usize,
    /// At least, between two lines about a node.
    pause: Duration,
}

/// The state of a node.
struct ReportedNodeState {
    last: watch::Receiver<FollowedNodeState>,
    /// The line that was said last.
    said: Option<String>,
    /// When anything was said last.
    said_at: Option<Instant>,
}

/// The events of all nodes. Those that find the queue full are left out.
struct EventFollower<S> {
    nodes: FollowedNodes<ReportedNodeState>,
    settings: FollowSettings,
    events: mpsc::Sender<ClusterFlowEvent>,
    changed: Arc<Notify>,
    not_shown: Arc<NotShown>,
    shown: Arc<AtomicU64>,
    listing_error: Option<String>,
    /// Shows a line to the user.
    say: S,
}

impl<S: FnMut(&str)> EventFollower<S> {
    /// Lists the nodes, and begins to follow them. Returns the queue of their events, too.
    async fn start(
        client: ClusterClient,
        pods: AgentPods,
        settings: FollowSettings,
        mut say: S,
    ) -> Result<(Self, mpsc::Receiver<ClusterFlowEvent>), ClusterError> {
        let (nodes, members) = FollowedNodes::list(client, pods, settings.listing).await?;
        let nodes_text = count(
            members.len().try_into().unwrap_or(u32::MAX),
            "node",
            "nodes",
        );
        say(&format!(
            "following the flows of {nodes_text}; Ctrl-C ends it"
        ));
        let (events, queue) = mpsc::channel(settings.queue);
        let mut follower = Self {
            nodes,
            settings,
            events,
            changed: Arc::default(),
            not_shown: Arc::default(),
            shown: Arc::default(),
            listing_error: None,
            say,
        };
        follower.update(&members);
        Ok((follower, queue))
    }

    /// The width of the longest name of a node.
    fn width(&self) -> usize {
        self.nodes
            .states()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default()
    }

    /// Follows the nodes until the thread ends.
    async fn follow(&mut self, printed: &mut JoinHandle<anyhow::Result<()>>) -> anyhow::Result<()> {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            select! {
                ended = &mut *printed => return ended.context("the thread that prints has ended")?,
                Some(listing) = self.nodes.listing() => self.take(listing),
                () = self.changed.notified() => self.say_states(),
                _ = looks.tick() => self.say_states(),
            }
        }
    }

    fn take(&mut self, listing: NodeListing) {
        let error = match listing {
            Ok(members) => {
                self.update(&members);
                None
            }
            Err(error) => Some(format!(
                "the nodes that are followed stay as they are: {}",
                chain(&error)
            )),
        };
        if let Some(error) = error
            .as_ref()
            .filter(|error| self.listing_error.as_ref() != Some(error))
        {
            (self.say)(error);
        }
        self.listing_error = error;
    }

    /// Follows these nodes, and no others.
    fn update(&mut self, members: &[ClusterNode]) {
        let Self {
            nodes,
            settings,
            events,
            changed,
            not_shown,
            ..
        } = self;
        nodes.update(members, |name, client, agent| {
            let (state, last) = watch::channel(initial(agent));
            let reader = EventReader {
                node: name.into(),
                events: events.clone(),
                not_shown: not_shown.clone(),
                state,
                changed: changed.clone(),
            };
            let task = agent.as_ref().ok().map(|container| {
                let (client, container, command) =
                    (client.clone(), container.clone(), settings.command.clone());
                let limits = LineLimits {
                    bytes: LONGEST,
                    silence: settings.silence,
                };
                LineStream {
                    client,
                    container,
                    command,
                    limits,
                }
                .follow(reader)
            });
            let state = ReportedNodeState {
                last,
                said: None,
                said_at: None,
            };
            (state, task)
        });
        self.say_states();
    }

    /// Says what has changed of the nodes.
    fn say_states(&mut self) {
        let pause = self.settings.pause;
        for (name, state) in self.nodes.states_mut() {
            let line = remark(&state.last.borrow());
            if line == state.said || state.said_at.is_some_and(|at| at.elapsed() < pause) {
                continue;
            }
            match &line {
                Some(line) => (self.say)(&format!("{name}: {line}")),
                None => (self.say)(&format!("{name}: its events come again")),
            }
            state.said = line;
            state.said_at = Some(Instant::now());
        }
    }

    /// The counts at the end.
    fn summary(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} events shown; {} events came faster than they can be printed; {} packets came \
             faster than --rate, or \
             found the buffer of their node full",
            count(&self.shown),
            count(&self.not_shown.left_out),
            count(&self.not_shown.missed),
        )
    }
}

/// The state of a node with this agent, or with none for this reason.
fn initial(agent: &Result<Container, String>) -> FollowedNodeState {
    match agent {
        Ok(_) => FollowedNodeState::Asked,
        Err(reason) => FollowedNodeState::Ended(NoLines::Silent(reason.clone())),
    }
}

/// The line about a node whose events do not come, or not all of them.
fn remark(state: &FollowedNodeState) -> Option<String> {
    match state {
        FollowedNodeState::Asked => None,
        FollowedNodeState::Live(heartbeat) => heartbeat.problem.clone(),
        FollowedNodeState::Ended(NoLines::StockFlannel) => {
            Some("stock flannel runs there, which has no flows".to_owned())
        }
        FollowedNodeState::Ended(NoLines::Silent(reason)) => {
            Some(format!("no answer, tried again: {reason}"))
        }
    }
}

/// Prints a line on standard error, because the events may be going to standard output.
fn say(line: &str) {
    // A closed standard error must not make the command fail.
    drop(writeln!(io::stderr(), "{line}"));
}
