//! Mounts below a lab's directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::mount::{UnmountFlags, unmount};

/// Mount points at or below `dir`, the last mounted first, which is the order to unmount them in.
pub(super) fn below(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    Ok(parse(&table, dir))
}

/// Takes the mount out of the tree now; the kernel frees it when its last user is gone.
pub(super) fn detach(point: &Path) -> anyhow::Result<()> {
    unmount(point, UnmountFlags::DETACH)
        .with_context(|| format!("cannot unmount {}", point.display()))
}

fn parse(table: &str, dir: &Path) -> Vec<PathBuf> {
    let points = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(dir)).collect();
    points.reverse();
    points
}

/// The kernel writes space, tab, newline and backslash as three octal digits behind a backslash,
/// and `#` too, which is not decoded here (`mangle()` in [fs/proc_namespace.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/fs/proc_namespace.c)).
fn unescape(text: &str) -> PathBuf {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| {
            text.replace(code, plain)
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_mounts_come_first_and_others_not_at_all() {
        let table = "21 1 0:2 / / rw - rootfs rootfs rw\n\
                     30 21 0:5 / /run/flannel-lab/x/bpf rw - bpf bpf rw\n\
                     31 30 0:6 / /run/flannel-lab/x/bpf/a\\040b rw - tmpfs tmpfs rw\n\
                     32 21 0:7 / /run/flannel-lab/xy rw - tmpfs tmpfs rw\n";
        let points = parse(table, Path::new("/run/flannel-lab/x"));
        assert_eq!(
            points,
            [
                Path::new("/run/flannel-lab/x/bpf/a b"),
                Path::new("/run/flannel-lab/x/bpf")
            ]
        );
    }
}
