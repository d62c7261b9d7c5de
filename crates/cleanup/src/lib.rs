//! Removes everything that the agent made, and nothing else.
//!
//! First it makes a plan from the kernel, the pins and the state directory, by the rules of
//! ownership. Then it executes the plan, in an order in which packets take the kernel's path until
//! that is removed too. One failure does not stop the rest. Sysctls that the agent changed come
//! last, before files only: the decision to set them back needs the state after the replay of
//! packets has ended. The store is not touched: the lease runs out by itself, or is taken up again
//! by the next agent.

pub mod connections;
mod plan;
mod running_agents;
mod scope;
mod sysctls;

use anyhow::{Context as _, bail};
use flannel_claims::state_dir::StateDir;
use flannel_netlink::{Netlink, NetlinkError};
use flannel_privileges as privileges;
use plan::{Plan, PlanStep};
pub use scope::{CleanupScope, When};

/// Cleans up; the text to print.
pub async fn run(scope: &CleanupScope) -> anyhow::Result<String> {
    // Without a state directory no agent of it can run. A dry run may look while one does.
    let state = if scope.state_dir.exists() && !scope.dry_run {
        Some(StateDir::claim(&scope.state_dir, None)?)
    } else {
        None
    };
    if !scope.dry_run {
        running_agents::refuse_others(&scope.state_dir, scope.pins.root()).await?;
    }
    let (netlink, _events) = Netlink::connect()?;
    let plan = Plan::make(scope, &netlink).await?;
    let sysctls = || -> anyhow::Result<Vec<PlanStep>> {
        let steps = sysctls::plan(&scope.state_dir, scope.restore_sysctls, scope.keep_network)?;
        Ok(steps.into_iter().map(PlanStep::Sysctl).collect())
    };
    if scope.dry_run {
        let steps: Vec<PlanStep> = [plan.steps, sysctls()?, plan.files].concat();
        return Ok(done_or_nothing(
            steps.iter().map(|step| format!("would {step}")),
        ));
    }
    privileges::check()?;
    // A record that cannot be read is known before anything is removed.
    sysctls()?;
    let mut work = Work {
        netlink,
        done: Vec::new(),
        failures: 0,
    };
    work.execute(&plan.steps).await;
    work.execute(&sysctls()?).await;
    work.execute(&plan.files).await;
    let Work { done, failures, .. } = work;
    drop(state);
    if failures > 0 {
        bail!(
            "{failures} of {} steps failed; the others are done, and cleanup can be run again\n{}",
            done.len(),
            lines(done.into_iter())
        );
    }
    Ok(done_or_nothing(done.into_iter()))
}

/// The steps done so far.
struct Work {
    netlink: Netlink,
    done: Vec<String>,
    failures: usize,
}

impl Work {
    async fn execute(&mut self, steps: &[PlanStep]) {
        for step in steps {
            self.done.push(match execute(step, &self.netlink).await {
                Ok(()) => format!("{step}: {}", step.outcome()),
                Err(error) => {
                    self.failures += 1;
                    format!("{step}: {error:#}")
                }
            });
        }
    }
}

fn done_or_nothing(steps: impl Iterator<Item = String>) -> String {
    let text = lines(steps);
    if text.is_empty() {
        "nothing to clean up\n".to_owned()
    } else {
        text
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

/// Takes an object that is gone by now for a removed one.
fn unless_gone(removed: Result<(), NetlinkError>) -> anyhow::Result<()> {
    match removed {
        Err(error) if !error.is_gone() => Err(error.into()),
        _ => Ok(()),
    }
}

async fn execute(step: &PlanStep, netlink: &Netlink) -> anyhow::Result<()> {
    match step {
        PlanStep::Route { key, route } => unless_gone(netlink.del_route(key, route).await),
        PlanStep::Nexthop(id) => unless_gone(netlink.del_nexthop(*id).await),
        PlanStep::Association(association) => {
            unless_gone(netlink.del_tunnel_association(association).await)
        }
        PlanStep::Policy(key) => unless_gone(netlink.del_tunnel_policy(key).await),
        PlanStep::Device { index, .. } => unless_gone(netlink.delete_link(*index).await),
        PlanStep::Rules(leftover) => Ok(leftover.remove().await?),
        PlanStep::Command(peer) => Ok(flannel_extension::undo(peer).await?),
        PlanStep::CloudRoute(route) => {
            let by_hand = || format!("it can be removed by `{}`", route.by_hand());
            flannel_cloud::undo(route).await.with_context(by_hand)
        }
        _ => Ok(step.execute_locally()?),
    }
}
