//! The paths of pinned objects: `<pin-root>/v<SCHEMA>/{maps,programs,links}`.
//!
//! The pin root follows `--bpf-pin-root`, so several agents on one machine never meet. A bpffs is
//! mounted when the root lies on none. Another schema has another directory; this one never looks
//! into it.

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
use nix::{
    mount::{MsFlags, mount},
    sys::statfs::{FsType, statfs},
};

use crate::datapath::DatapathError;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11_u32 as _);

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
        self.ensure_mounted()?;
        for dir in ["maps", "programs", "links"] {
            let path = self.versioned.join(dir);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed(&path))?;
        }
        // bpffs creates the first directory with the mount's mode; maps hold nothing secret, but no
        // other user may write them.
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)).map_err(failed(&self.root))
    }

    /// Mounts a bpffs if the root lies on none.
    pub fn ensure_mounted(&self) -> Result<(), DatapathError> {
        let failed = |source| DatapathError::PinDirectory { path: self.root.clone(), source };
        if on_bpffs(&self.root).map_err(failed)? { Ok(()) } else { self.mount() }
    }

    fn mount(&self) -> Result<(), DatapathError> {
        let at = mount_point(&self.root);
        fs::create_dir_all(at).map_err(|source| DatapathError::PinDirectory { path: at.to_owned(), source })?;
        mount(Some("bpf"), at, Some("bpf"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, None::<&str>)
            .map_err(|errno| DatapathError::PinDirectory { path: at.to_owned(), source: errno.into() })?;
        tracing::info!(at = %at.display(), "mounted a bpf filesystem");
        match on_bpffs(&self.root) {
            Ok(true) => Ok(()),
            _ => Err(DatapathError::NotBpffs { path: self.root.clone() }),
        }
    }
}

/// Pins a program or link in place of the one that may be there, without a moment in which there is
/// none.
pub(super) fn replace(path: &Path, pin: impl FnOnce(&Path) -> Result<(), PinError>) -> Result<(), DatapathError> {
    // bpffs reserves names with a dot.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("-new");
    let fresh = PathBuf::from(fresh);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DatapathError::ChangePin { action: "remove", path: fresh, source: error });
        }
        _ => {}
    }
    pin(&fresh).map_err(|source| DatapathError::Pin { path: fresh.clone(), source })?;
    fs::rename(&fresh, path).map_err(|source| DatapathError::ChangePin {
        action: "rename",
        path: path.to_owned(),
        source,
    })
}

/// The conventional mount point if the root lies below it, else the root itself.
fn mount_point(root: &Path) -> &Path {
    let conventional = Path::new("/sys/fs/bpf");
    if root.starts_with(conventional) { conventional } else { root }
}

/// Returns true if `path`, or its nearest ancestor that exists, is on a bpffs.
fn on_bpffs(path: &Path) -> io::Result<bool> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    Ok(statfs(existing)?.filesystem_type() == BPF_FS_MAGIC)
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

    #[test]
    fn the_bpffs_goes_where_everybody_expects_it() {
        assert_eq!(mount_point(Path::new("/sys/fs/bpf/flannel")), Path::new("/sys/fs/bpf"));
        assert_eq!(mount_point(Path::new("/run/own/bpf")), Path::new("/run/own/bpf"));
    }
}
