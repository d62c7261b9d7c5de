//! Loading a program although the thread has signals to handle.
//!
//! The verifier gives up with EAGAIN when a signal is pending for its thread (`do_check` in
//! kernel/bpf/verifier.c, Linux 6.12:
//! <https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/verifier.c>). That of a child process
//! that ended may go to any thread. libbpf tries five times (`PROG_LOAD_ATTEMPTS` in
//! tools/lib/bpf/libbpf_internal.h), aya does not.

use aya::programs::ProgramError;
use nix::libc::EAGAIN;

/// The number of attempts. A verification lasts up to a second, in which children end.
const ATTEMPTS: u32 = 20;

/// Calls `load` again for as long as signals interrupt it.
pub(crate) fn retry(
    mut load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    for _ in 1..ATTEMPTS {
        match load() {
            Err(ProgramError::LoadError { io_error, .. })
                if io_error.raw_os_error() == Some(EAGAIN) =>
            {
                tracing::debug!("a signal interrupted the verifier; loading the program again");
            }
            other => return other,
        }
    }
    load()
}

#[cfg(test)]
mod tests {
    use std::io;

    use aya_obj::VerifierLog;

    use super::*;

    fn failed(code: i32) -> Result<(), ProgramError> {
        let io_error = io::Error::from_raw_os_error(code);
        Err(ProgramError::LoadError {
            io_error,
            verifier_log: VerifierLog::new(String::new()),
        })
    }

    #[test]
    fn a_load_that_a_signal_interrupted_is_repeated() {
        let mut calls = 0;
        let result = retry(|| {
            calls += 1;
            if calls < 3 { failed(EAGAIN) } else { Ok(()) }
        });
        assert!(result.is_ok());
        assert_eq!(calls, 3);
    }

    #[test]
    fn a_refusal_is_final_and_repetitions_have_an_end() {
        for (code, expected) in [(nix::libc::EACCES, 1), (EAGAIN, ATTEMPTS)] {
            let mut calls = 0;
            let result = retry(|| {
                calls += 1;
                failed(code)
            });
            assert!(result.is_err());
            assert_eq!(calls, expected);
        }
    }
}
