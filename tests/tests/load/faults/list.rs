//! The faults, each with its begin and its end.

use std::{fmt::Write as _, time::Duration};

use anyhow::Result;
use flannel_tests::{StockNode, faults::proxy::Manner};
use nix::sys::signal::Signal;

use self::What::{Answers, Death, Node};
use super::ground::Ground;

/// Something that goes wrong for a while.
pub(super) struct Fault {
    /// As the table has it.
    pub(super) name: &'static str,
    what: What,
}

enum What {
    /// The manner in which the proxy treats the store's answers.
    Answers(Manner),
    /// The step that harms the agent or its node, and the step that ends the harm.
    Node(Step, Step),
    /// The same, but the agent is dead during the fault.
    Death(Step, Step),
}

type Step = fn(&Ground) -> Result<()>;

/// All of them, in the order in which they happen.
pub(super) const FAULTS: [Fault; 12] = [
    Fault {
        name: "etcd answers a second late",
        what: Answers(Manner::Slow),
    },
    Fault {
        name: "etcd's answers are garbled",
        what: Answers(Manner::Garbled),
    },
    Fault {
        name: "etcd's answers are cut",
        what: Answers(Manner::Cut),
    },
    Fault {
        name: "etcd closes every connection",
        what: Answers(Manner::Closed),
    },
    Fault {
        name: "etcd accepts and says nothing",
        what: Answers(Manner::Silent),
    },
    Fault {
        name: "1,000 leases that are refused",
        what: Node(add_refused_leases, delete_refused_leases),
    },
    Fault {
        name: "the agent has no descriptors left",
        what: Node(take_descriptors, give_descriptors),
    },
    Fault {
        name: "the agent is stopped (SIGSTOP)",
        what: Node(stop, go_on),
    },
    Fault {
        name: "the agent is killed and started again",
        what: Death(kill, restart),
    },
    Fault {
        name: "the disk of subnet.env is full",
        what: Node(fill_disk, empty_disk),
    },
    Fault {
        name: "10,000 routes of others come and go",
        what: Node(add_routes, delete_routes),
    },
    Fault {
        name: "500 links of others come and go",
        what: Node(add_links, delete_links),
    },
];

impl Fault {
    /// Makes it happen.
    pub(super) fn begin(&self, ground: &Ground) -> Result<()> {
        match self.what {
            Answers(manner) => ground.proxy.set(manner),
            Node(begin, _) | Death(begin, _) => begin(ground)?,
        }
        Ok(())
    }

    /// Ends it.
    pub(super) fn end(&self, ground: &Ground) -> Result<()> {
        match self.what {
            Answers(_) => ground.proxy.set(Manner::Faithful),
            Node(_, end) | Death(_, end) => end(ground)?,
        }
        Ok(())
    }

    /// Returns true if the agent is dead during the fault.
    pub(super) const fn kills(&self) -> bool {
        matches!(self.what, Death(..))
    }
}

const ROUTES: u32 = 10_000;
const LINKS: u32 = 500;
/// Of the links of others: deleted one by one, each would take the kernel a grace period.
const GROUP: u32 = 77;

/// Returns leases that agents refuse: their addresses are malformed, and their keys lie outside the
/// network.
fn refused_leases() -> Vec<StockNode> {
    let lease = |number: u16| {
        let [high, low] = (number * 16).to_be_bytes();
        StockNode::named(
            &format!("10.245.{high}.{low}-28"),
            &"x".repeat(1_000),
            &"y".repeat(1_000),
        )
    };
    (0..1_000).map(lease).collect()
}

fn add_refused_leases(ground: &Ground) -> Result<()> {
    ground.nodes.etcd.put_leases(&refused_leases())
}

fn delete_refused_leases(ground: &Ground) -> Result<()> {
    ground.nodes.etcd.delete_leases(&refused_leases())
}

fn limit_descriptors(ground: &Ground, limit: &str) -> Result<()> {
    ground
        .nodes
        .a
        .sh(&format!(
            "prlimit --pid {} --nofile={limit}:",
            ground.agent.child().pid()
        ))
        .map(drop)
}

/// Open descriptors stay open, and no more can be opened. The agent's connection to the store is
/// cut, so that it needs a new descriptor.
fn take_descriptors(ground: &Ground) -> Result<()> {
    ground.proxy.set(Manner::Closed);
    limit_descriptors(ground, "3")
}

fn give_descriptors(ground: &Ground) -> Result<()> {
    ground.proxy.set(Manner::Faithful);
    limit_descriptors(ground, "1024")
}

fn stop(ground: &Ground) -> Result<()> {
    ground.agent.child().signal(Signal::SIGSTOP)
}

fn go_on(ground: &Ground) -> Result<()> {
    ground.agent.child().signal(Signal::SIGCONT)
}

fn kill(ground: &Ground) -> Result<()> {
    ground.agent.kill9()
}

fn restart(ground: &Ground) -> Result<()> {
    ground.agent.restart()
}

/// A new agent has to write `subnet.env` and cannot.
fn fill_disk(ground: &Ground) -> Result<()> {
    let node = &ground.nodes.a;
    ground.agent.kill9()?;
    for filler in ["filler", "rest"] {
        // It ends with the disk.
        node.command([
            "dd",
            "if=/dev/zero",
            &format!("of=/run/flannel/{filler}"),
            "bs=1k",
        ])
        .expect_code(1)
        .run()?;
        node.sh("rm -f /run/flannel/subnet.env")?;
    }
    ground.agent.restart()
}

fn empty_disk(ground: &Ground) -> Result<()> {
    ground
        .nodes
        .a
        .sh("rm -f /run/flannel/filler /run/flannel/rest")
        .map(drop)
}

/// Runs a batch of `ip` on the agent's node.
fn batch(ground: &Ground, count: u32, line: impl Fn(u32) -> String) -> Result<()> {
    let mut lines = String::new();
    for number in 0..count {
        writeln!(lines, "{}", line(number))?;
    }
    let limit = Duration::from_mins(1);
    ground
        .nodes
        .a
        .command(["ip", "-batch", "-"])
        .input(&lines)
        .limit(limit)
        .run()
        .map(drop)
}

fn route(number: u32) -> String {
    let [_, _, high, low] = number.to_be_bytes();
    format!("10.77.{high}.{low}/32 dev lo")
}

fn add_routes(ground: &Ground) -> Result<()> {
    batch(ground, ROUTES, |number| {
        format!("route add {}", route(number))
    })
}

fn delete_routes(ground: &Ground) -> Result<()> {
    batch(ground, ROUTES, |number| {
        format!("route delete {}", route(number))
    })
}

fn add_links(ground: &Ground) -> Result<()> {
    batch(ground, LINKS, |number| {
        format!("link add foreign{number} group {GROUP} type bridge")
    })
}

fn delete_links(ground: &Ground) -> Result<()> {
    ground
        .nodes
        .a
        .sh(&format!("ip link delete group {GROUP}"))
        .map(drop)
}
