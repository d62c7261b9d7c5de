//! Removes everything the agent made, and nothing else.
//!
//! First a plan, read from the kernel, the pins and the state directory by the rules of ownership; then its execution, in
//! an order in which packets go the kernel's way until the kernel's way goes too. One failure does not stop the rest.
//! The store is not touched: the lease runs out by itself, or is taken up again by the next agent.

mod plan;

use std::path::PathBuf;

use anyhow::bail;

use crate::{
    agent::{privileges, state_dir::StateDir},
    datapath::PinRoot,
    netlink::Netlink,
};
use plan::{Plan, Step};

/// What to clean up.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The pins.
    pub pins: PinRoot,
    /// The state directory.
    pub state_dir: PathBuf,
    /// subnet.env, if it is to go too.
    pub subnet_file: Option<PathBuf>,
    /// Leave what stock flannel would use: devices, routes and rules.
    pub keep_network: bool,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

/// Cleans up; the text to print.
pub async fn run(scope: &Scope) -> anyhow::Result<String> {
    // Without a state directory no agent of it can run. A dry run may look while one does.
    let state =
        if scope.state_dir.exists() && !scope.dry_run { Some(StateDir::claim(&scope.state_dir)?) } else { None };
    let (netlink, _events) = Netlink::connect()?;
    let plan = Plan::make(scope, &netlink).await?;
    if plan.steps.is_empty() {
        return Ok("nothing to clean up\n".to_owned());
    }
    if scope.dry_run {
        return Ok(lines(plan.steps.iter().map(|step| format!("would {step}"))));
    }
    privileges::check()?;
    let mut failures = 0;
    let mut done = Vec::new();
    for step in &plan.steps {
        match execute(step, &netlink).await {
            Ok(()) => done.push(format!("{step}: {}", step.outcome())),
            Err(error) => {
                failures += 1;
                done.push(format!("{step}: {error:#}"));
            }
        }
    }
    drop(state);
    if failures > 0 {
        bail!(
            "{failures} of {} steps failed; the others are done, and cleanup can be run again\n{}",
            plan.steps.len(),
            lines(done.into_iter())
        );
    }
    Ok(lines(done.into_iter()))
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

async fn execute(step: &Step, netlink: &Netlink) -> anyhow::Result<()> {
    match step {
        Step::Route { key, route } => match netlink.del_route(key, route).await {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        },
        Step::Nexthop(id) => match netlink.del_nexthop(*id).await {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        },
        Step::Device { index, .. } => match netlink.delete_link(*index).await {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        },
        Step::Rules(leftover) => Ok(leftover.remove().await?),
        _ => Ok(step.execute_locally()?),
    }
}
