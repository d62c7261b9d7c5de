//! One packet after the other through a program and through the oracle, compared.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use aya::{
    Pod,
    programs::{SchedClassifier, TestRun as _, TestRunOptions},
};
use flannel_common::{
    abi::{
        program::Program,
        reason::{Reason, Verdict},
        stats::Counter,
    },
    flow::Flow,
    flow::flow_key::FlowKey,
};
use flannel_datapath::kernel::clock;

use super::{
    expect::{Expected, Output, Sent, expect, fill},
    generate::Case,
    parse::{ETHERNET, Layout, ethertype},
    stage::Stage,
    sums,
    world::{Known, World},
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC, context},
    fast::Words,
};

/// A program under examination, of one family.
pub(super) struct Runner<'a, A: Words>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    program: Program,
    loaded: SchedClassifier,
    pub(super) stage: Stage<'a, A>,
    counted: BTreeMap<Reason, Counter>,
    ports: HashMap<Vec<u8>, [u8; 2]>,
    out: Vec<u8>,
    /// Packets that were run.
    pub(super) executed: u64,
    /// The same packets by reason.
    pub(super) reached: BTreeMap<Reason, u64>,
}

impl<'a, A: Words> Runner<'a, A>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    pub(super) fn new(bench: &'a mut Bench, program: Program) -> Self {
        let loaded = SchedClassifier::from_pin(bench.pins().program(program))
            .expect("the program is pinned");
        let stage = Stage::new(bench);
        let counted = Reason::ALL
            .map(|reason| (reason, count(&stage, program, reason)))
            .into();
        let (ports, out) = (HashMap::new(), vec![0; 4096]);
        Self {
            program,
            loaded,
            stage,
            counted,
            ports,
            out,
            executed: 0,
            reached: BTreeMap::new(),
        }
    }

    /// Runs a packet, unless the kernel refuses to: one without a whole IP header.
    pub(super) fn run(&mut self, world: &World, case: &Case) -> Result<(), String> {
        if is_refused(&case.bytes) {
            return Ok(());
        }
        self.stage.refresh(world);
        let layout = Layout::of(world.net);
        let gso = usize::try_from(case.gso).expect("small");
        let expected = expect(self.program, world, &case.bytes, gso);
        let before = clock::now_ns();
        let (action, len) = self.test_run(case)?;
        let found = self.out[..len].to_vec();
        let outcome = self
            .check_output(layout, &case.bytes, &expected, &found)
            .and_then(|()| self.check_counters(&expected, case.bytes.len(), action, len))
            .and_then(|()| self.stage.check(&expected, before));
        self.executed += 1;
        outcome.map_err(|why| dump(&why, world, case, &expected, action, &found))
    }

    /// The kernel's verdict and the length of what came out.
    fn test_run(&mut self, case: &Case) -> Result<(i32, usize), String> {
        let context = context(case.gso);
        let mut options = TestRunOptions::new();
        options.data_in = Some(&case.bytes);
        options.data_out = Some(&mut self.out);
        options.ctx_in = Some(&context);
        let result = self
            .loaded
            .test_run(options)
            .map_err(|error| format!("{error:?}: {case:?}"))?;
        Ok((
            result.return_value.cast_signed(),
            result.data_size_out as usize,
        ))
    }

    fn check_output(
        &mut self,
        layout: Layout,
        given: &[u8],
        expected: &Expected,
        found: &[u8],
    ) -> Result<(), String> {
        match &expected.output {
            Output::Same if found == given => Ok(()),
            Output::Same => Err("the packet was changed".to_owned()),
            Output::Sent(sent) => self.check_sent(layout, sent, found),
        }
    }

    fn check_sent(&mut self, layout: Layout, sent: &Sent, found: &[u8]) -> Result<(), String> {
        let mut wanted = sent.bytes.clone();
        if let Some(flow) = &sent.outer_of {
            fill(layout, &mut wanted, found);
            self.check_source_port(layout, flow, found)?;
        }
        let mut is = found.to_vec();
        let shorter = wanted.len().min(is.len());
        for &at in sent.sums.iter().filter(|at| **at + 2 <= shorter) {
            let word = |bytes: &[u8]| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            if sums::same(word(&wanted), word(&is)) {
                is[at..at + 2].copy_from_slice(&wanted[at..at + 2]);
            }
        }
        let differing = (0..wanted.len().max(is.len()))
            .filter(|at| wanted.get(*at) != is.get(*at))
            .collect::<Vec<_>>();
        if differing.is_empty() {
            Ok(())
        } else {
            Err(format!("bytes {differing:?} of {}", hex(&wanted)))
        }
    }

    /// In the range, and the same for all packets of a flow.
    fn check_source_port(
        &mut self,
        layout: Layout,
        flow: &[u8],
        found: &[u8],
    ) -> Result<(), String> {
        let at = ETHERNET + layout.header;
        let port = found
            .get(at..at + 2)
            .ok_or("cut")?
            .try_into()
            .expect("two bytes");
        if !(32768..60999).contains(&u16::from_be_bytes(port)) {
            return Err(format!("source port {}", u16::from_be_bytes(port)));
        }
        let is_same = flow.is_empty() || *self.ports.entry(flow.to_vec()).or_insert(port) == port;
        if is_same {
            Ok(())
        } else {
            Err("the flow had another source port".to_owned())
        }
    }

    /// The packet is counted under the reasons expected, with its length, and the verdict is
    /// theirs.
    fn check_counters(
        &mut self,
        expected: &Expected,
        given: usize,
        action: i32,
        len: usize,
    ) -> Result<(), String> {
        let (last, others) = expected.reasons.split_last().expect("a reason");
        let last = match expected.or {
            Some(other) if self.count(*last) == self.counted[last] => other,
            _ => *last,
        };
        for (reason, len) in others
            .iter()
            .map(|reason| (*reason, given))
            .chain([(last, len)])
        {
            let counted = self.counted.get_mut(&reason).expect("every reason");
            counted.packets += 1;
            counted.bytes += len as u64;
            *self.reached.entry(reason).or_default() += 1;
        }
        let wanted = match last.verdict() {
            Verdict::Pass => TC_ACT_UNSPEC,
            Verdict::Redirect => TC_ACT_REDIRECT,
            Verdict::Drop => TC_ACT_SHOT,
        };
        let wrong = |reason: &&Reason| self.count(**reason) != self.counted[*reason];
        if others.iter().chain([&last]).any(|reason| wrong(&reason)) {
            return Err(format!("counted otherwise: {}", self.miscounted()));
        }
        if action == wanted {
            Ok(())
        } else {
            Err(format!("the action is {action}"))
        }
    }

    fn count(&self, reason: Reason) -> Counter {
        count(&self.stage, self.program, reason)
    }

    fn miscounted(&self) -> String {
        Reason::ALL
            .into_iter()
            .fold(String::new(), |mut text, reason| {
                let (found, wanted) = (self.count(reason), self.counted[&reason]);
                if found != wanted {
                    write!(text, "{} {wanted:?} is {found:?}; ", reason.name())
                        .expect("a string takes it");
                }
                text
            })
    }

    /// Checks that the counters and the maps changed only as the packets were expected to change
    /// them.
    pub(super) fn check_rest(&mut self) -> Result<(), String> {
        let miscounted = self.miscounted();
        if miscounted.is_empty() {
            self.stage.check_rest()
        } else {
            Err(miscounted)
        }
    }
}

