//! The paths of pinned objects: `<pin-root>/v<SCHEMA>/{maps,programs,links,load_record}`.
//!
//! The pin root follows `--bpf-pin-root`, so several agents on one machine never meet. A build with
//! another schema has another directory in it, which [`crate::load::schema_takeover`] clears.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aya::pin::PinError;
use flannel_common::{
    SCHEMA,
    abi::program::{COUNT_POLLS, FIND_JUDGES, Program, REPORT_DROPS},
};

use crate::{DatapathError, kernel::bpffs};

/// The directory of all pins of one agent.
#[derive(Clone, Debug)]
pub struct PinRoot {
    root: PathBuf,
    versioned: PathBuf,
}

impl PinRoot {
    /// The pins below `root`, of this build's schema. Touches nothing.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            versioned: root.join(format!("v{SCHEMA}")),
        }
    }

    /// The pins below the same root of builds with another schema.
    pub fn of_other_schemas(&self) -> Vec<Self> {
        let mut all = Self::of_all_schemas(&self.root);
        all.retain(|other| !other.has_own_schema());
        all
    }

    /// The pins below `root` of all builds, by schema.
    pub fn of_all_schemas(root: &Path) -> Vec<Self> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| schema_of(path).is_some())
            .collect();
        found.sort_by_key(|path| schema_of(path));
        found
            .into_iter()
            .map(|versioned| Self {
                root: root.to_owned(),
                versioned,
            })
            .collect()
    }

    /// Returns true if this build can read the maps.
    pub fn has_own_schema(&self) -> bool {
        schema_of(&self.versioned) == Some(SCHEMA)
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

    /// The pin of the program that finds BPF programs at netfilter's hooks.
    pub fn judge_finder(&self) -> PathBuf {
        self.versioned.join("programs").join(FIND_JUDGES)
    }

    /// The pin of the program that reports packets which the kernel drops; absent on kernels that
    /// do not say why.
    pub fn drop_reporter(&self) -> PathBuf {
        self.versioned.join("programs").join(REPORT_DROPS)
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

    /// The error of a map that is not pinned here.
    pub(super) fn not_pinned(&self) -> DatapathError {
        let other = self
            .of_other_schemas()
            .pop()
            .map(|other| other.dir().to_owned());
        other.map_or_else(
            || DatapathError::NotPinned {
                root: self.root().to_owned(),
            },
            |dir| DatapathError::OtherSchema { dir },
        )
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
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(failed(&path))?;
        }
        // bpffs creates the first directory with the mount's mode; maps hold nothing secret, but no
        // other user may write them.
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))
            .map_err(failed(&self.root))
    }
}

/// The schema in the name of a directory of pins; `None` for other names.
pub fn schema_of(dir: &Path) -> Option<u32> {
    let digits = dir.file_name()?.to_str()?.strip_prefix('v')?;
    digits
        .parse()
        .ok()
        .filter(|schema: &u32| schema.to_string() == digits)
}

/// Removes a pin, if it is there. If it is of a link, its program is detached.
pub(super) fn remove(path: &Path) -> Result<(), DatapathError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(DatapathError::ChangePin {
            action: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Pins a program or link in place of the one that may be there, without a moment in which there is
/// none.
pub(super) fn replace(
    path: &Path,
    pin: impl FnOnce(&Path) -> Result<(), PinError>,
) -> Result<(), DatapathError> {
    // bpffs reserves names with a dot.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("-new");
    let fresh = PathBuf::from(fresh);
    remove(&fresh)?;
    pin(&fresh).map_err(|source| DatapathError::Pin {
        path: fresh.clone(),
        source,
    })?;
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
        assert_eq!(
            pins.map("PEERS"),
            Path::new("/sys/fs/bpf/flannel/v2/maps/PEERS")
        );
        assert_eq!(
            pins.program(Program::ToTunnel),
            Path::new("/sys/fs/bpf/flannel/v2/programs/to_tunnel")
        );
        assert_eq!(
            pins.link(Program::FromUnderlay, 7),
            Path::new("/sys/fs/bpf/flannel/v2/links/from_underlay-7")
        );
    }

    #[test]
    fn directories_of_pins_have_the_schema_in_their_names() {
        let schemas = ["v0", "v1", "v12", "v", "v01", "v+1", "vx", "1", "w1"]
            .map(|name| schema_of(Path::new(name)));
        assert_eq!(
            schemas,
            [
                Some(0),
                Some(1),
                Some(12),
                None,
                None,
                None,
                None,
                None,
                None
            ]
        );
    }
}
