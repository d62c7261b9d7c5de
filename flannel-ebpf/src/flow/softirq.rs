//! Proof that the running program was called from a softirq, and not from a system call.
//!
//! A packet that a process held (NFQUEUE) goes on in that process's system call, on the stack of
//! its task. A softirq that is entered from an interrupt, or at the end of a section with bottom
//! halves disabled, has a stack of the CPU where the kernel has `do_softirq_own_stack()`
//! ([include/asm-generic/softirq_stack.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/asm-generic/softirq_stack.h)), as on
//! x86-64. So a program on another stack than the task's cannot be part of a verdict. Where the
//! kernel runs softirqs on the task's stack (`ksoftirqd`, `PREEMPT_RT`) this proof fails, and the
//! flow waits for the agent's confirmation.

use core::{arch::asm, ptr::read_volatile};

use aya_ebpf::helpers::generated::bpf_get_current_task;

use super::layout::layout;
use crate::kernel_memory::read;

/// Bytes above the lowest address of a task's stack that count as its stack: more than any kernel
/// has.
const STACK_SPAN: u64 = 1 << 18;

/// Returns true if the program does not have the stack of the current task. `word` is any word in a
/// map.
#[inline(always)]
pub(crate) fn is_proven(word: &mut u64) -> bool {
    stack_offset(word).is_some_and(|offset| offset >= STACK_SPAN)
}

/// Returns true if the program has the stack of the current task.
#[inline(always)]
pub(crate) fn is_on_task_stack(word: &mut u64) -> bool {
    stack_offset(word).is_some_and(|offset| offset < STACK_SPAN)
}

/// Offset of the program's frame from the lowest address of the stack of the current task, if that
/// is known. The BPF stack is a part of the kernel's.
#[inline(always)]
fn stack_offset(word: &mut u64) -> Option<u64> {
    let layout = layout();
    if layout.stack == 0 {
        return None;
    }
    // SAFETY: the helper has no arguments and returns an address, which is read only by helper.
    let task = unsafe { bpf_get_current_task() };
    let stack: u64 = read(task + u64::from(layout.stack))?;
    let frame: u64;
    // SAFETY: copies the frame pointer.
    unsafe { asm!("{} = r10", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    // The verifier takes no arithmetic on a pointer to the stack. Read back from a map, it is a
    // number.
    *word = frame;
    // SAFETY: a reference is valid for reads.
    let frame = unsafe { read_volatile(word) };
    Some(frame.wrapping_sub(stack))
}