fn count<A: Words>(stage: &Stage<'_, A>, program: Program, reason: Reason) -> Counter
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    stage.bench.maps.stats.get(program, reason).expect("STATS")
}

/// The kernel runs no program on an IP packet that has not even its header.
fn is_refused(bytes: &[u8]) -> bool {
    let least = match bytes.get(12..14) {
        Some(_) if ethertype(bytes) == 0x0800 => 20,
        Some(_) if ethertype(bytes) == 0x86dd => 40,
        _ => 1,
    };
    bytes.len() < ETHERNET + least
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes it");
        text
    })
}

fn dump(
    why: &str,
    world: &World,
    case: &Case,
    expected: &Expected,
    action: i32,
    found: &[u8],
) -> String {
    let is_concerned = |flow: &&Known| case.story[0].contains(&format!("{:?}", flow.enters.ports));
    let flows = world.flows.iter().filter(is_concerned).copied().collect();
    let world = World {
        flows,
        ..world.clone()
    };
    format!(
        "{why}\n\nexpected {:?} {:?} or {:?}, counted by flow {:?}\nfound action {action}, \
         {}\n\npacket {} ({} bytes, gso {})\n{:#?}\n\n{world:?}",
        expected.reasons,
        expected.effect,
        expected.or,
        expected.counted,
        hex(found),
        hex(&case.bytes),
        case.bytes.len(),
        case.gso,
        case.story,
    )
}
