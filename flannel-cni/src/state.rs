//! What DEL needs to know of an ADD, on disk: the delegate's configuration.
//!
//! ```text
//! <dataDir>/<container id>:<interface>   ours; ':' is in neither
//! <dataDir>/<container id>               left by stock flannel's plugin: read, removed, never written
//! <dataDir>/.<container id>:<interface>  being written
//! <dataDir>/.lock                        see `lock`
//! ```
//!
//! A file is there, whole and on disk, before the delegate is called; it goes when the delegate's DEL succeeded.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::{
    environment::{Environment, is_identifier, is_ifname},
    error::Error,
    fill,
    netconf::Object,
};

/// Which interface of which container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// CNI_CONTAINERID.
    pub(crate) container_id: String,
    /// CNI_IFNAME; `None` in the name of a file that stock flannel left.
    pub(crate) ifname: Option<String>,
}

impl Key {
    /// The one a call is about.
    pub(crate) fn new(environment: &Environment) -> Self {
        Self { container_id: environment.container_id.clone(), ifname: Some(environment.ifname.clone()) }
    }

    /// The file stock flannel would have left for it.
    pub(crate) fn stock(&self) -> Self {
        Self { container_id: self.container_id.clone(), ifname: None }
    }

    fn from_file_name(name: &str) -> Option<Self> {
        let (container_id, ifname) = match name.split_once(':') {
            Some((container_id, ifname)) if is_ifname(ifname) => (container_id, Some(ifname.to_owned())),
            Some(_) => return None,
            None => (name, None),
        };
        is_identifier(container_id).then(|| Self { container_id: container_id.to_owned(), ifname })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.container_id)?;
        self.ifname.iter().try_for_each(|ifname| write!(f, ":{ifname}"))
    }
}

/// The directory of the state files.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Creates the directory where it is missing, with mode 0700.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        if !path.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(Error::io("create the directory", path))?;
            path.parent().map_or(Ok(()), sync_dir)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The directory, if it is there.
    pub(crate) fn find(path: &Path) -> Option<Self> {
        path.is_dir().then(|| Self { path: path.to_owned() })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file: old or new content after a crash at any moment, and the new one once this has returned.
    pub(crate) fn write(&self, key: &Key, delegate: &Object) -> Result<(), Error> {
        let (path, partial) = (self.file(key), self.partial(key));
        let replace = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
            file.write_all(&serde_json::to_vec(delegate)?)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        replace().map_err(Error::io("write", &path))?;
        sync_dir(&self.path)
    }

    /// Whether there is a file, finished or not.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.file(key).exists() || self.partial(key).exists()
    }

    /// The delegate's configuration that was written under `key`, if any. [`Error::State`] if it is none.
    pub(crate) fn read(&self, key: &Key) -> Result<Option<Object>, Error> {
        let path = self.file(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path)(error)),
        };
        let damaged = |reason: String| Error::State { path: self.file(key), reason };
        let delegate: Object = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        match fill::plugin(&delegate) {
            Ok(Some(_)) => Ok(Some(delegate)),
            Ok(None) => Err(damaged("it names no plugin".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Removes a file, and one that was not finished. What is not there is as good.
    pub(crate) fn remove(&self, key: &Key) -> Result<(), Error> {
        for path in [self.partial(key), self.file(key)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", path)(error)),
                _ => {}
            }
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
            let Some(name) = name.to_str().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())) else {
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

fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::io("sync the directory", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn key(container_id: &str, ifname: Option<&str>) -> Key {
        Key { container_id: container_id.to_owned(), ifname: ifname.map(str::to_owned) }
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
        assert_eq!((state.has(&key), state.read(&key).expect("nothing")), (false, None));
        for mtu in [1400, 1450] {
            let delegate = object(&json!({ "type": "bridge", "mtu": mtu }).to_string());
            state.write(&key, &delegate).expect("written");
            assert_eq!(state.read(&key).expect("a good file"), Some(delegate));
        }
        let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&path.join("a.b-c_d:eth0.1"))), (0o700, 0o600));
        assert_eq!(state.keys().expect("keys"), std::slice::from_ref(&key));
        // A write that was cut short is found and goes, too.
        fs::rename(path.join("a.b-c_d:eth0.1"), path.join(".a.b-c_d:eth0.1")).expect("renamed");
        assert_eq!((state.has(&key), state.read(&key).expect("nothing whole")), (true, None));
        state.remove(&key).expect("removed");
        state.remove(&key).expect("removed again");
        assert_eq!(fs::read_dir(&path).expect("listed").count(), 0);
    }

    #[test]
    fn a_damaged_file_is_told_from_an_absent_one() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        for text in ["", "{\"type\":\"bri", "[]", "{}", "{\"type\":1}", "{\"type\":\"../x\"}", "\0\0\0\0"] {
            fs::write(scratch.path().join("a"), text).expect("written");
            let error = state.read(&key("a", None)).expect_err(text);
            assert!(matches!(error, Error::State { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn every_kind_of_file_has_its_key_and_others_have_none() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("there");
        for name in ["a:eth0", ".a:eth0", "b", ".c:net1", ".lock", "README~", "a:b:c"] {
            fs::write(scratch.path().join(name), "").expect("written");
        }
        fs::create_dir(scratch.path().join("directory")).expect("created");
        let mut keys: Vec<String> = state.keys().expect("keys").iter().map(ToString::to_string).collect();
        keys.sort();
        assert_eq!(keys, ["a:eth0", "b", "c:net1"]);
        assert!(state.has(&key("c", Some("net1"))) && !state.has(&key("c", None)));
    }
}
