//! The bpf filesystem of the pins: found, mounted, and taken away.
//!
//! The bpffs on `/sys/fs/bpf` belongs to the host and stays. A pin root elsewhere, as in Kubernetes
//! below the run directory, has its own bpffs, which the cleanup unmounts.

use std::{
    fs::{self, File},
    io,
    path::Path,
    thread,
};

use nix::{
    mount::{MsFlags, mount, umount},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use crate::DatapathError;

/// The mount point that hosts use.
const CONVENTIONAL: &str = "/sys/fs/bpf";

/// Mounts a bpf filesystem for this pin root if the root lies on none. Returns true if it did.
pub fn ensure_mounted(root: &Path) -> Result<bool, DatapathError> {
    let failed = |source| DatapathError::PinDirectory {
        path: root.to_owned(),
        source,
    };
    if is_on_bpffs(root).map_err(failed)? {
        return Ok(false);
    }
    let at = mount_point(root);
    mount_at(at).map_err(|source| DatapathError::PinDirectory {
        path: at.to_owned(),
        source,
    })?;
    tracing::info!(at = %at.display(), "mounted a bpf filesystem");
    if is_on_bpffs(root).map_err(failed)? {
        Ok(true)
    } else {
        Err(DatapathError::NotBpffs {
            path: root.to_owned(),
        })
    }
}

/// As [`ensure_mounted`], in the mount namespace that a file such as `/proc/1/ns/mnt` stands for.
/// It takes `CAP_SYS_ADMIN`, `CAP_SYS_CHROOT` and `CAP_SYS_PTRACE`.
pub fn ensure_mounted_in(namespace: &Path, root: &Path) -> Result<bool, DatapathError> {
    let failed = |source| DatapathError::MountNamespace {
        path: namespace.to_owned(),
        source,
    };
    let file = File::open(namespace).map_err(failed)?;
    // A separate thread enters the namespace and ends in it.
    let thread = || {
        // The kernel refuses a thread that shares its root and working directory with others
        // (`mntns_install()` in fs/namespace.c, Linux 6.1:
        // <https://elixir.bootlin.com/linux/v6.1/source/fs/namespace.c>).
        unshare(CloneFlags::CLONE_FS).map_err(|errno| failed(errno.into()))?;
        setns(file, CloneFlags::CLONE_NEWNS).map_err(|errno| failed(errno.into()))?;
        ensure_mounted(root)
    };
    thread::scope(|scope| scope.spawn(thread).join())
        .unwrap_or_else(|_| Err(failed(io::ErrorKind::Other.into())))
}

/// Returns true if a bpf filesystem is mounted on the pin root itself, and not on the host's
/// conventional place.
pub fn is_own_mount(root: &Path) -> bool {
    let is_on = |path: &Path| is_on_bpffs(path).unwrap_or(false);
    !root.starts_with(CONVENTIONAL)
        && root.exists()
        && is_on(root)
        && !root.parent().is_some_and(is_on)
}

/// Returns true for a file that the kernel itself puts into a bpf filesystem (`BPF_PRELOAD`,
/// `populate_bpffs()` in [kernel/bpf/inode.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/inode.c)).
pub fn is_of_the_kernel(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name == "maps.debug" || name == "progs.debug")
}

/// Takes away the bpf filesystem of [`is_own_mount`].
pub fn unmount(root: &Path) -> io::Result<()> {
    Ok(umount(root)?)
}

fn mount_at(at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("bpf"), at, Some("bpf"), flags, None::<&str>)?)
}

/// The conventional mount point if the root lies below it, else the root itself.
fn mount_point(root: &Path) -> &Path {
    let conventional = Path::new(CONVENTIONAL);
    if root.starts_with(conventional) {
        conventional
    } else {
        root
    }
}

/// Returns `path`, or its nearest ancestor that exists, if that is on a bpf filesystem.
pub fn existing_on_bpffs(path: &Path) -> io::Result<Option<&Path>> {
    let existing = path
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"));
    Ok((statfs(existing)?.filesystem_type() == BPF_FS_MAGIC).then_some(existing))
}

fn is_on_bpffs(path: &Path) -> io::Result<bool> {
    Ok(existing_on_bpffs(path)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filesystem_is_mounted_where_everybody_expects_it() {
        assert_eq!(
            mount_point(Path::new("/sys/fs/bpf/flannel")),
            Path::new("/sys/fs/bpf")
        );
        assert_eq!(
            mount_point(Path::new("/run/own/bpf")),
            Path::new("/run/own/bpf")
        );
    }

    #[test]
    fn a_directory_of_another_filesystem_is_no_mount_of_ours() {
        let scratch = tempfile::tempdir().expect("a directory");
        assert!(!is_own_mount(scratch.path()));
        assert!(!is_own_mount(&scratch.path().join("absent")));
        assert!(matches!(
            existing_on_bpffs(&scratch.path().join("absent/too")),
            Ok(None)
        ));
        assert!(!is_own_mount(Path::new("/sys/fs/bpf")));
    }

    #[test]
    fn a_mount_namespace_that_is_not_there_is_named() {
        let error = ensure_mounted_in(Path::new("/absent/ns/mnt"), Path::new("/run/x"))
            .expect_err("no such file");
        assert!(
            error
                .to_string()
                .starts_with("cannot enter the mount namespace /absent/ns/mnt: "),
            "{error}"
        );
    }
}
