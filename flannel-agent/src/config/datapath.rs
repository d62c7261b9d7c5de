//! The names of the datapath modes, as operators write them.

use std::{fmt, str::FromStr};

/// Which path packets take. What a mode does is the datapath's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatapathMode {
    /// The kernel's vxlan device alone.
    Kernel,
    /// Encapsulation in eBPF at the tunnel device.
    Encap,
}

impl DatapathMode {
    /// The name, as options, configuration and output write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Encap => "encap",
        }
    }
}

impl fmt::Display for DatapathMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No mode has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a datapath mode; write kernel or encap")]
pub struct UnknownMode {
    /// The name as written.
    pub name: String,
}

impl FromStr for DatapathMode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        match name {
            "kernel" => Ok(Self::Kernel),
            "encap" => Ok(Self::Encap),
            _ => Err(UnknownMode { name: name.to_owned() }),
        }
    }
}
