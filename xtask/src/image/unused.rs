//! Removes the unused parts of Debian's packages: programs that neither the agent nor an operator
//! calls, and libraries that no program needs.
//!
//! The libraries are found by what programs and plugins name in their dynamic sections, so that
//! the list holds for every release of Debian and every architecture.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use object::{
    Endianness, FileKind, elf,
    read::elf::{Dyn as _, FileHeader},
};

use super::root;
use crate::files;

/// The directories of programs.
const PROGRAM_DIRS: [&str; 2] = ["usr/bin", "usr/sbin"];
/// Programs that the agent, its `bugtool`, a manifest or a page of the docs calls. Links to them
/// stay too: all names of iptables are links.
const CALLED: [&str; 10] = [
    "bridge",
    "busybox",
    "ethtool",
    "ip",
    "nft",
    "nstat",
    "swanctl",
    "tc",
    "xtables-legacy-multi",
    "xtables-nft-multi",
];
/// The names under which busybox is called: by manifests and scripts of flannel, by `kubectl cp`
/// (tar), and by a person with a shell in the container.
const APPLETS: [&str; 57] = [
    "[", "ash", "awk", "basename", "cat", "chmod", "chown", "cmp", "cp", "cut", "date", "df",
    "diff", "dirname", "dmesg", "du", "echo", "egrep", "env", "false", "find", "free", "grep",
    "gunzip", "gzip", "head", "hostname", "id", "kill", "less", "ln", "ls", "mkdir", "mktemp",
    "mv", "nc", "nslookup", "ping", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "sh", "sleep",
    "sort", "tail", "tar", "test", "top", "touch", "true", "uname", "vi", "wc", "xargs",
];
/// Directories below `usr/lib` of plugins that none of the programs loads: Kerberos, engines of
/// OpenSSL, actions of `tc`.
const PLUGIN_DIRS: [&str; 3] = ["engines-3", "krb5", "tc"];
/// Other files and directories: those of dpkg and debconf, of shells for people, of removed
/// libraries, and of what starts a system.
const PATHS: [&str; 28] = [
    "etc/apparmor.d",
    "etc/apt",
    "etc/bash.bashrc",
    "etc/cron.daily",
    "etc/debconf.conf",
    "etc/dpkg",
    "etc/gss",
    "etc/logrotate.d",
    "etc/netconfig",
    "etc/network",
    "etc/skel",
    "etc/ssl/openssl.cnf",
    "etc/update-motd.d",
    "etc/xattr.conf",
    "usr/games",
    "usr/include",
    "usr/lib/init",
    "usr/lib/locale",
    "usr/lib/mime",
    "usr/lib/ssl",
    "usr/libexec",
    "usr/share/debianutils",
    "usr/share/dpkg",
    "usr/share/initramfs-tools",
    "usr/share/menu",
    "usr/share/pixmaps",
    "usr/share/polkit-1",
    "usr/share/strongswan",
];
/// Starts of the names of libraries that no dynamic section names: the loader, name services, and
/// libgcc_s, which the C library loads when a thread of strongSwan ends.
const LOADED_OTHERWISE: [&str; 3] = ["ld-", "libgcc_s.so", "libnss_"];

/// Removes them from the root of Debian's packages. `ours` has the programs of the other layer.
pub(super) fn remove(root: &Path, ours: &Path) -> anyhow::Result<()> {
    for path in PATHS {
        files::remove(&root.join(path))?;
    }
    for name in PLUGIN_DIRS {
        root::remove_directories(&root.join("usr/lib"), name)?;
    }
    for dir in PROGRAM_DIRS {
        remove_programs(root, &root.join(dir))?;
    }
    link_applets(root)?;
    remove_libraries(root, ours)
}

fn remove_programs(root: &Path, dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let program = followed(root, path.clone());
        let is_called = program
            .file_name()
            .is_some_and(|name| CALLED.iter().any(|called| name == *called));
        if !is_called {
            files::remove(&path)?;
        }
    }
    Ok(())
}

/// The file to which links within `root` lead.
fn followed(root: &Path, mut path: PathBuf) -> PathBuf {
    // As many as a kernel follows.
    for _ in 0..40 {
        let Ok(to) = fs::read_link(&path) else {
            break;
        };
        path = match to.strip_prefix("/") {
            Ok(to) => root.join(to),
            Err(_) => path.with_file_name("").join(to),
        };
    }
    path
}

