//! The pictures of `cluster status`, `cluster top` and `connectivity test`.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use flannel_tests::{harness::picture::Picture, kubernetes::Kubernetes};

use super::operator;
use crate::traffic::Traffic;

/// A test in one mode, on a machine under load.
const RUN: Duration = Duration::from_mins(4);

pub(crate) fn pictures_of_the_commands_are_as_the_commands_are(cluster: &Kubernetes) -> Result<()> {
    let output = |words: &[&str]| -> Result<String> {
        Ok(operator(cluster, words)?.limit(RUN).run()?.stdout)
    };
    let status = output(&["cluster", "status", "--wait=60s", "--color=always"])?;
    Picture("cluster-status")
        .keep(&status, heads)
        .context("cluster status")?;
    let traffic = Traffic::start(cluster)?;
    let top = output(&[
        "cluster",
        "top",
        "--interval=5s",
        "--count=1",
        "--color=always",
    ])?;
    traffic.expect_complete()?;
    Picture("cluster-top")
        .keep(&top, columns)
        .context("cluster top")?;
    let test = output(&["connectivity", "test", "--color=always"])?;
    Picture("connectivity-test")
        .keep(&test, titles)
        .context("connectivity test")
}

/// The heads of tables.
fn heads(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter(|line| line.starts_with("NODE"));
    heads
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The heads of the columns of rates, within their frames.
fn columns(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter(|line| line.contains("PKT/S"));
    heads
        .map(|line| {
            line.replace('│', " ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// The titles of the checks with their results, and the sum.
fn titles(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter(|line| line.ends_with(": ok") || line.ends_with(" passed"))
        .map(str::to_owned)
        .collect()
}
