//! The directory of the pins. Access rights do not show that it can be written: AppArmor and
//! SELinux refuse what the mode permits. So a directory is made there, and removed.

use std::{fs, io, path::Path, process};

use flannel_common::abi::mode::Mode;
use flannel_datapath::{PinRoot, kernel::bpffs};
use flannel_privileges::Privileges;

use super::{code::HostCode, finding::Finding, kernel::Best};

/// Checks that the programs can be pinned, and lowers `best` if not.
pub(super) fn look(pins: &PinRoot, best: &mut Best) -> Finding {
    let root = pins.root();
    let problem = match bpffs::existing_on_bpffs(root) {
        Ok(Some(dir)) => match try_to_write(dir) {
            Ok(()) => {
                return Finding::ok(
                    "pins",
                    format!("programs can be pinned below {}", root.display()),
                );
            }
            Err(error) => format!("cannot write to {}: {error}", dir.display()),
        },
        Ok(None) if Privileges::current().is_ok_and(|held| held.may_mount()) => {
            let text = format!(
                "no bpf filesystem is mounted for {}: the agent mounts one",
                root.display()
            );
            return Finding::ok("pins", text);
        }
        Ok(None) => format!(
            "no bpf filesystem is mounted for {}, and mounting one takes CAP_SYS_ADMIN, which is \
             missing",
            root.display()
        ),
        Err(error) => format!("cannot examine {}: {error}", root.display()),
    };
    best.lower(Mode::Kernel, &problem);
    Finding::warn(
        HostCode::PinRoot,
        problem,
        "packets take the kernel path, which is complete, and the guard is off; mount a bpf \
         filesystem that can be \
         written, let the AppArmor or SELinux profile permit it, or choose another --bpf-pin-root",
    )
}

fn try_to_write(dir: &Path) -> io::Result<()> {
    // bpffs reserves names with a dot.
    let probe = dir.join(format!("flannel-check-{}", process::id()));
    fs::create_dir(&probe)?;
    fs::remove_dir(&probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_and_reports_a_refusal() {
        let scratch = tempfile::tempdir().expect("a directory");
        try_to_write(scratch.path()).expect("a directory that can be written");
        assert_eq!(
            fs::read_dir(scratch.path()).expect("a directory").count(),
            0
        );
        assert!(try_to_write(&scratch.path().join("absent")).is_err());
    }
}
