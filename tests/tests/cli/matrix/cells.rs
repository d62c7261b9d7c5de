//! The answers of the commands.

use std::{collections::BTreeSet, fmt, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_cluster::report::NodeReport;
use flannel_status::Status;
use flannel_tests::Pair;
use serde_json::Value;

/// The port of the health checks.
pub(super) const HEALTH: u16 = 8081;
/// Commands that wait for an agent that is stopped.
const LIMIT: Duration = Duration::from_mins(1);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// It names these.
    Names(String),
    /// It says that this is not known.
    Unknown(String),
    /// It says that all is well.
    Well,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(what) => f.write_str(what),
            Self::Unknown(why) => write!(f, "unknown ({why})"),
            Self::Well => f.write_str("well"),
        }
    }
}

/// The answers of all, in the order of the page.
#[derive(Clone, Debug)]
pub(super) struct Cells(pub(super) [(&'static str, Cell); 5]);

impl Cells {
    /// The answers that list the problems of the status.
    pub(super) fn all_of_status(&self) -> impl Iterator<Item = String> {
        let lists = |who| ["status", "check", "cluster status"].contains(&who);
        self.0
            .iter()
            .filter(move |(who, _)| lists(*who))
            .map(|(_, cell)| cell.to_string())
    }

    pub(super) fn expect_none_well(&self) -> Result<()> {
        for (who, cell) in &self.0 {
            ensure!(*cell != Cell::Well, "{who} says that all is well: {self:?}");
        }
        Ok(())
    }
}

/// The findings of `check` before anything is broken.
#[derive(Default)]
pub(super) struct Baseline(BTreeSet<String>);

impl Baseline {
    pub(super) fn read(pair: &Pair) -> Result<Self> {
        let baseline = Self(findings(pair)?);
        let well = Self::default().cells(pair)?;
        let (story, ready) = (&well.0[2].1, &well.0[4].1);
        ensure!(
            *story == Cell::Well && *ready == Cell::Well,
            "nothing is broken: {well:?}"
        );
        Ok(baseline)
    }

    /// Asks all at once: each waits for an agent that is stopped.
    pub(super) fn cells(&self, pair: &Pair) -> Result<Cells> {
        let ended = || anyhow::anyhow!("the thread ended");
        thread::scope(|scope| {
            let check = scope.spawn(|| self.check(pair));
            let story = scope.spawn(|| explain(pair));
            let output = pair.sender.cli_any(&["status", "-o", "json"])?;
            let status: Status =
                serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
            Ok(Cells([
                ("status", of_status(output.code, &status)),
                ("check", check.join().map_err(|_panic| ended())??),
                ("explain", story.join().map_err(|_panic| ended())??),
                ("cluster status", of_cluster(&status)),
                ("/readyz", readyz(pair)),
            ]))
        })
    }

    fn check(&self, pair: &Pair) -> Result<Cell> {
        let new: BTreeSet<_> = findings(pair)?.difference(&self.0).cloned().collect();
        Ok(
            match new.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                [] => Cell::Well,
                ["agent_silent"] => Cell::Unknown("`agent_silent`".to_owned()),
                _ => Cell::Names(codes(new.iter().filter(|code| *code != "agent_silent"))),
            },
        )
    }
}

fn codes<T: fmt::Display>(codes: impl Iterator<Item = T>) -> String {
    let unique: BTreeSet<String> = codes.map(|code| format!("`{code}`")).collect();
    unique.into_iter().collect::<Vec<_>>().join(", ")
}

fn findings(pair: &Pair) -> Result<BTreeSet<String>> {
    let argv = pair.sender.argv(&["check", "-o", "json"]);
    let output = pair
        .sender
        .node()
        .command(argv)
        .any_code()
        .limit(LIMIT)
        .run()?;
    let report: Value =
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    let found = report["findings"].as_array().context("findings")?;
    Ok(found
        .iter()
        .filter_map(|finding| finding["code"].as_str())
        .map(str::to_owned)
        .collect())
}

fn of_status(code: i32, status: &Status) -> Cell {
    match (code, status.problems.is_empty()) {
        (2, _) => Cell::Unknown("exit status 2".to_owned()),
        (_, false) => Cell::Names(codes(
            status.problems.iter().map(|problem| problem.code.name()),
        )),
        _ => Cell::Well,
    }
}

fn of_cluster(status: &Status) -> Cell {
    let report = NodeReport::of_answer("n1", status);
    match (report.ready, report.problems.is_empty()) {
        (None, _) => Cell::Unknown("`?`".to_owned()),
        (_, false) => Cell::Names(codes(
            status.problems.iter().map(|problem| problem.code.name()),
        )),
        _ => Cell::Well,
    }
}

/// The answer of `explain`, whose exit status and verdict agree.
pub(super) fn explain(pair: &Pair) -> Result<Cell> {
    let (source, destination) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    let argv = pair.sender.argv(&[
        "explain",
        "-o",
        "json",
        "--proto=icmp",
        &source,
        &destination,
    ]);
    let output = pair
        .sender
        .node()
        .command(argv)
        .any_code()
        .limit(LIMIT)
        .run()?;
    let story: Value =
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    let topic = |state: &str| {
        let steps = story["steps"].as_array().context("steps")?;
        let step = steps
            .iter()
            .find(|step| step["state"] == state)
            .with_context(|| format!("{story:#}"))?;
        anyhow::Ok(step["topic"].as_str().unwrap_or_default().to_owned())
    };
    let reaches = match output.code {
        0 => Some(true),
        1 => Some(false),
        _ => None,
    };
    ensure!(
        story["verdict"]["reaches"] == serde_json::json!(reaches),
        "ended with {}: {story:#}",
        output.code
    );
    Ok(match output.code {
        0 => Cell::Well,
        1 => Cell::Names(format!("lost: `{}`", topic("fail")?)),
        _ => Cell::Unknown(format!("`{}`", topic("unknown")?)),
    })
}

fn readyz(pair: &Pair) -> Cell {
    match pair.sender.node().http_get(HEALTH, "/readyz") {
        Err(_) => Cell::Unknown("no answer".to_owned()),
        Ok((200, body)) if body == "flanneld is ready" => Cell::Well,
        Ok((200, _)) => Cell::Names("200, and names it".to_owned()),
        Ok((code, _)) => Cell::Names(code.to_string()),
    }
}
