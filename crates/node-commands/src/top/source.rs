//! The readings of the maps, with what an agent adds to them.

use std::{path::Path, time::Duration};

use flannel_datapath::PinRoot;
use flannel_flows::{
    history::{PERIOD, TrafficHistory},
    pod_traffic::link_counters,
};
use flannel_observe::socket::{ask_history, ask_status};
use flannel_status::Problem;
use flannel_top::{Board, SortKey, TopSample, board::NO_AGENT};
use tokio::time::Instant;

/// The time to wait for an agent that does not answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The readings, one after the other.
pub(super) struct Source {
    pub(super) pins: PinRoot,
    pub(super) before: Option<TopSample>,
    /// The last answer, and its time.
    pub(super) history: Option<(Instant, Option<TrafficHistory>)>,
}

impl Source {
    pub(super) async fn sample(&self) -> Result<TopSample, flannel_datapath::DatapathError> {
        TopSample::read(&self.pins, link_counters().await.as_ref())
    }

    /// The rates of the last ten minutes, asked for again when they have one point more.
    async fn history(&mut self, state_dir: &Path) -> Option<TrafficHistory> {
        if self
            .history
            .as_ref()
            .is_none_or(|(asked, _)| asked.elapsed() >= PERIOD)
        {
            let answer = tokio::time::timeout(PATIENCE, ask_history(state_dir)).await;
            self.history = Some((Instant::now(), answer.ok().and_then(Result::ok)));
        }
        self.history
            .as_ref()
            .and_then(|(_, history)| history.clone())
    }

    /// Reads the maps, and compares them with the reading before.
    pub(super) async fn board(&mut self, sort: SortKey, state_dir: &Path) -> anyhow::Result<Board> {
        let now = self.sample().await?;
        let mut board = Board::new(self.before.as_ref(), &now, sort);
        self.before = Some(now);
        match tokio::time::timeout(PATIENCE, ask_status(state_dir)).await {
            Ok(Ok(status)) => {
                let ready = if status.ready { "ready" } else { "not ready" };
                board.agent = format!("agent {} {ready}", status.version);
                board.is_ready = Some(status.ready);
                board.problems = status.problems.iter().map(Problem::line).collect();
                board.codes = status.problems.iter().map(|problem| problem.code).collect();
            }
            Ok(Err(_)) | Err(_) => NO_AGENT.clone_into(&mut board.agent),
        }
        board.history = self.history(state_dir).await;
        Ok(board)
    }
}
