//! The oracle: what each program does with a packet, written from docs/concepts/ and
//! docs/reference/reasons.md and nothing else. It calls none of the code the programs are made of.

mod direct;
mod flows;
mod guard;
mod l3_tunnel;
mod rewrite;
mod tunnel;
mod underlay;

pub(super) use self::tunnel::fill;

use std::net::IpAddr;

use flannel_common::abi::{mode::Mode, program::Program, reason::Reason};

use super::{
    generate::is_without_link,
    parse::{Layout, ethertype},
    world::{Agent, Tuple, World},
};

/// The expected result of one run.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Under what the packet is counted; each once.
    pub(super) reasons: Vec<Reason>,
    /// By chance it may be counted under this in place of the last of `reasons`.
    pub(super) or: Option<Reason>,
    pub(super) output: Output,
    pub(super) effect: Effect,
    /// The number of the flow that counts the packet, and the bytes of its frame.
    pub(super) counted: Option<(usize, usize)>,
}

/// The packet after the run.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// The packet as it was, for the kernel.
    Same,
    /// A packet that is sent on.
    Sent(Sent),
}

/// A packet that is sent on.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) bytes: Vec<u8>,
    /// Whose identification and source port are the program's choice: those of this flow, as the
    /// hash sees it.
    pub(super) outer_of: Option<Vec<u8>>,
    /// Offsets of checksums that are updated incrementally, for which zero has two forms.
    pub(super) sums: Vec<usize>,
}

/// The change in the maps, in addition to the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The flow that enters by this device, and its way back, are ended.
    Ended {
        enters: Tuple,
        by: u32,
        is_opening: bool,
    },
    /// The path to the peer of this subnet is plain for packets of this size. The flag is true if
    /// the path was not validated before.
    Validated {
        subnet: u8,
        len: u32,
        is_new: bool,
    },
    /// The guard remembers where a packet came from.
    Suspected {
        source: IpAddr,
        dropped: bool,
    },
    /// The path is not validated for a while.
    Held {
        subnet: u8,
    },
}

impl Expected {
    fn pass(reason: Reason) -> Self {
        Self {
            reasons: vec![reason],
            or: None,
            output: Output::Same,
            effect: Effect::Nothing,
            counted: None,
        }
    }

    fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// A usable flow counts the packet, also if that is left to the kernel in the end.
    fn counted(outcome: Result<Self, Reason>, number: usize, len: usize) -> Self {
        Self {
            counted: Some((number, len)),
            ..outcome.unwrap_or_else(Self::pass)
        }
    }

    fn sent(reason: Reason, sent: Sent) -> Self {
        Self {
            output: Output::Sent(sent),
            ..Self::pass(reason)
        }
    }
}

/// A packet at a hook.
#[derive(Clone, Copy, Debug)]
struct Packet<'a> {
    world: &'a World,
    layout: Layout,
    bytes: &'a [u8],
    /// Payload of one segment, 0 for a packet that is not to be cut.
    gso: usize,
}

impl Packet<'_> {
    /// The agent was there recently enough for flows to be replayed.
    fn allows_replay(&self) -> Result<(), Reason> {
        if self.world.agent == Agent::Late {
            Err(Reason::AgentLate)
        } else {
            Ok(())
        }
    }

    /// Packets may be put into pods straight from the external interface.
    fn comes_from_underlay(&self) -> Result<(), Reason> {
        if self.world.from_underlay {
            Ok(())
        } else {
            Err(Reason::NotLearned)
        }
    }
}

/// Returns the expected effect of the program on the packet. The node has both families, and
/// `world` describes one. Of the other the node has a tunnel, but neither peers nor flows.
pub(super) fn expect(program: Program, world: &World, bytes: &[u8], gso: usize) -> Expected {
    // A packet without an Ethernet header is judged as the same packet behind one.
    let framed = is_without_link(program).then(|| l3_tunnel::framed(bytes));
    let bytes = framed.as_deref().unwrap_or(bytes);
    let fast_only = matches!(
        program,
        Program::FromPod | Program::FromTunnel | Program::ToPod
    ) || is_without_link(program);
    let is_idle = (fast_only && world.mode != Mode::Fast)
        || (program == Program::ToTunnel && world.mode == Mode::Kernel);
    let idle_or = |reason| Expected::pass(if is_idle { Reason::ModeKernel } else { reason });
    if is_idle && program != Program::FromPod {
        return Expected::pass(Reason::ModeKernel);
    }
    match world.agent {
        Agent::Beats | Agent::Late => {}
        Agent::Gone => return idle_or(Reason::AgentGone),
        Agent::NotConfigured => return idle_or(Reason::NotConfigured),
    }
    let other = world.of_the_other_family();
    let Some(world) = [world, &other]
        .into_iter()
        .find(|world| world.net.ethertype == ethertype(bytes))
    else {
        let on_underlay = matches!(program, Program::FromUnderlay | Program::ToUnderlay);
        return idle_or(if on_underlay {
            Reason::NotTunnel
        } else {
            Reason::OtherProtocol
        });
    };
    let packet = &Packet {
        world,
        layout: Layout::of(world.net),
        bytes,
        gso,
    };
    let outcome = match program {
        Program::FromPod => {
            let sent_on = if is_idle {
                Err(Reason::ModeKernel)
            } else {
                flows::from_pod(packet)
            };
            guard::from_pod(packet, sent_on)
        }
        Program::FromTunnel => flows::from_tunnel(packet),
        Program::ToPod => flows::to_pod(packet),
        Program::ToTunnel => Ok(tunnel::to_tunnel(packet)),
        Program::FromUnderlay => underlay::from_underlay(packet),
        Program::ToUnderlay => underlay::to_underlay(packet),
        Program::FromL3Tunnel => l3_tunnel::receive(packet),
        Program::ToL3Tunnel => l3_tunnel::send(packet),
    };
    outcome.unwrap_or_else(Expected::pass)
}
