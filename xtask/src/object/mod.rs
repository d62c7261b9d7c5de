//! Inspection of the built BPF object, for what verifiers older than the build machine's refuse.
//!
//! Linux before 6.3 refuses a program that reads a byte of its stack that was not written on every
//! path to the read, by an instruction or through a helper (`check_stack_range_initialized()` in
//! [kernel/bpf/verifier.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/verifier.c)); every Linux refuses a
//! stack access that is not a multiple of its size, and chains of calls that take more than 512
//! bytes of stack, of which older kernels count more ([`stack_depth`]). LLVM does not avoid these:
//! it writes only the bytes of a union that its variant has, and `allows-misaligned-mem-access`
//! allows merged stores anywhere. So the object is refused here, where the kernel that loads it in
//! tests would take it.
//!
//! [`elf`] reads functions and maps, [`insn`] decodes, [`analysis`] follows every path with the
//! abstract values of [`state`], and [`helpers`] lists which arguments of a helper are memory. The
//! analysis is conservative: of two paths that meet only what both wrote counts as written.

mod analysis;
mod elf;
mod helpers;
mod insn;
mod stack_depth;
mod state;
mod strip;
#[cfg(test)]
mod tests;

use std::fmt;

use anyhow::bail;

pub(crate) use self::strip::without_debug_information;
use self::{
    elf::Object,
    stack_depth::Chain,
    state::{Bytes, Misuse},
};

/// An instruction that a supported kernel refuses, or that the analysis cannot follow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    function: String,
    section: String,
    /// Number of the instruction in its section, as disassemblers print it.
    index: usize,
    instruction: String,
    problem: Problem,
}

/// The reason for a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// An access to the stack by an instruction.
    Access(Misuse),
    /// Memory on the stack that a helper gets in `register`.
    Argument {
        helper: &'static str,
        register: u8,
        misuse: Misuse,
    },
    /// A length that is not a constant.
    Length { helper: &'static str, register: u8 },
    /// A map that is not known where its sizes are needed.
    UnknownMap { helper: &'static str },
    /// A helper without an entry in the table.
    UnknownHelper(i32),
    /// Calls that nest deeper than the kernel allows.
    TooDeep,
    /// Functions that take too much stack together.
    TooMuchStack(Chain),
    /// An instruction that is not decoded.
    Undecoded,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            function,
            section,
            index,
            instruction,
            problem,
        } = self;
        write!(
            f,
            "{function}, instruction {index} of {section}, `{instruction}`: {problem}"
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(misuse) => misuse.fmt(f),
            Self::Argument {
                helper,
                register,
                misuse,
            } => write!(f, "{helper} gets r{register}: {misuse}"),
            Self::Length { helper, register } => {
                write!(
                    f,
                    "{helper} gets a length in r{register} that is no constant, of memory on the \
                     stack"
                )
            }
            Self::UnknownMap { helper } => write!(
                f,
                "{helper} gets memory on the stack for a map that is not known"
            ),
            Self::UnknownHelper(number) => {
                write!(
                    f,
                    "helper {number} is not in xtask/src/object/helpers.rs: add its arguments there"
                )
            }
            Self::TooDeep => f.write_str("calls nest deeper than eight functions"),
            Self::TooMuchStack(chain) => chain.fmt(f),
            Self::Undecoded => {
                f.write_str("the instruction is not known to xtask/src/object/insn.rs")
            }
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { offset, size } => {
                write!(
                    f,
                    "{size} bytes of the stack at {offset}, which is no multiple of {size}"
                )
            }
            Self::Unwritten {
                offset,
                size,
                missing,
            } => write!(
                f,
                "{size} bytes of the stack at {offset}, of which {missing} is not written on every \
                 path; Linux before \
                 6.3 refuses that"
            ),
            Self::OutOfStack { offset, size } => {
                write!(f, "{size} bytes at {offset}, outside of the stack")
            }
            Self::NotConstant => {
                f.write_str("an address on the stack that differs from path to path")
            }
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last {
            write!(f, "byte {first}")
        } else {
            write!(f, "a byte of {first} to {last}")
        }
    }
}

/// Refuses an object with programs that a supported kernel would refuse for their use of the stack.
pub(crate) fn check(bytes: &[u8]) -> anyhow::Result<()> {
    let object = Object::parse(bytes)?;
    let findings = analysis::analyse(&object);
    if findings.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = findings
        .iter()
        .map(|finding| format!("  {finding}"))
        .collect();
    bail!(
        "the verifiers of supported kernels refuse {} instructions:\n{}",
        lines.len(),
        lines.join("\n")
    )
}
