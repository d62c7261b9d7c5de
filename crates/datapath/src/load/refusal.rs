//! Reasons for which a kernel refuses programs: helpers that it lacks, asked for before anything is
//! loaded, and the verdict at the end of its verifier's log, for the error of a program.

use aya::{
    programs::{ProgramError, ProgramType},
    sys::{BpfHelper, is_helper_supported},
};

use crate::DatapathError;

/// A helper of the kernel.
#[derive(Clone, Copy, Debug)]
struct Helper {
    id: BpfHelper,
    name: &'static str,
    /// The version of Linux that introduced it.
    since: &'static str,
}

/// The youngest helpers that the programs call, youngest first ([include/uapi/linux/bpf.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/bpf.h)).
const YOUNGEST: [Helper; 4] = [
    Helper {
        id: BpfHelper::BPF_FUNC_check_mtu,
        name: "bpf_check_mtu",
        since: "5.12",
    },
    Helper {
        id: BpfHelper::BPF_FUNC_ktime_get_coarse_ns,
        name: "bpf_ktime_get_coarse_ns",
        since: "5.11",
    },
    Helper {
        id: BpfHelper::BPF_FUNC_redirect_peer,
        name: "bpf_redirect_peer",
        since: "5.10",
    },
    Helper {
        id: BpfHelper::BPF_FUNC_redirect_neigh,
        name: "bpf_redirect_neigh",
        since: "5.10",
    },
];

impl Helper {
    const fn missing(self) -> DatapathError {
        DatapathError::MissingHelper {
            number: self.id as u32,
            name: self.name,
            since: self.since,
        }
    }
}

/// Fails if the kernel lacks a helper that the programs call. A kernel that does not answer is
/// taken to have them: what it refuses shows when the programs are loaded.
pub(crate) fn check_helpers() -> Result<(), DatapathError> {
    check_helpers_by(|helper| {
        is_helper_supported(ProgramType::SchedClassifier, helper).unwrap_or(true)
    })
}

fn check_helpers_by(is_supported: impl Fn(BpfHelper) -> bool) -> Result<(), DatapathError> {
    let missing = YOUNGEST.into_iter().find(|helper| !is_supported(helper.id));
    missing.map_or(Ok(()), |helper| Err(helper.missing()))
}

impl DatapathError {
    /// An error of one program. What the verifier said of it is in the log at level debug, once.
    pub(crate) fn program(program: &'static str) -> impl FnOnce(ProgramError) -> Self {
        move |source| match source {
            ProgramError::LoadError {
                io_error: source,
                verifier_log,
            } => {
                let log = verifier_log.to_string();
                tracing::debug!(program, log, "the verifier refused a program");
                Self::Refused {
                    program,
                    verdict: verdict(&log),
                    log,
                    source,
                }
            }
            source => Self::Program {
                program,
                source: Box::new(source),
            },
        }
    }
}

/// Returns the verdict in a verifier's log: its last line that does not hold statistics. If the
/// kernel gives only the number of a helper, the helper's name is added. Empty for an empty log.
fn verdict(log: &str) -> String {
    let mut lines = log.lines().map(str::trim).rev();
    let line = lines
        .find(|line| !line.is_empty() && !is_statistics(line))
        .unwrap_or_default();
    match unknown_helper(line) {
        Some(number) => match YOUNGEST.iter().find(|helper| helper.id as u32 == number) {
            Some(helper) => helper.missing().to_string(),
            None => format!("this kernel lacks the BPF helper with number {number} ({line})"),
        },
        None => line.to_owned(),
    }
}

/// True for a line about the verifier's work and not about the program.
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The number of the helper in `invalid func unknown#160`.
fn unknown_helper(line: &str) -> Option<u32> {
    line.rsplit_once("unknown#")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use aya_obj::VerifierLog;
    use flannel_host::error_chain::chain;

    use super::*;

    /// The end of what Linux 5.10 says of `to_tunnel`.
    const LINUX_5_10: &str = "; \n0: (bf) r6 = r1\n29: (85) call unknown#160\ninvalid func \
        unknown#160\n\
        processed 28 insns (limit 1000000) max_states_per_insn 0 total_states 2 peak_states 2 \
        mark_read 1\n";
    /// The end of what Linux 5.15 said of it.
    const LINUX_5_15: &str = "2735: (85) call bpf_redirect_neigh#152\n\
        invalid indirect read from stack R2 off -20+8 size 20\n\
        processed 19079 insns (limit 1000000) max_states_per_insn 14 total_states 666 peak_states \
        352 mark_read 32\n";

    #[test]
    fn the_verdict_is_the_last_line_about_the_program() {
        assert_eq!(
            verdict(LINUX_5_15),
            "invalid indirect read from stack R2 off -20+8 size 20"
        );
        assert_eq!(verdict("verification time 9 usec\nstack depth 0\n"), "");
        assert_eq!(verdict(""), "");
    }

    #[test]
    fn a_missing_helper_has_a_name_and_a_version() {
        assert_eq!(
            verdict(LINUX_5_10),
            "this kernel lacks the BPF helper bpf_ktime_get_coarse_ns (160), which Linux has from \
             5.11 on; mode encap \
             needs Linux 5.13"
        );
        assert_eq!(
            verdict("invalid func unknown#999\n"),
            "this kernel lacks the BPF helper with number 999 (invalid func unknown#999)"
        );
    }

    #[test]
    fn the_youngest_missing_helper_is_named() {
        let name =
            |missing: &[BpfHelper]| match check_helpers_by(|helper| !missing.contains(&helper)) {
                Err(DatapathError::MissingHelper { name, .. }) => Some(name),
                _ => None,
            };
        assert_eq!(name(&[]), None);
        assert_eq!(
            name(&[BpfHelper::BPF_FUNC_ktime_get_coarse_ns]),
            Some("bpf_ktime_get_coarse_ns")
        );
        let linux_5_10 = [
            BpfHelper::BPF_FUNC_ktime_get_coarse_ns,
            BpfHelper::BPF_FUNC_check_mtu,
        ];
        assert_eq!(name(&linux_5_10), Some("bpf_check_mtu"));
    }

    #[test]
    fn a_refused_program_gives_the_verdict_and_keeps_the_log_apart() {
        let log = "0: (bf) r6 = r1\ninvalid indirect read from stack R2 off -20+8 size \
            20\nprocessed 1 insns\n";
        let refused = |log: &str| {
            let (io_error, verifier_log) = (
                io::Error::from_raw_os_error(13),
                VerifierLog::new(log.to_owned()),
            );
            DatapathError::program("to_tunnel")(ProgramError::LoadError {
                io_error,
                verifier_log,
            })
        };
        let error = refused(log);
        assert_eq!(
            chain(&error),
            "the kernel refused the BPF program to_tunnel: invalid indirect read from stack R2 off \
             -20+8 size 20: \
             Permission denied (os error 13)"
        );
        assert_eq!(error.verifier_log(), Some(log));
        assert!(!error.is_out_of_memory());
        assert_eq!(
            chain(&refused("")),
            "the kernel refused the BPF program to_tunnel: Permission denied (os error 13)"
        );
    }
}
