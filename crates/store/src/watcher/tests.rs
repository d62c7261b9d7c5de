//! The loop, with a store that follows a script.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use flannel_host::clock::BootTime;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use self::Message::{Change, End, Failure};
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Lost,
    Compacted,
    Expired,
    WentBack,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Copy)]
enum Message {
    Change(u64),
    End(Recovery),
    Failure(Fault),
}

/// The messages of one watch; then it is quiet.
struct Messages(VecDeque<Message>);

impl MessageStream for Messages {
    type Message = Message;

    async fn next_message(&mut self) -> Message {
        match self.0.pop_front() {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

/// Answers in the order of the requests. After the last answer, requests are not answered.
#[derive(Default)]
struct Script<const CONFIRMS: bool> {
    /// The positions of listings.
    listings: VecDeque<Result<u64, Fault>>,
    watches: VecDeque<Result<Vec<Message>, Fault>>,
    /// The answers to verifications.
    known: VecDeque<bool>,
    /// True if open watches are verified, for as long as there are answers.
    verifies: bool,
    requests: Arc<Mutex<Vec<String>>>,
}

impl<const CONFIRMS: bool> Script<CONFIRMS> {
    fn note(&self, request: String) {
        self.requests.lock().expect("no panic").push(request);
    }
}

async fn answer<T>(script: &mut VecDeque<T>) -> T {
    match script.pop_front() {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}

impl<const CONFIRMS: bool> Source for Script<CONFIRMS> {
    type Position = u64;
    type Stream = Messages;
    type Changes = u64;
    type Own = ();
    type Task = Infallible;
    type Error = Fault;

    const NAME: &'static str = "the script";
    const OBJECTS: &'static str = "everything";
    const CONFIRMS_WATCHES: bool = CONFIRMS;

    async fn list(&mut self) -> Result<Listing<Self>, Fault> {
        self.note("list".to_owned());
        let position = answer(&mut self.listings).await?;
        Ok(Listing {
            entries: Vec::new(),
            own: (),
            position,
        })
    }

    async fn open(&mut self, position: &u64) -> Result<Messages, Fault> {
        self.note(format!("watch {position}"));
        Ok(Messages(answer(&mut self.watches).await?.into()))
    }

    fn inspect(&mut self, message: Message, _position: &u64) -> Verdict<Self> {
        match message {
            Change(change) => Verdict::Changes(change),
            End(recovery) => Verdict::End(recovery),
            Failure(fault) => Verdict::Failure(fault),
        }
    }

    fn advance(&mut self, position: &mut u64, change: &u64) -> Result<(), Fault> {
        if change < position {
            return Err(Fault::WentBack);
        }
        *position = *change;
        Ok(())
    }

    async fn apply(&mut self, change: u64, events: &EventSender) -> Result<(), Gone> {
        events
            .send(StoreEvent::Delete {
                name: change.to_string().into(),
            })
            .await
    }

    fn recovery(error: &Fault) -> Recovery {
        match error {
            Fault::Lost => Recovery::Resume,
            Fault::Compacted | Fault::WentBack => Recovery::List,
            Fault::Expired => Recovery::ListNow,
        }
    }

    fn verify_at(&self) -> Option<BootTime> {
        (self.verifies && !self.known.is_empty()).then(BootTime::now)
    }

    async fn is_known(&mut self, _position: &u64) -> Result<bool, Fault> {
        Ok(self.known.pop_front().unwrap_or(true))
    }

    async fn see_own(&mut self, (): ()) -> Vec<StoreEvent> {
        Vec::new()
    }

    async fn next_task(&mut self) -> Infallible {
        std::future::pending().await
    }

    async fn perform(&mut self, task: Infallible) -> Vec<StoreEvent> {
        match task {}
    }

    fn republish(&mut self, _attrs: LeaseAttrs) -> bool {
        true
    }
}

/// A watcher of a script.
struct Run {
    events: mpsc::Receiver<StoreEvent>,
    requests: Arc<Mutex<Vec<String>>>,
    counts: StoreCounts,
    attrs: watch::Sender<LeaseAttrs>,
}

impl Run {
    fn of<const CONFIRMS: bool>(script: Script<CONFIRMS>) -> Self {
        let (sender, events) = mpsc::channel(16);
        let (attrs, new_attrs) = watch::channel(LeaseAttrs::default());
        let (requests, counts) = (Arc::clone(&script.requests), StoreCounts::default());
        tokio::spawn(Watcher::new(script, counts.clone(), new_attrs, sender).run());
        Self {
            events,
            requests,
            counts,
            attrs,
        }
    }

    /// A store that does not confirm watches, with listings at 5 and then 50.
    fn unconfirmed(watches: impl IntoIterator<Item = Vec<Message>>) -> Self {
        let (listings, watches) = (
            [Ok(5), Ok(50)].into(),
            watches.into_iter().map(Ok).collect(),
        );
        Self::of(Script::<false> {
            listings,
            watches,
            ..Script::default()
        })
    }

    /// The events up to the one about `last`: changes by their number.
    async fn events_until(&mut self, last: &str) -> String {
        let mut all = Vec::new();
        while all.last().is_none_or(|event| event != last) {
            let event = timeout(PATIENCE, self.events.recv())
                .await
                .unwrap_or_else(|_| panic!("{last} after {all:?}"));
            all.push(match event.expect("a running watcher") {
                StoreEvent::InSync { .. } => "listed".to_owned(),
                StoreEvent::Delete { name } => name.to_string(),
                StoreEvent::OutOfSync { reason } => format!("out of sync ({reason})"),
                StoreEvent::Resumed => "resumed".to_owned(),
                other => panic!("{other:?}"),
            });
        }
        all.join(", ")
    }

    fn requests(&self) -> String {
        self.requests.lock().expect("no panic").join(", ")
    }
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_where_it_ended_and_nothing_is_reported() {
    let mut run = Run::unconfirmed([
        vec![Change(6), Change(7), End(Recovery::Resume)],
        vec![Change(8)],
    ]);
    assert_eq!(run.events_until("8").await, "listed, 6, 7, 8");
    assert_eq!(run.requests(), "list, watch 5, watch 7");
    assert_eq!(
        (
            run.counts.watches.get(),
            run.counts.listings.get(),
            run.counts.failures.get()
        ),
        (2, 1, 0)
    );
}

#[tokio::test]
async fn a_watch_that_fails_is_resumed_where_it_failed() {
    let mut run = Run::unconfirmed([vec![Change(6), Failure(Fault::Lost)], vec![Change(8)]]);
    assert_eq!(
        run.events_until("8").await,
        "listed, 6, out of sync (Lost), resumed, 8"
    );
    assert_eq!(run.requests(), "list, watch 5, watch 6");
    assert_eq!(run.counts.failures.get(), 1);
}

#[tokio::test]
async fn a_watch_that_is_to_be_confirmed_is_not_resumed_before() {
    let watches = [
        Ok(vec![Change(5), Failure(Fault::Lost)]),
        Err(Fault::Lost),
        Ok(vec![Failure(Fault::Lost)]),
        Ok(vec![Change(5), Change(6)]),
    ];
    let script = Script::<true> {
        listings: [Ok(5)].into(),
        watches: watches.into(),
        ..Script::default()
    };
    let mut run = Run::of(script);
    assert_eq!(
        run.events_until("6").await,
        "listed, 5, out of sync (Lost), resumed, 5, 6"
    );
    assert_eq!(
        (run.counts.watches.get(), run.counts.failures.get()),
        (3, 3)
    );
}

#[tokio::test]
async fn changes_that_are_compacted_away_or_precede_the_position_are_made_up_for_by_a_listing() {
    for last in [Failure(Fault::Compacted), Change(4)] {
        let mut run = Run::unconfirmed([vec![last], vec![Change(51)]]);
        let reason = if matches!(last, Change(_)) {
            "WentBack"
        } else {
            "Compacted"
        };
        assert_eq!(
            run.events_until("51").await,
            format!("listed, out of sync ({reason}), listed, 51")
        );
        assert_eq!(run.requests(), "list, watch 5, list, watch 50");
    }
}

#[tokio::test]
async fn a_dropped_history_is_listed_again_and_is_an_outage_only_if_that_does_not_help() {
    let mut run = Run::unconfirmed([vec![Change(6), Failure(Fault::Expired)], vec![Change(51)]]);
    assert_eq!(run.events_until("51").await, "listed, 6, listed, 51");
    assert_eq!(run.requests(), "list, watch 5, list, watch 50");
    assert_eq!(run.counts.failures.get(), 1);

    let expired = || vec![Failure(Fault::Expired)];
    let mut run = Run::unconfirmed([expired(), expired(), Vec::new()]);
    assert_eq!(
        run.events_until("out of sync (Expired)").await,
        "listed, listed, out of sync (Expired)"
    );
}

#[tokio::test]
async fn a_listing_that_fails_is_tried_again() {
    let listings = [Err(Fault::Expired), Err(Fault::Lost), Ok(5)].into();
    let mut run = Run::of(Script::<false> {
        listings,
        watches: [Ok(vec![Change(6)])].into(),
        ..Script::default()
    });
    assert_eq!(
        run.events_until("6").await,
        "listed, 6",
        "a store that was never in sync is not reported as lost"
    );
    assert_eq!(run.requests(), "list, list, list, watch 5");
}

#[tokio::test]
async fn a_watch_that_ends_may_need_a_listing() {
    let mut run = Run::unconfirmed([vec![End(Recovery::List)], vec![Change(51)]]);
    assert_eq!(run.events_until("51").await, "listed, listed, 51");
    assert_eq!(run.requests(), "list, watch 5, list, watch 50");
}

#[tokio::test]
async fn a_store_found_replaced_is_listed() {
    for verifies in [true, false] {
        // Found while the watch is open, or after it failed.
        let first = if verifies {
            Vec::new()
        } else {
            vec![Failure(Fault::Lost)]
        };
        let (listings, watches) = (
            [Ok(5), Ok(50)].into(),
            [Ok(first), Ok(vec![Change(51)])].into(),
        );
        let known = if verifies {
            vec![true, false]
        } else {
            vec![false]
        }
        .into();
        let mut run = Run::of(Script::<false> {
            listings,
            watches,
            known,
            verifies,
            ..Script::default()
        });
        let expected = if verifies {
            "listed, listed, 51"
        } else {
            "listed, out of sync (Lost), listed, 51"
        };
        assert_eq!(run.events_until("51").await, expected);
        assert_eq!(run.requests(), "list, watch 5, list, watch 50");
    }
}

#[tokio::test]
async fn a_new_address_opens_the_watch_again_at_its_position() {
    let mut run = Run::unconfirmed([vec![Change(6)], vec![Change(7)]]);
    run.events_until("6").await;
    run.attrs.send_replace(LeaseAttrs::default());
    assert_eq!(run.events_until("7").await, "7");
    assert_eq!(run.requests(), "list, watch 5, watch 6");
}
