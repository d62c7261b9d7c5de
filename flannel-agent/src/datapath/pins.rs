//! The paths of pinned objects: `<pin-root>/v<SCHEMA>/{maps,programs,links,load_record}`.
//!
//! The pin root follows `--bpf-pin-root`, so several agents on one machine never meet. Another
//! schema has another directory; this one never looks into it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aya::pin::PinError;
use flannel_common::{
    SCHEMA,
    program::{COUNT_POLLS, Program},
};

use crate::datapath::{DatapathError, bpffs};

/// The directory of all pins of one agent.
#[derive(Clone, Debug)]
pub struct PinRoot {
    root: PathBuf,
    versioned: PathBuf,
}

impl PinRoot {
    /// The pins below `root`, of this build's schema. Touches nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), versioned: root.join(format!("v{SCHEMA}")) }
    }

    /// The directory with the schema in its name.
    pub fn dir(&self) -> &Path {
        &self.versioned
    }

    /// The directory given on the command line.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the maps.
    pub fn maps(&self) -> PathBuf {
        self.versioned.join("maps")
    }

    /// The pin of a map.
    pub fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// The pin of a program.
    pub fn program(&self, program: Program) -> PathBuf {
        self.versioned.join("programs").join(program.name())
    }

    /// The pin of the program that counts NAPI polls.
    pub fn poll_counter(&self) -> PathBuf {
        self.versioned.join("programs").join(COUNT_POLLS)
    }

    /// The pin of the record of the last load.
    pub fn load_record(&self) -> PathBuf {
        self.versioned.join("load_record")
    }

    /// The directory of the links.
    pub fn links(&self) -> PathBuf {
        self.versioned.join("links")
    }

    /// The pin of a program's link to a device.
    pub fn link(&self, program: Program, ifindex: u32) -> PathBuf {
        self.links().join(format!("{}-{ifindex}", program.name()))
    }

    /// Makes the directories, mounting a bpffs on the root if it lies on none.
    pub fn prepare(&self) -> Result<(), DatapathError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DatapathError::PinDirectory { path, source }
        };
        bpffs::ensure_mounted(&self.root)?;
        for dir in ["maps", "programs", "links"] {
            let path = self.versioned.join(dir);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed(&path))?;
        }
        // bpffs creates the first directory with the mount's mode; maps hold nothing secret, but no
        // other user may write them.
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)).map_err(failed(&self.root))
    }
}

/// Removes a pin, if it is there. If it is of a link, its program is detached.
pub(super) fn remove(path: &Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(DatapathError::ChangePin { action: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Pins a program or link in place of the one that may be there, without a moment in which there is
/// none.
pub(super) fn replace(path: &Path, pin: impl FnOnce(&Path) -> Result<(), PinError>) -> Result<(), DatapathError> {
    // bpffs reserves names with a dot.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("-new");
    let fresh = PathBuf::from(fresh);
    remove(&fresh)?;
    pin(&fresh).map_err(|source| DatapathError::Pin { path: fresh.clone(), source })?;
    fs::rename(&fresh, path).map_err(|source| DatapathError::ChangePin {
        action: "rename",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_lie_below_the_schema() {
        let pins = PinRoot::new(Path::new("/sys/fs/bpf/flannel"));
        assert_eq!(pins.map("PEERS"), Path::new("/sys/fs/bpf/flannel/v1/maps/PEERS"));
        assert_eq!(pins.program(Program::ToTunnel), Path::new("/sys/fs/bpf/flannel/v1/programs/to_tunnel"));
        assert_eq!(pins.link(Program::FromUnderlay, 7), Path::new("/sys/fs/bpf/flannel/v1/links/from_underlay-7"));
    }
}
