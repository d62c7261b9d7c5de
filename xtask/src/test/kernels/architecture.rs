//! The architectures that are emulated, and the differences between their machines, as data.

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// That of the machine that emulates.
    Amd64,
    /// Another one, whose programs this machine cannot run.
    Arm64,
}

impl Architecture {
    /// Every one.
    pub(super) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// As Debian calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The emulator's command.
    pub(super) const fn emulator(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The emulator's options for board and processor. Of arm64 it has no board without a choice,
    /// and pointer authentication of newer processors takes half of the time.
    pub(super) const fn hardware(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["-cpu", "max,la57=off"],
            Self::Arm64 => &["-machine", "virt", "-cpu", "cortex-a72"],
        }
    }

    /// The kernel's name of the first serial port, which has its console.
    pub(super) const fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// The kernel's name of the second one, which leads to xtask.
    pub(super) const fn output(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS1",
            Self::Arm64 => "ttyS0",
        }
    }

    /// The emulator's options for the second one. The board of arm64 has a single one.
    pub(super) const fn second_port(self) -> [&'static str; 2] {
        match self {
            Self::Amd64 => ["-serial", "chardev:out"],
            Self::Arm64 => ["-device", "pci-serial,chardev=out"],
        }
    }
}
