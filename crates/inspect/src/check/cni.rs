//! The CNI plugins that flannel's plugin calls. They are not part of flannel, and without them no
//! pod starts.

use std::path::Path;

use super::{code::HostCode, finding::Finding};

/// The plugins of flannel's own configuration, and the one that runtimes call for each pod.
const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
/// Directories of plugins: the usual one, and those of distributions' packages.
const DIRECTORIES: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];
/// The configurations.
const CONFIGURATIONS: &str = "/etc/cni/net.d";

/// Checks the plugins; `None` on a host without CNI, such as one of Docker, and in the agent's
/// container.
pub(super) fn look() -> Option<Finding> {
    look_below(Path::new("/"))
}

fn look_below(root: &Path) -> Option<Finding> {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let [usual, ..] = DIRECTORIES;
    let is_configured = at(CONFIGURATIONS)
        .read_dir()
        .is_ok_and(|mut files| files.next().is_some());
    if !is_configured && !at(usual).exists() {
        return None;
    }
    let is_there = |name: &&str| DIRECTORIES.iter().any(|dir| at(dir).join(name).is_file());
    let missing: Vec<&str> = PLUGINS.into_iter().filter(|name| !is_there(name)).collect();
    Some(if missing.is_empty() {
        Finding::ok(
            "cni",
            "the plugins that flannel's CNI plugin calls are installed",
        )
    } else {
        Finding::warn(
            HostCode::CniPlugins,
            format!("not in {}: {}", DIRECTORIES.join(", "), missing.join(", ")),
            format!(
                "pods of flannel's usual CNI configuration do not start: install the CNI plugins \
                 (package \
                 containernetworking-plugins) in {usual}, or where the container runtime searches; \
                 in Kubernetes \
                 `flannel-agent install --cni-plugins` brings them"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::check::Level;

    #[test]
    fn missing_plugins_are_named_where_there_is_cni() {
        let scratch = tempfile::tempdir().expect("a directory");
        let look = || look_below(scratch.path());
        let write = |path: &str| {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, "").expect("written");
        };
        write("usr/lib/cni/portmap");
        assert_eq!(look(), None, "a package alone is not in use");
        write("etc/cni/net.d/10-flannel.conflist");
        let found = look().expect("a finding");
        assert_eq!(found.level, Level::Warn);
        assert!(
            found
                .text
                .ends_with("/usr/libexec/cni: bridge, host-local, loopback"),
            "{}",
            found.text
        );
        for name in ["bridge", "host-local", "loopback"] {
            write(&format!("opt/cni/bin/{name}"));
        }
        assert_eq!(look().expect("a finding").level, Level::Ok);
        fs::remove_dir_all(scratch.path().join("etc")).expect("removed");
        fs::remove_file(scratch.path().join("opt/cni/bin/bridge")).expect("removed");
        assert_eq!(look().expect("a finding").level, Level::Warn);
    }
}