fn link_applets(root: &Path) -> anyhow::Result<()> {
    for name in APPLETS {
        let link = root.join("usr/bin").join(name);
        symlink("busybox", &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(())
}

fn remove_libraries(root: &Path, ours: &Path) -> anyhow::Result<()> {
    let mut libraries = BTreeMap::new();
    let mut needed = BTreeSet::new();
    for tree in [root, ours] {
        each_file(tree, &mut |path| {
            match library(path) {
                Some(name) => {
                    if LOADED_OTHERWISE.iter().any(|start| name.starts_with(start)) {
                        needed.insert(name.to_owned());
                    }
                    libraries.insert(name.to_owned(), path.to_owned());
                }
                None if path.is_symlink() => {}
                None => needed.extend(needed_by(path)?),
            }
            Ok(())
        })?;
    }
    let needed = closure(&libraries, needed)?;
    for path in libraries.values().filter(|path| !needed.contains(*path)) {
        files::remove(path)?;
    }
    Ok(())
}

/// The name of what lies where the loader looks: in the directory of the architecture, such as
/// `x86_64-linux-gnu`. What lies deeper is a plugin.
fn library(path: &Path) -> Option<&str> {
    let is_of_loader = file_name(path.parent()?)?.contains("-linux-gnu");
    file_name(path).filter(|name| is_of_loader && name.contains(".so"))
}

/// The files of the named libraries, of those that they need, and the links to them.
fn closure(
    libraries: &BTreeMap<String, PathBuf>,
    names: BTreeSet<String>,
) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = names.into_iter().collect();
    while let Some(name) = open.pop() {
        let Some(path) = libraries.get(&name) else {
            continue;
        };
        if !found.insert(path.clone()) {
            continue;
        }
        match fs::read_link(path) {
            Ok(to) => open.extend(file_name(&to).map(str::to_owned)),
            Err(_) => open.extend(needed_by(path)?),
        }
    }
    Ok(found)
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn each_file(
    dir: &Path,
    visit: &mut impl FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            each_file(&entry.path(), visit)?;
        } else {
            visit(&entry.path())?;
        }
    }
    Ok(())
}

/// The names of libraries in the dynamic section of a program or library; none of other files.
fn needed_by(path: &Path) -> anyhow::Result<Vec<String>> {
    let data = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let names = match FileKind::parse(&*data) {
        Ok(FileKind::Elf32) => dynamic_names::<elf::FileHeader32<Endianness>>(&data),
        Ok(FileKind::Elf64) => dynamic_names::<elf::FileHeader64<Endianness>>(&data),
        _ => return Ok(Vec::new()),
    };
    names.with_context(|| format!("cannot read the dynamic section of {}", path.display()))
}

fn dynamic_names<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> anyhow::Result<Vec<String>> {
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some((entries, strings)) = sections.dynamic(endian, data)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, data, strings)?;
    entries
        .iter()
        .filter(|entry| entry.tag32(endian) == i32::try_from(elf::DT_NEEDED).ok())
        .map(|entry| Ok(String::from_utf8(entry.string(endian, strings)?.to_vec())?))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("a directory")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("a text")
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_program_names_the_c_library() {
        let this = env::current_exe().expect("this program");
        let needed = needed_by(&this).expect("an ELF file");
        assert!(
            needed.iter().any(|name| name.starts_with("libc.so")),
            "{needed:?}"
        );
        assert!(
            needed_by(Path::new("Cargo.toml"))
                .expect("a file")
                .is_empty()
        );
    }

    #[test]
    fn needed_libraries_stay_with_the_links_to_them_and_others_go() {
        let root = env::temp_dir().join(format!("unused-{}", std::process::id()));
        let lib = root.join("usr/lib/x86_64-linux-gnu");
        let bin = root.join("usr/bin");
        let ours = root.join("ours");
        for dir in [&lib, &bin, &root.join("usr/sbin"), &ours, &lib.join("krb5")] {
            fs::create_dir_all(dir).expect("a directory");
        }
        // A program of the other layer needs a C library, which is a link here.
        fs::copy(
            env::current_exe().expect("this program"),
            ours.join("agent"),
        )
        .expect("a copy");
        for name in [
            "real-libc.so.6.1",
            "libgcc_s.so.1",
            "libnss_dns.so.2",
            "libunused.so.1",
        ] {
            fs::write(lib.join(name), "not ELF").expect("a file");
        }
        symlink("real-libc.so.6.1", lib.join("libc.so.6")).expect("a link");
        fs::write(bin.join("busybox"), "").expect("a file");
        fs::write(bin.join("openssl"), "").expect("a file");
        fs::write(root.join("usr/sbin/xtables-nft-multi"), "").expect("a file");
        symlink("xtables-nft-multi", root.join("usr/sbin/iptables-nft")).expect("a link");
        symlink("/usr/sbin/iptables-nft", root.join("usr/sbin/iptables")).expect("a link");

        remove(&root, &ours).expect("a tree of packages");

        let left = (names(&lib), names(&root.join("usr/sbin")), names(&bin));
        fs::remove_dir_all(&root).expect("the tree is ours");
        assert_eq!(
            left.0,
            [
                "libc.so.6",
                "libgcc_s.so.1",
                "libnss_dns.so.2",
                "real-libc.so.6.1"
            ]
        );
        assert_eq!(left.1, ["iptables", "iptables-nft", "xtables-nft-multi"]);
        assert_eq!(left.2.len(), APPLETS.len() + 1);
    }

    #[test]
    fn the_lists_are_sorted() {
        assert!(CALLED.is_sorted() && APPLETS.is_sorted() && PATHS.is_sorted());
    }
}
