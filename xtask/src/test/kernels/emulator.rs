//! The emulated machine: two processors, the host's files read-only, two serial ports.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;

use super::{architecture::Architecture, package::Kernel};
use crate::workspace::Workspace;

/// A machine that runs; it ends with this value.
#[derive(Debug)]
pub(super) struct Emulator(Child);

impl Emulator {
    /// Boots a kernel. The child's output is that of the second serial port, and the first one is
    /// written to `console`.
    pub(super) fn boot(
        workspace: &Workspace,
        kernel: &Kernel,
        start: &Path,
        console: &Path,
    ) -> anyhow::Result<Self> {
        // The machine ends with xtask, however that ends.
        let mut command = workspace.command("setpriv");
        let architecture = kernel.architecture;
        command.args(["--pdeathsig", "KILL", "--", architecture.emulator()]);
        hardware(&mut command, architecture);
        command
            .arg("-kernel")
            .arg(kernel.image()?)
            .arg("-initrd")
            .arg(start);
        command
            .arg("-append")
            .arg(command_line(architecture, &kernel.version));
        command.args([
            "-fsdev",
            "local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap",
        ]);
        command.args(["-device", "virtio-9p-pci,fsdev=machine,mount_tag=machine"]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        command
            .args(["-chardev", "stdio,id=out,signal=off"])
            .args(architecture.second_port());
        let child = command.stdout(Stdio::piped()).spawn();
        Ok(Self(child.with_context(|| {
            format!("cannot start {}", architecture.emulator())
        })?))
    }

    /// The emulator's process.
    pub(super) fn process(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It has ended already where all went well.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn hardware(command: &mut Command, architecture: Architecture) {
    command
        .args(["-accel", "tcg,thread=multi"])
        .args(architecture.hardware())
        .args(["-smp", "2", "-m", "4G"]);
    command.args(["-no-reboot", "-nodefaults", "-display", "none"]);
}

fn command_line(architecture: Architecture, version: &str) -> String {
    let clock = match architecture {
        Architecture::Amd64 => time_stamp_counter(version),
        Architecture::Arm64 => String::new(),
    };
    format!(
        "console={} quiet panic=-1 mitigations=off nokaslr {clock}",
        architecture.console()
    )
}

/// Emulation passes the host's time stamp counter on. A kernel that measures its frequency itself
/// on a busy host gets it wrong, and its clock with it; before Linux 5.11 it cannot be given.
fn time_stamp_counter(version: &str) -> String {
    if version.starts_with("5.10.") {
        return "clocksource=acpi_pm tsc=unstable".to_owned();
    }
    let given = kilohertz(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    given
        .map(|khz| format!("tsc_early_khz={khz} tsc=reliable"))
        .unwrap_or_default()
}

/// The frequency in /proc/cpuinfo, which has it in MHz with three decimals.
fn kilohertz(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(':')?.1.trim().replace('.', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_frequency_is_that_of_the_host() {
        assert_eq!(
            kilohertz("processor\t: 0\ncpu MHz\t\t: 2899.998\n"),
            Some(2_899_998)
        );
        assert_eq!(kilohertz(""), None);
        assert!(command_line(Architecture::Amd64, "5.10.262").contains("acpi_pm"));
        assert!(!command_line(Architecture::Amd64, "6.1.192").contains("acpi_pm"));
        assert!(!command_line(Architecture::Arm64, "6.12.118").contains("tsc"));
    }
}
