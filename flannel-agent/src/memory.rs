//! The allocator's policy for freed memory.

/// The amount of free memory at the end of the heap, in bytes, above which the system gets it back;
/// glibc's default.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: nix::libc::c_int = 128 << 10;

/// Gives freed memory back to the system. Call it before the process has other threads.
///
/// glibc takes every large block that is freed as a sign that there will be more, and keeps up to
/// twice its size from then on (mallopt(3), "Dynamic mmap threshold"). The agent frees a few once,
/// at its start - the kernel's type information, the store's first answer - and would hold
/// megabytes for them for the rest of its life. For the same reason all threads share one heap:
/// memory that one of them used for a moment, to load the programs, serves the others afterwards.
pub fn return_what_is_freed() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (nix::libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD),
        (nix::libc::M_ARENA_MAX, 1),
    ] {
        // SAFETY: mallopt takes two numbers and no pointer. It requires that no other thread
        // allocates during the call, and the process has no other thread yet.
        let set = unsafe { nix::libc::mallopt(parameter, value) };
        debug_assert_eq!(set, 1, "glibc knows the parameter");
    }
}

/// Gives all unused pages of the heap back to the system. Call it after much was freed: by itself
/// the allocator gives back only the end of the heap.
pub fn return_holes() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim takes a number, may be called at any time by any thread, and leaves
        // all that is in use as it is.
        unsafe { nix::libc::malloc_trim(0) };
    }
}
