//! The answer to `GetFlows`: flows of the ring that match, and new ones while the client follows.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use futures::{Stream, stream};
use prost::Message as _;
use tokio::{sync::watch, time::timeout};
use tonic::Status;

use crate::{
    FlowRing,
    demand::Reading,
    filter::Filters,
    flow::{Flow, LostEvent, LostEventSource, Timestamp},
    observer::{EncodedResponse, GetFlowsRequest},
    ring::{Batch, Entry},
};

/// The responses to one request.
pub(crate) type Flows = Pin<Box<dyn Stream<Item = Result<EncodedResponse, Status>> + Send>>;

/// The longest wait for the flows that exist, when the first client comes.
const PATIENCE: Duration = Duration::from_secs(3);

/// Waits for the flows that exist, for a bounded time.
pub(crate) async fn wait_until_primed(ring: &FlowRing) {
    if timeout(PATIENCE, ring.primed()).await.is_err() {
        tracing::debug!("flows are asked for, and none is read yet");
    }
}

/// The flows for a client. `reading` ends with the stream.
pub(crate) fn flows(
    ring: FlowRing,
    request: GetFlowsRequest,
    filters: Filters,
    node: String,
    reading: Reading,
) -> Flows {
    let changes = ring.subscribe();
    let mut reader = Reader {
        ring,
        request,
        filters,
        node,
        changes,
        at: 0,
        ready: VecDeque::new(),
        _reading: reading,
    };
    reader.begin();
    let next = |mut reader: Reader| async move {
        reader.next().await.map(|response| (Ok(response), reader))
    };
    Box::pin(stream::unfold(reader, next))
}

struct Reader {
    ring: FlowRing,
    request: GetFlowsRequest,
    filters: Filters,
    node: String,
    changes: watch::Receiver<u64>,
    /// The position in the ring.
    at: u64,
    /// Responses that are sent before more of the ring is read.
    ready: VecDeque<EncodedResponse>,
    _reading: Reading,
}

impl Reader {
    /// Chooses the flows that are in the ring.
    fn begin(&mut self) {
        let request = &self.request;
        let newest_only =
            request.follow && request.number == 0 && request.since.is_none() && !request.first;
        if newest_only {
            self.at = self.ring.end();
            return;
        }
        let wanted = usize::try_from(request.number)
            .ok()
            .filter(|number| *number > 0)
            .unwrap_or(usize::MAX);
        self.at = self.ring.oldest();
        loop {
            let Batch { entries, next, .. } = self.ring.read(self.at);
            if entries.is_empty() || (self.request.first && self.ready.len() >= wanted) {
                break;
            }
            self.at = next;
            for entry in entries {
                self.ready.extend(self.response(&entry));
            }
            let surplus = self.ready.len().saturating_sub(wanted);
            if self.request.first {
                self.ready.truncate(wanted);
            } else {
                self.ready.drain(..surplus);
            }
        }
    }

