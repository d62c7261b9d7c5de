//! Directories of a lab outside its own: cgroups, and files too large for `/run`.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

/// The only places where a lab has any.
const PLACES: [&str; 2] = ["/sys/fs/cgroup/", "/var/tmp/flannel-lab/"];
/// The time in which the processes of a killed pid namespace leave their cgroups.
const LAST_PROCESSES: Duration = Duration::from_secs(10);

/// Removes one, with all below it.
pub(super) fn remove(dir: &Path) -> anyhow::Result<()> {
    ensure!(
        is_a_labs(dir),
        "{} is in a lab's record and no lab has directories there",
        dir.display()
    );
    let start = Instant::now();
    loop {
        match remove_now(dir) {
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy
                    && start.elapsed() < LAST_PROCESSES =>
            {
                thread::sleep(Duration::from_millis(100));
            }
            result => return result.with_context(|| format!("cannot remove {}", dir.display())),
        }
    }
}

fn is_a_labs(dir: &Path) -> bool {
    let text = dir.to_string_lossy();
    PLACES.iter().any(|place| {
        text.strip_prefix(place)
            .is_some_and(|rest| rest.split('/').all(is_a_name))
    })
}

fn is_a_name(part: &str) -> bool {
    !["", ".", ".."].contains(&part)
}

/// The files of a cgroup go with it, and cannot be removed.
fn remove_now(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    if !dir.starts_with(PLACES[0]) {
        return fs::remove_dir_all(dir);
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_now(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_else_is_removed() {
        assert!(is_a_labs(Path::new("/sys/fs/cgroup/cpu/kubernetes-1-n1")));
        assert!(is_a_labs(Path::new("/var/tmp/flannel-lab/kubernetes-1")));
        for other in [
            "/",
            "/home",
            "/var/tmp/flannel-lab/",
            "/var/tmp/flannel-lab/.",
            "/var/tmp/flannel-lab/..",
            "/var/tmp/flannel-lab/../../lib",
            "/sys/fs/cgroup/cpu/..",
        ] {
            assert!(!is_a_labs(Path::new(other)), "{other}");
        }
    }
}
