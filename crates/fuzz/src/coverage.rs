//! Counters of the places in the code that an input reached.
//!
//! LLVM's SanitizerCoverage adds a byte for each edge, if the crates are compiled with
//! `-sanitizer-coverage-inline-8bit-counters`, and passes them to a function of this name when a
//! program starts: <https://clang.llvm.org/docs/SanitizerCoverage.html#inline-8bit-counters>. The
//! counters belong to the process, so a process runs one target then.

use std::{
    slice,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

/// The counters of each object, as they were announced.
static COUNTERS: Mutex<Vec<&'static [AtomicU8]>> = Mutex::new(Vec::new());

/// Takes over the counters of an object.
// SAFETY: no other function of a program that runs targets has this name; it is that of LLVM's
// runtime, which is not linked.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *const AtomicU8, stop: *const AtomicU8) {
    let length = (stop as usize).saturating_sub(start as usize);
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    if length == 0 || start.is_null() || counters.iter().any(|known| known.as_ptr() == start) {
        return;
    }
    // SAFETY: LLVM passes the bounds of a section of bytes that lives as long as the program.
    // Instrumented code writes them without synchronisation, one byte at a time.
    counters.push(unsafe { slice::from_raw_parts(start, length) });
}

/// The places that inputs reached so far.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// A bit for each order of magnitude of a counter.
    reached: Vec<u8>,
}

impl Coverage {
    /// Sets all counters to zero.
    pub(crate) fn reset() {
        for_each(|_, counter| counter.store(0, Ordering::Relaxed));
    }

    /// Returns true if the last input reached a place for the first time, or many times more.
    pub(crate) fn is_new(&mut self) -> bool {
        let mut is_new = false;
        for_each(|place, counter| {
            let count = counter.load(Ordering::Relaxed);
            if count == 0 {
                return;
            }
            if self.reached.len() <= place {
                self.reached.resize(place + 1, 0);
            }
            // One, two to three, four to seven, and so on.
            let bit = 1 << count.ilog2();
            is_new |= self.reached[place] & bit == 0;
            self.reached[place] |= bit;
        });
        is_new
    }

    /// Returns the number of places; `None` without counters.
    pub(crate) fn reached(&self) -> Option<usize> {
        let has_counters = !COUNTERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        has_counters.then(|| self.reached.iter().filter(|bits| **bits != 0).count())
    }
}

fn for_each(mut visit: impl FnMut(usize, &AtomicU8)) {
    let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    counters
        .iter()
        .copied()
        .flatten()
        .enumerate()
        .for_each(|(place, counter)| visit(place, counter));
}