    async fn next(&mut self) -> Option<EncodedResponse> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(response);
            }
            if !self.request.follow {
                return None;
            }
            let Batch {
                entries,
                next,
                missed,
            } = self.ring.read(self.at);
            self.at = next;
            if missed > 0 {
                self.ready
                    .push_back(self.lost(missed, LostEventSource::HubbleRingBuffer));
            }
            let is_empty = entries.is_empty();
            for entry in entries {
                self.ready.extend(self.response(&entry));
            }
            if is_empty && self.ready.is_empty() {
                // The sender lives as long as the ring.
                self.changes.wait_for(|end| *end > next).await.ok()?;
            }
        }
    }

    /// The response for an entry that the client wants.
    fn response(&self, entry: &Entry) -> Option<EncodedResponse> {
        match entry {
            Entry::Flow(bytes, time) => {
                let is_early = self.request.since.is_some_and(|since| *time < since);
                let is_late = self.request.until.is_some_and(|until| *time > until);
                if is_early || is_late {
                    return None;
                }
                if !self.filters.are_empty()
                    && !self.filters.match_flow(&Flow::decode(&**bytes).ok()?)
                {
                    return None;
                }
                Some(EncodedResponse {
                    flow: Some(bytes.clone()),
                    ..self.wrap(*time)
                })
            }
            Entry::Lost(lost) => Some(EncodedResponse {
                lost_events: Some(*lost),
                ..self.wrap(Timestamp::now())
            }),
        }
    }

    fn lost(&self, count: u64, source: LostEventSource) -> EncodedResponse {
        let lost = LostEvent {
            source: source.into(),
            num_events_lost: count,
        };
        EncodedResponse {
            lost_events: Some(lost),
            ..self.wrap(Timestamp::now())
        }
    }

    fn wrap(&self, time: Timestamp) -> EncodedResponse {
        EncodedResponse {
            node_name: self.node.clone(),
            time: Some(time),
            ..EncodedResponse::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;
    use crate::{
        Demand,
        flow::{FlowFilter, Verdict},
        observer::{Content, GetFlowsResponse},
    };

    fn flow(second: i64) -> Flow {
        let verdict = if second % 2 == 0 {
            Verdict::Dropped
        } else {
            Verdict::Forwarded
        };
        Flow {
            time: Some(at(second)),
            verdict: verdict.into(),
            ..Flow::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn filled(seconds: i64) -> FlowRing {
        let ring = FlowRing::new(100);
        (1..=seconds).for_each(|second| ring.push(&flow(second)));
        ring
    }

    fn answer(ring: &FlowRing, request: GetFlowsRequest) -> Flows {
        let filters = Filters::new(&request).expect("supported filters");
        flows(
            ring.clone(),
            request,
            filters,
            "a".to_owned(),
            Demand::default().begin(),
        )
    }

    /// The seconds of flows; of lost ones their number, negative.
    fn second(response: Option<Result<EncodedResponse, Status>>) -> i64 {
        let encoded = response
            .expect("a response")
            .expect("no error")
            .encode_to_vec();
        let response = GetFlowsResponse::decode(&*encoded).expect("the message of clients");
        assert_eq!(response.node_name, "a");
        match response.content.expect("content") {
            Content::Flow(flow) => flow.time.expect("a time").seconds,
            Content::LostEvents(lost) => {
                -i64::try_from(lost.num_events_lost).expect("a small number")
            }
        }
    }

    async fn all(ring: &FlowRing, request: GetFlowsRequest) -> Vec<i64> {
        let responses: Vec<_> = answer(ring, request).collect().await;
        responses
            .into_iter()
            .map(|response| second(Some(response)))
            .collect()
    }

    #[tokio::test]
    async fn the_newest_the_oldest_and_those_of_a_time_are_chosen() {
        let (ring, request) = (filled(9), GetFlowsRequest::default());
        assert_eq!(
            all(
                &ring,
                GetFlowsRequest {
                    number: 2,
                    ..request.clone()
                }
            )
            .await,
            [8, 9]
        );
        assert_eq!(
            all(
                &ring,
                GetFlowsRequest {
                    number: 2,
                    first: true,
                    ..request.clone()
                }
            )
            .await,
            [1, 2]
        );
        let between = GetFlowsRequest {
            since: Some(at(3)),
            until: Some(at(5)),
            ..request.clone()
        };
        assert_eq!(all(&ring, between).await, [3, 4, 5]);
        let dropped = FlowFilter {
            verdict: vec![Verdict::Dropped.into()],
            ..FlowFilter::default()
        };
        let request = GetFlowsRequest {
            number: 2,
            whitelist: vec![dropped],
            ..request
        };
        assert_eq!(
            all(&ring, request).await,
            [6, 8],
            "the number counts those that match"
        );
    }

    #[tokio::test]
    async fn a_follower_gets_new_flows_and_the_number_of_those_it_missed() {
        let ring = FlowRing::new(3);
        ring.push(&flow(1));
        let mut stream = answer(
            &ring,
            GetFlowsRequest {
                follow: true,
                ..GetFlowsRequest::default()
            },
        );
        ring.push(&flow(2));
        let deadline = Duration::from_secs(10);
        let mut next = async || {
            second(
                timeout(deadline, stream.next())
                    .await
                    .expect("a response in time"),
            )
        };
        assert_eq!(next().await, 2, "the old one is not asked for");
        (3..=7).for_each(|second| ring.push(&flow(second)));
        assert_eq!(
            [next().await, next().await, next().await, next().await],
            [-2, 5, 6, 7]
        );
        ring.push_lost(9);
        assert_eq!(next().await, -9);
    }

    #[tokio::test]
    async fn a_client_counts_until_its_stream_ends() {
        let (ring, demand) = (filled(1), Demand::default());
        let request = GetFlowsRequest {
            follow: true,
            ..GetFlowsRequest::default()
        };
        let filters = Filters::new(&request).expect("supported filters");
        let clients = demand.subscribe();
        let stream = flows(ring, request, filters, String::new(), demand.begin());
        assert_eq!(*clients.borrow(), 1);
        drop(stream);
        assert_eq!(*clients.borrow(), 0);
    }
}
