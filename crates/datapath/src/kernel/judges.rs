//! BPF programs at netfilter's hooks ([`BPF_PROG_TYPE_NETFILTER`, Linux
//! 6.4](https://docs.kernel.org/bpf/libbpf/program_types.html)): they can judge each packet by
//! whatever they like, so no packet may bypass a hook that has one.
//!
//! No table of rules has them, and their list takes `CAP_SYS_ADMIN`. So our program `find_judges`,
//! which is pinned and not attached, looks for them in the network namespace of the process that
//! runs it.

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use flannel_common::abi::{
    mode::Mode,
    program::{FIND_JUDGES, HOOKS, netfilter_program_at, too_many_functions_at},
};
use flannel_firewall::RuleLimit;
use flannel_host::family::Family;

use crate::{DatapathError, PinRoot, maps::room};

/// Names of the hooks, by number.
const NAMES: [&str; HOOKS as usize] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
const INPUT: u32 = 1;
const OUTPUT: u32 = 3;
const POSTROUTING: u32 = 4;

/// Looks for them, without opening the pin each time.
#[derive(Debug)]
pub struct JudgeFinder {
    program: Option<SchedClassifier>,
}

impl JudgeFinder {
    /// Opens the pinned program. Without it no program is found.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        let pin = pins.judge_finder();
        let open = || SchedClassifier::from_pin(&pin).map_err(DatapathError::program(FIND_JUDGES));
        Ok(Self {
            program: if pin.exists() { Some(open()?) } else { None },
        })
    }

    /// Looks in the network namespace of the calling thread.
    pub fn find(&self) -> Result<Judges, DatapathError> {
        let Some(program) = &self.program else {
            return Ok(Judges::default());
        };
        let found = |family| {
            let frame = room::frame(family);
            let mut options = TestRunOptions::new();
            options.data_in = Some(&frame);
            program
                .test_run(options)
                .map(|answer| answer.return_value)
                .map_err(DatapathError::program(FIND_JUDGES))
        };
        Ok(Judges {
            v4: found(Family::V4)?,
            v6: found(Family::V6)?,
        })
    }
}

/// The hooks at which such programs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judges {
    v4: u32,
    v6: u32,
}

impl Judges {
    /// Each of them as people call it.
    pub fn names(self) -> Vec<String> {
        let of_family = |(family, found): (Family, u32)| {
            let at = move |(hook, name): (u32, &&str)| {
                let program = (found & netfilter_program_at(hook) != 0)
                    .then(|| format!("a BPF program at the netfilter hook {name} of {family}"));
                let unknown = (found & too_many_functions_at(hook) != 0).then(|| {
                    format!("functions that are not known at the netfilter hook {name} of {family}")
                });
                program.into_iter().chain(unknown)
            };
            (0..).zip(&NAMES).flat_map(at)
        };
        [(Family::V4, self.v4), (Family::V6, self.v6)]
            .into_iter()
            .flat_map(of_family)
            .collect()
    }

    /// The highest mode in which they see each packet, if that is not the highest. In mode `encap`
    /// tunnel packets that leave do not pass OUTPUT and POSTROUTING.
    pub fn limit(self, has_tunnel: bool) -> Option<RuleLimit> {
        let is_at = |hook| {
            let judged = netfilter_program_at(hook) | too_many_functions_at(hook);
            (self.v4 | self.v6) & judged != 0
        };
        let of_pods =
            (0..HOOKS).any(|hook| is_at(hook) && (has_tunnel || !matches!(hook, INPUT | OUTPUT)));
        let of_sent = has_tunnel && (is_at(OUTPUT) || is_at(POSTROUTING));
        let most = if of_sent { Mode::Kernel } else { Mode::Encap };
        of_pods.then(|| RuleLimit {
            most,
            reason: format!("{} may judge each packet", self.names().join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hook: u32) -> Judges {
        Judges {
            v4: netfilter_program_at(hook),
            v6: 0,
        }
    }

    #[test]
    fn the_hook_decides_on_the_mode() {
        let most = |judges: Judges, has_tunnel| judges.limit(has_tunnel).map(|limit| limit.most);
        assert_eq!(most(Judges::default(), true), None);
        let modes = (0..HOOKS).map(|hook| most(at(hook), true).expect("a limit"));
        let [encap, kernel] = [Mode::Encap, Mode::Kernel];
        assert_eq!(
            modes.collect::<Vec<_>>(),
            [encap, encap, encap, kernel, kernel]
        );
        assert_eq!(
            most(at(INPUT), false),
            None,
            "packets of pods do not pass it"
        );
        assert_eq!(most(at(POSTROUTING), false), Some(Mode::Encap));
    }

    #[test]
    fn a_limit_names_hook_and_family() {
        let judges = Judges {
            v4: netfilter_program_at(2),
            v6: too_many_functions_at(0),
        };
        let reason = judges.limit(true).expect("a limit").reason;
        let expected = "a BPF program at the netfilter hook FORWARD of IPv4, functions that are \
            not known at the \
                        netfilter hook PREROUTING of IPv6 may judge each packet";
        assert_eq!(reason, expected);
    }
}
