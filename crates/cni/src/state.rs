//! On-disk state that DEL needs of an ADD: the delegate's configuration.
//!
//! ```text
//! <dataDir>/<container id>:<interface>            ours; ':' is in none of the parts
//! <dataDir>/<container id>:<interface>:<network>  of a network that found the interface taken
//! <dataDir>/<container id>                        left by stock flannel's plugin: read and removed
//! <dataDir>/.<container id>:<interface>           being written
//! <dataDir>/.lock                                 see `lock`
//! ```
//!
//! Root runs what a file names. Therefore only a regular file of the plugin's own user is accepted,
//! and symbolic links are not followed. No other user may write into the directory.
//!
//! A file is there, whole and on disk, before the delegate is called; it goes when the delegate's
//! DEL succeeded.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

use crate::{
    environment::{Environment, is_identifier, is_ifname},
    error::Error,
    fill,
    netconf::Object,
    regular_file::{self, Links},
};

/// The right of group and others to write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// A directory in which everybody may create files, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// The container and the interface a state file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// CNI_CONTAINERID.
    pub(crate) container_id: String,
    /// CNI_IFNAME; `None` in the name of a file that stock flannel left.
    pub(crate) ifname: Option<String>,
    /// The network, where the interface belongs to another one.
    pub(crate) network: Option<String>,
}

impl Key {
    /// The one a call is about.
    pub(crate) fn new(environment: &Environment) -> Self {
        let ifname = Some(environment.ifname.clone());
        Self {
            container_id: environment.container_id.clone(),
            ifname,
            network: None,
        }
    }

    /// The key of a network that found the interface taken by another one.
    pub(crate) fn of_network(&self, network: &str) -> Self {
        Self {
            network: Some(network.to_owned()),
            ..self.clone()
        }
    }

    /// The file stock flannel would have left for it.
    pub(crate) fn stock(&self) -> Self {
        Self {
            container_id: self.container_id.clone(),
            ifname: None,
            network: None,
        }
    }

    fn from_file_name(name: &str) -> Option<Self> {
        let mut parts = name.split(':');
        let (container_id, ifname, network) = (parts.next()?, parts.next(), parts.next());
        let is_valid = is_identifier(container_id)
            && ifname.is_none_or(is_ifname)
            && network.is_none_or(is_identifier)
            && parts.next().is_none();
        is_valid.then(|| Self {
            container_id: container_id.to_owned(),
            ifname: ifname.map(str::to_owned),
            network: network.map(str::to_owned),
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.container_id)?;
        self.ifname
            .iter()
            .chain(&self.network)
            .try_for_each(|part| write!(f, ":{part}"))
    }
}

/// The directory of the state files.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Creates the directory where it is missing, with mode 0700. Takes the right to write from
    /// others where it is not.
    ///
    /// [`Error::SharedDirectory`] for a directory like `/tmp`, whose mode is meant.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        if !path.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(Error::io("create the directory", path))?;
            path.parent().map_or(Ok(()), sync_dir)?;
        }
        keep_others_from(path)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The directory, if it is there.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        path.is_dir().then(|| Self {
            path: path.to_owned(),
        })
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file: old or new content after a crash at any moment, and the new one once this has
    /// returned.
    pub(crate) fn write(&self, key: &Key, delegate: &Object) -> Result<(), Error> {
        let (path, partial) = (self.file(key), self.partial(key));
        let replace = || -> io::Result<()> {
            remove_if_present(&partial)?;
            // O_EXCL: a symbolic link is not followed.
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&partial)?;
            file.write_all(&serde_json::to_vec(delegate)?)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        replace().map_err(Error::io("write", &path))?;
        sync_dir(&self.path)
    }

    /// Returns true if there is a file, finished or not.
    pub(crate) fn has(&self, key: &Key) -> bool {
        [self.file(key), self.partial(key)]
            .iter()
            .any(|path| path.symlink_metadata().is_ok())
    }

    /// The delegate's configuration that was written under `key`, if any. [`Error::State`] if it is
    /// none.
    pub(crate) fn read(&self, key: &Key) -> Result<Option<Object>, Error> {
        let path = self.file(key);
        let damaged = |reason: String| Error::State {
            path: self.file(key),
            reason,
        };
        let bytes = match read_own(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(damaged(error.to_string()));
            }
            Err(error) => return Err(Error::io("read", path)(error)),
        };
        let delegate: Object =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        match fill::plugin(&delegate) {
            Ok(Some(_)) => Ok(Some(delegate)),
            Ok(None) => Err(damaged("it names no plugin".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Removes a file, and one that was not finished. What is not there is as good.
    pub(crate) fn remove(&self, key: &Key) -> Result<(), Error> {
        for path in [self.partial(key), self.file(key)] {
            remove_if_present(&path).map_err(Error::io("remove", path))?;
        }
        Ok(())
    }

    /// The keys of all files, finished or not, in no order.
    pub(crate) fn keys(&self) -> Result<Vec<Key>, Error> {
        let listing = fs::read_dir(&self.path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = listing.map_err(Error::io("list", &self.path))?;
        let mut keys = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name
                .to_str()
                .filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file()))
            else {
                continue;
            };
            let key = match name.strip_prefix('.') {
                Some(partial) => Key::from_file_name(partial).filter(|key| key.ifname.is_some()),
                None => Key::from_file_name(name),
            };
            keys.extend(key.filter(|key| !keys.contains(key)));
        }
        Ok(keys)
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.path.join(key.to_string())
    }

    fn partial(&self, key: &Key) -> PathBuf {
        self.path.join(format!(".{key}"))
    }
}

