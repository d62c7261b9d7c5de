//! A cgroup that limits the memory of what is started in it, kernel memory included.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The memory controller of cgroups of version 1, where distributions mount it.
const CONTROLLER: &str = "/sys/fs/cgroup/memory";

/// One cgroup. It goes when dropped, if nothing runs in it.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    /// The cgroup of this process at the start, to which it returns.
    home: PathBuf,
}

impl MemoryLimit {
    /// A cgroup for this many bytes; or the reason why there can be none.
    pub fn new(name: &str, bytes: u64) -> Result<std::result::Result<Self, String>> {
        let controller = Path::new(CONTROLLER);
        if !controller.join("memory.limit_in_bytes").exists() {
            return Ok(Err(format!(
                "there is no memory controller of cgroups of version 1 at {CONTROLLER}"
            )));
        }
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let home = groups
            .lines()
            .find_map(|line| line.split_once(":memory:"))
            .context("our memory cgroup")?
            .1;
        let home = controller.join(home.trim_start_matches('/'));
        let group = controller.join(format!("{name}-{}", std::process::id()));
        match fs::create_dir(&group) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(Err(format!("{} cannot be made: {error}", group.display())));
            }
            made => made?,
        }
        let limit = Self { group, home };
        fs::write(limit.group.join("memory.limit_in_bytes"), bytes.to_string())?;
        Ok(Ok(limit))
    }

    /// Runs this; processes it starts stay in the cgroup. Another test of this process would be in
    /// it too.
    pub fn within<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        enter(&self.group)?;
        let result = start();
        enter(&self.home)?;
        result
    }

    /// The number of processes that the kernel ended for want of memory.
    pub fn kills(&self) -> Result<u64> {
        let text = fs::read_to_string(self.group.join("memory.oom_control"))?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(kills.context("oom_kill")?.parse()?)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.group) {
            eprintln!("{} stays behind: {error}", self.group.display());
        }
    }
}

/// Moves this process: another thread of it starts programs.
fn enter(group: &Path) -> Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
        .with_context(|| format!("moving to {}", group.display()))
}
