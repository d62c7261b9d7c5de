//! A store that is full of nonsense, or changes it all the time: the log and `status` stay
//! readable.

use std::{fs, time::Instant};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, StockNode, TwoNodes,
    cluster::{LEASES, VXLAN},
};

const REWRITES: usize = 200;
const REFUSED: usize = 2000;
const MALFORMED: usize = 47;
/// Bytes of a value that is cut; etcd takes 1.5 MB.
const LARGE: usize = 250_000;
const HUGE: usize = 900_000;

/// Lets the agent work through all that was written so far: changes arrive in order.
fn catch_up(pair: &TwoNodes, agent: &Agent, peers: u8) -> Result<()> {
    let (address, mac) = (
        format!("192.168.1.{}", 100 + peers),
        format!("02:00:00:00:01:{peers:02x}"),
    );
    // Behind the subnets that the agent chooses from.
    StockNode::vxlan(200 + peers, &address, &mac).put(&pair.etcd)?;
    agent.wait_peers(usize::from(peers))
}

fn log_size(agent: &Agent) -> Result<u64> {
    Ok(fs::metadata(agent.child().log_path())?.len())
}

/// Lines the log may have of one kind since then: twenty a minute, a count after the first burst,
/// and one a minute.
fn lines_allowed(since: Instant) -> usize {
    usize::try_from(22 * (since.elapsed().as_secs() / 60 + 1)).unwrap_or(usize::MAX)
}

#[test]
fn a_flood_of_refused_leases_fills_neither_log_nor_status() -> Result<()> {
    let pair = TwoNodes::new("floods", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;

    let (begun, before) = (Instant::now(), log_size(&agent)?);
    let key = format!("{LEASES}10.244.250.0-24");
    pair.etcd.client(async |etcd| {
        for n in 0..REWRITES {
            // Another length each time, so that each is another reason.
            let value = format!(
                r#"{{"PublicIP":"192.168.1.99","BackendType":"{}"}}"#,
                "x".repeat(LARGE + n)
            );
            etcd.put(key.as_str(), value, None).await?;
        }
        Ok(())
    })?;
    catch_up(&pair, &agent, 1)?;
    let rewritten = log_size(&agent)? - before;
    println!(
        "{REWRITES} rewrites of one lease with {LARGE} bytes: the log grew by {rewritten} bytes"
    );
    ensure!(rewritten < 20_000, "the log grew by {rewritten} bytes");

    pair.etcd.client(async |etcd| {
        for n in 0..REFUSED {
            etcd.put(format!("{LEASES}nonsense-{n}"), "{}", None)
                .await?;
        }
        Ok(())
    })?;
    catch_up(&pair, &agent, 2)?;
    let lines = agent.log_count("refused: ");
    println!(
        "{REFUSED} refused leases: {lines} lines of the log in {:?}",
        begun.elapsed()
    );
    ensure!(
        lines <= lines_allowed(begun),
        "{lines} lines in {:?}",
        begun.elapsed()
    );
    agent.wait_log(&["more; `flannel-agent status` lists leases that are refused now"])?;

    expect_a_short_status(&agent)
}

/// The status lists a part of what was refused, and counts all of it.
fn expect_a_short_status(agent: &Agent) -> Result<()> {
    let status = agent.status()?;
    ensure!(
        status["rejected"]
            .as_array()
            .is_some_and(|rows| rows.len() == 100),
        "{}",
        status["rejected"]
    );
    ensure!(
        status["rejected_total"] == REFUSED + 1,
        "{}",
        status["rejected_total"]
    );
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains(&format!(
            "and {} more of this kind; -o json lists them",
            REFUSED + 1 - 5
        )),
        "{text}"
    );
    ensure!(status["ready"] == true, "{status}");
    Ok(())
}

#[test]
fn huge_values_are_shown_by_their_beginning() -> Result<()> {
    let pair = TwoNodes::new("huge", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let before = log_size(&agent)?;
    pair.etcd.client(async |etcd| {
        etcd.put(
            format!("{LEASES}{}", "\u{1b}[31m\n".repeat(HUGE / 6)),
            "{}",
            None,
        )
        .await?;
        etcd.put(
            format!("{LEASES}10.244.250.0-24"),
            format!(r#"{{"PublicIP":"{}"}}"#, "é".repeat(HUGE / 2)),
            None,
        )
        .await?;
        for n in 2..MALFORMED {
            let value = format!(
                r#"{{"PublicIP":"192.168.1.99","BackendType":{}1}}"#,
                "[".repeat(20_000 + n)
            );
            etcd.put(format!("{LEASES}10.9.{n}.0-24"), value, None)
                .await?;
        }
        Ok(())
    })?;
    catch_up(&pair, &agent, 1)?;
    let status = agent.wait_status("the refused leases", |status| {
        ensure!(status["rejected_total"] == MALFORMED);
        Ok(())
    })?;
    let (size, text) = (status.to_string().len(), agent.cli_any(&["status"])?.stdout);
    let longest = text.lines().map(str::len).max().context("a line")?;
    println!("{MALFORMED} hostile leases: status has {size} bytes, the longest line {longest}");
    ensure!(
        size < 50_000 && longest < 1000,
        "{size} bytes, the longest line {longest}"
    );
    ensure!(text.contains("bytes left out)"), "{text}");
    let grown = log_size(&agent)? - before;
    ensure!(grown < 50_000, "the log grew by {grown} bytes");
    Ok(())
}