/// Reads a regular file that only its owner, who we are, may write. Any other is
/// [`io::ErrorKind::InvalidData`].
fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = regular_file::open(path, Links::Refuse)?;
    let metadata = file.metadata()?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
        let reason = format!(
            "others may have written it (user {}, mode {:04o})",
            metadata.uid(),
            metadata.mode() & 0o7777
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn keep_others_from(path: &Path) -> Result<(), Error> {
    let dir = File::open(path).map_err(Error::io("open the directory", path))?;
    let mode = dir
        .metadata()
        .map_err(Error::io("read the mode of", path))?
        .mode()
        & 0o7777;
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    if mode & STICKY != 0 {
        return Err(Error::SharedDirectory {
            path: path.to_owned(),
            mode,
        });
    }
    dir.set_permissions(Permissions::from_mode(mode & !WRITABLE_BY_OTHERS))
        .map_err(Error::io("take from others", path))
}

fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::io("sync the directory", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use serde_json::json;

    use super::*;

    fn key(container_id: &str, ifname: Option<&str>) -> Key {
        Key {
            container_id: container_id.to_owned(),
            ifname: ifname.map(str::to_owned),
            network: None,
        }
    }

    fn object(text: &str) -> Object {
        serde_json::from_str(text).expect("an object")
    }

    #[test]
    fn a_file_is_replaced_read_and_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("cni/flannel");
        assert!(StateDir::find(&path).is_none());
        let state = StateDir::create(&path).expect("created");
        let key = key("a.b-c_d", Some("eth0.1"));
        assert_eq!(
            (state.has(&key), state.read(&key).expect("nothing")),
            (false, None)
        );
        for mtu in [1400, 1450] {
            let delegate = object(&json!({ "type": "bridge", "mtu": mtu }).to_string());
            state.write(&key, &delegate).expect("written");
            assert_eq!(state.read(&key).expect("a good file"), Some(delegate));
        }
        let mode =
            |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o7777;
        assert_eq!(
            (mode(&path), mode(&path.join("a.b-c_d:eth0.1"))),
            (0o700, 0o600)
        );
        assert_eq!(state.keys().expect("keys"), std::slice::from_ref(&key));
        // A write that was cut short is found and goes, too.
        fs::rename(path.join("a.b-c_d:eth0.1"), path.join(".a.b-c_d:eth0.1")).expect("renamed");
        assert_eq!(
            (state.has(&key), state.read(&key).expect("nothing whole")),
            (true, None)
        );
        state.remove(&key).expect("removed");
        state.remove(&key).expect("removed again");
        assert_eq!(fs::read_dir(&path).expect("listed").count(), 0);
    }

    #[test]
    fn a_damaged_file_is_distinguished_from_an_absent_one() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        for text in [
            "",
            "{\"type\":\"bri",
            "[]",
            "{}",
            "{\"type\":1}",
            "{\"type\":\"../x\"}",
            "\0\0\0\0",
        ] {
            fs::write(scratch.path().join("a"), text).expect("written");
            let error = state.read(&key("a", None)).expect_err(text);
            assert!(matches!(error, Error::State { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn no_symbolic_link_is_followed_when_a_file_is_written() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        let victim = scratch.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        for link in [".a:eth0", "a:eth0"] {
            symlink(&victim, scratch.path().join(link)).expect("linked");
        }
        let (key, delegate) = (key("a", Some("eth0")), object("{\"type\":\"bridge\"}"));
        assert!(
            matches!(state.read(&key), Err(Error::State { .. })),
            "a link is no state"
        );
        state.write(&key, &delegate).expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
        assert_eq!(state.read(&key).expect("a good file"), Some(delegate));
    }

    #[test]
    fn a_file_that_others_may_have_written_is_damaged() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        let (key, path) = (key("a", Some("eth0")), scratch.path().join("a:eth0"));
        state
            .write(&key, &object("{\"type\":\"bridge\"}"))
            .expect("written");
        let reason = || state.read(&key).expect_err("not believed").to_string();
        fs::set_permissions(&path, Permissions::from_mode(0o660)).expect("changed");
        assert!(reason().ends_with("mode 0660)"), "{}", reason());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
        if !geteuid().is_root() {
            eprintln!("NOT RUN: another user's file, which only root can make");
            return;
        }
        chown(&path, Some(65534), None).expect("given away");
        assert!(
            reason().ends_with("(user 65534, mode 0600)"),
            "{}",
            reason()
        );
    }

    #[test]
    fn others_lose_the_right_to_write_into_the_directory() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mode = || fs::metadata(scratch.path()).expect("metadata").mode() & 0o7777;
        for (before, after) in [
            (0o777, 0o755),
            (0o770, 0o750),
            (0o755, 0o755),
            (0o700, 0o700),
        ] {
            fs::set_permissions(scratch.path(), Permissions::from_mode(before)).expect("changed");
            StateDir::create(scratch.path()).expect("there");
            assert_eq!(mode(), after, "{before:o}");
        }
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o1777)).expect("changed");
        let error = StateDir::create(scratch.path()).expect_err("a shared directory");
        assert_eq!((error.code(), mode()), (5, 0o1777));
        assert!(
            error
                .to_string()
                .contains("(mode 1777); name another dataDir"),
            "{error}"
        );
    }

    #[test]
    fn every_kind_of_file_has_its_key_and_others_have_none() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        for name in [
            "a:eth0", ".a:eth0", "b", ".c:net1", ".lock", "README~", "a:b:c", "a:b:c:d", "a::c",
        ] {
            fs::write(scratch.path().join(name), "").expect("written");
        }
        fs::create_dir(scratch.path().join("directory")).expect("created");
        let mut keys: Vec<String> = state
            .keys()
            .expect("keys")
            .iter()
            .map(ToString::to_string)
            .collect();
        keys.sort();
        assert_eq!(keys, ["a:b:c", "a:eth0", "b", "c:net1"]);
        assert!(state.has(&key("c", Some("net1"))) && !state.has(&key("c", None)));
    }
}
