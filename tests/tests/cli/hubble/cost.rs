//! The cost of a client that follows, by the executable as it is shipped.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_hubble::observer::{GetFlowsRequest, GetFlowsResponse};
use flannel_tests::{
    Pair,
    agent::{NOT_AS_SHIPPED, is_as_shipped},
    fast::fast_pair,
    judged,
    load::flows::ManyFlows,
    not_run,
};

use super::{SOCKET, observer, socket};

/// 2,000 flows of three datagrams each.
const LOAD: ManyFlows = ManyFlows {
    from: 20,
    to: 100,
    rounds: 3,
    pps: 4_000,
};
/// The number of loads, one every two seconds: 1,000 new flows a second, and 10,000 that are known
/// at a time.
const LOADS: u32 = 10;
const PERIOD: Duration = Duration::from_secs(2);
/// The bounds that docs/design/flows.md names: of a CPU, and of memory in KiB.
const MOST_CPU: f64 = 0.02;
const MOST_MEMORY: u64 = 6 << 10;

/// Shares of a CPU and memory of an agent.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cpu: f64,
    kibibytes: u64,
}

/// The cost of an agent while new flows come.
fn cost(pair: &Pair) -> Result<Cost> {
    let (agent, begun) = (&pair.sender, Instant::now());
    let before = agent.cpu_time()?;
    for number in 1..=LOADS {
        let lost = LOAD.lost(&pair.near, &pair.far, pair.far.ip())?;
        ensure!(lost == 0, "{lost} datagrams lost");
        thread::sleep((PERIOD * number).saturating_sub(begun.elapsed()));
    }
    let used = agent.cpu_time()?.saturating_sub(before);
    let cpu = used.as_secs_f64() / begun.elapsed().as_secs_f64();
    Ok(Cost {
        cpu,
        kibibytes: agent.memory("VmRSS")? >> 10,
    })
}

/// Follows until `done`, and counts answers.
fn follow(socket: &Path, answers: &AtomicU64, done: &AtomicBool) -> Result<()> {
    let request = GetFlowsRequest {
        follow: true,
        ..GetFlowsRequest::default()
    };
    observer::ask(
        socket,
        "observer.Observer/GetFlows",
        &request,
        |_: GetFlowsResponse| {
            answers.fetch_add(1, Ordering::Relaxed);
            done.load(Ordering::Relaxed)
        },
    )
}

fn cost_with_follower(pair: &Pair) -> Result<(Cost, u64)> {
    let (socket, answers, done) = (
        socket(&pair.sender),
        AtomicU64::new(0),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&socket, &answers, &done));
        let cost = cost(pair);
        done.store(true, Ordering::Relaxed);
        // Its answer ends the follower.
        pair.near.ping(pair.far.ip())?;
        LOAD.lost(&pair.near, &pair.far, pair.far.ip())?;
        follower.join().ok().context("the follower panicked")??;
        Ok((cost?, answers.load(Ordering::Relaxed)))
    })
}

#[test]
fn a_client_that_follows_costs_little() -> Result<()> {
    if !is_as_shipped() {
        not_run("the cost of a client of Hubble", NOT_AS_SHIPPED);
        return Ok(());
    }
    judged("the cost of a client of Hubble", || {
        let pair = fast_pair(
            "hubblecost",
            &[
                &format!("--hubble-socket={SOCKET}"),
                "--flow-table-size=32768",
            ],
        )?;
        let alone = cost(&pair)?;
        let (followed, answers) = cost_with_follower(&pair)?;
        println!("without a client {alone:?}, with one {followed:?}, {answers} flows");
        ensure!(answers > 10_000, "only {answers} flows came to the client");
        ensure!(
            followed.cpu - alone.cpu <= MOST_CPU,
            "{alone:?}, then {followed:?}"
        );
        ensure!(
            followed.kibibytes <= alone.kibibytes + MOST_MEMORY,
            "{alone:?}, then {followed:?}"
        );
        Ok(())
    })
}
