//! The bytes of stack that functions take together which call each other.
//!
//! The kernel rounds what each function uses up, and refuses a program of which a chain of calls
//! takes more than 512 bytes (`check_max_stack_depth` in
//! <https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/verifier.c>). Linux rounds up to 32
//! bytes, and to 16 from 6.9 on where its JIT compiler is on, so a newer kernel takes chains that
//! an older one refuses.

use std::fmt;

use super::elf::Object;

/// Bytes that a chain of calls may take (`MAX_BPF_STACK`).
const LIMIT: usize = 512;
/// The largest unit to which a supported kernel rounds up.
const UNIT: usize = 32;

/// A chain of calls that takes too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number in the object of the function that calls the last one, and of its call.
    pub(super) call: (usize, usize),
    links: Vec<(String, usize)>,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(name, bytes)| format!("{name} {bytes}"))
            .collect();
        let all: usize = self.links.iter().map(|(_, bytes)| bytes).sum();
        write!(
            f,
            "{all} bytes of stack, {LIMIT} are allowed: {}",
            links.join(", ")
        )
    }
}

/// The chains of calls of a program that are the first to take too much. `used` has the bytes that
/// each function of the object uses.
pub(super) fn too_deep(object: &Object, used: &[usize], program: usize) -> Vec<Chain> {
    let mut walk = Walk {
        object,
        used,
        functions: vec![program],
        found: Vec::new(),
    };
    walk.calls();
    walk.found
}

struct Walk<'a> {
    object: &'a Object,
    used: &'a [usize],
    /// Those that are being executed.
    functions: Vec<usize>,
    found: Vec<Chain>,
}

impl Walk<'_> {
    fn bytes(&self, function: usize) -> usize {
        self.used[function].max(1).next_multiple_of(UNIT)
    }

    /// Follows the calls of the last function. It ends, since every function takes a unit at least.
    fn calls(&mut self) {
        let Some(&caller) = self.functions.last() else {
            return;
        };
        let mut calls: Vec<_> = self.object.functions[caller].calls.iter().collect();
        calls.sort_unstable();
        for (at, callee) in calls {
            self.functions.push(*callee);
            if self
                .functions
                .iter()
                .map(|function| self.bytes(*function))
                .sum::<usize>()
                > LIMIT
            {
                self.found.push(Chain {
                    call: (caller, *at),
                    links: self.links(),
                });
            } else {
                self.calls();
            }
            self.functions.pop();
        }
    }

    fn links(&self) -> Vec<(String, usize)> {
        let link = |function: &usize| {
            (
                self.object.functions[*function].name.clone(),
                self.bytes(*function),
            )
        };
        self.functions.iter().map(link).collect()
    }
}
