//! One answer of an agent, read as Prometheus reads it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::Node;

/// The port the agents of these tests listen on.
pub(crate) const PORT: u16 = 8472;
/// As a flag.
pub(crate) const PORT_FLAG: &str = "--healthz-port=8472";

/// Samples by name and labels, as they stand: `name{label="value"}`.
pub(crate) struct Scrape {
    pub(crate) text: String,
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    /// Of the agent on this node.
    pub(crate) fn of(node: &Node) -> Result<Self> {
        let (code, text) = node.http_get(PORT, "/metrics")?;
        ensure!(code == 200, "{code}: {text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line
                .rsplit_once(' ')
                .with_context(|| format!("no value: {line}"))?;
            Ok((
                name.to_owned(),
                value.parse().with_context(|| line.to_owned())?,
            ))
        };
        let samples = lines.map(sample).collect::<Result<_>>()?;
        Ok(Self { text, samples })
    }

    /// Returns the value of a sample; fails if it is missing.
    pub(crate) fn value(&self, sample: &str) -> Result<f64> {
        self.get(sample)
            .with_context(|| format!("no {sample} in\n{}", self.text))
    }

    /// A sample that may not be there.
    pub(crate) fn get(&self, sample: &str) -> Option<f64> {
        self.samples.get(sample).copied()
    }
}
