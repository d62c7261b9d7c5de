//! The pictures of `status`, `check` and `top` in docs/images, made from real output in colour.
//!
//! After a change of what these commands print, the test fails until the pictures are made again:
//! run it with `FLANNEL_WRITE_DOCS=1`. Numbers, addresses and times may differ; labels, topics,
//! titles and columns may not.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair,
    fast::fast_pair,
    harness::picture::{COLUMNS, Picture},
    no_agent::Talk,
    not_run,
};

/// The words in front of two blanks, as in `ready      yes`, and the heads of tables.
fn labels(text: &str) -> BTreeSet<String> {
    let label = |line: &str| match line.split_once("  ") {
        Some((label, _)) if label.starts_with(|first: char| first.is_ascii_lowercase()) => {
            Some(label.to_owned())
        }
        _ => line
            .contains("SUBNET")
            .then(|| line.split_whitespace().collect::<Vec<_>>().join(" ")),
    };
    text.lines().filter_map(label).collect()
}

/// The topics of `check`, behind the level.
fn topics(text: &str) -> BTreeSet<String> {
    let findings = text.lines().filter(|line| {
        ["ok ", "warn ", "FAIL "]
            .iter()
            .any(|level| line.starts_with(level))
    });
    findings
        .filter_map(|line| line.get(6..22))
        .map(|topic| topic.trim().to_owned())
        .collect()
}

/// The titles of panels without their numbers, and the heads of their columns.
fn panels(text: &str) -> BTreeSet<String> {
    let words = |line: &str| {
        let words =
            line.split(|letter: char| !letter.is_alphabetic() && letter != '/' && letter != '-');
        words
            .filter(|word| word.len() > 1 && *word != "more")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines = text
        .lines()
        .filter(|line| line.starts_with('┌') || line.contains("PKT/S"));
    lines
        .flat_map(|line| {
            words(
                &line
                    .replace(" peer ", " peers ")
                    .replace(" flow ", " flows "),
            )
        })
        .collect()
}

/// Major and minor number of the kernel that a text of `check` names.
fn kernel(text: &str) -> Option<&str> {
    let release = text.split_once("Linux ")?.1;
    release
        .match_indices('.')
        .nth(1)
        .map(|(end, _)| &release[..end])
}

/// The output without what a kernel's builder added to its version.
fn without_local_version(output: &str) -> String {
    let shorten = |line: &str| match line.split_once("Linux ") {
        Some((before, release)) => format!(
            "{before}Linux {}",
            release.split('-').next().unwrap_or_default()
        ),
        None => line.to_owned(),
    };
    output.lines().map(|line| shorten(line) + "\n").collect()
}

fn check_picture(agent: &Agent) -> Result<()> {
    let output = without_local_version(&agent.cli_any(&["check", "--color=always"])?.stdout);
    let picture = Picture("check");
    if kernel(&picture.kept_text()) != kernel(&output) && !Picture::are_written() {
        not_run(
            "the picture of check",
            "it was made on another kernel, which has other findings",
        );
        return Ok(());
    }
    picture.keep(&output, topics)
}

fn top_picture(pair: &Pair, talks: &mut [Talk]) -> Result<()> {
    let agent = &pair.sender;
    let argv = [
        vec!["env".to_owned(), format!("COLUMNS={COLUMNS}")],
        agent.argv(&["top", "--once", "--interval=2s", "--color=always"]),
    ];
    let top = agent.node().spawn("top", argv.concat())?;
    while top.is_running() {
        for (number, talk) in (1..).zip(talks.iter_mut()) {
            talk.exchange(20 * number)?;
        }
    }
    top.wait_success(Duration::from_secs(10))?;
    Picture("top").keep(&top.log(), panels)
}

#[test]
fn pictures_of_commands_are_as_the_commands_are() -> Result<()> {
    let pair = fast_pair("pictures", &["--peer-echo-interval=10"])?;
    let mut talks = Vec::new();
    for _ in 0..3 {
        talks.push(pair.talk()?);
    }
    for talk in &mut talks {
        pair.talk_until_replayed(talk, 100)?;
    }
    pair.sender.wait_status("a peer that answers", |status| {
        let echo = &status["peers"][0]["echo"];
        ensure!(echo["state"] == "answering", "{echo}");
        Ok(())
    })?;
    let status = pair.sender.cli(&["status", "--color=always"])?.stdout;
    Picture("status").keep(&status, labels).context("status")?;
    check_picture(&pair.sender).context("check")?;
    top_picture(&pair, &mut talks).context("top")
}

#[test]
fn the_form_of_a_picture_is_its_words() {
    let status = "ready      yes\nNODE  SUBNET  WAY\n";
    assert_eq!(
        labels(status),
        BTreeSet::from(["ready".to_owned(), "NODE SUBNET WAY".to_owned()])
    );
    assert_eq!(
        topics("ok    kernel          Linux 6.1\nthis node can do mode fast\n"),
        BTreeSet::from(["kernel".to_owned()])
    );
    assert_eq!(
        panels("┌ 3 flows by rate ──┐\n│FROM  PKT/S│\n│10.1.0.2│"),
        panels("┌ 1 flow by rate ──┐\n│FROM  PKT/S│")
    );
    assert_eq!(
        kernel(&without_local_version("ok  Linux 6.18.44-x-1\n")),
        Some("6.18")
    );
}
