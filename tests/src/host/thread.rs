//! Closures inside a host, on separate threads.

use std::{
    fs::File,
    panic,
    path::Path,
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, setns, unshare};

use super::Host;

impl Host {
    /// Runs a closure inside this host's namespaces and returns what it returned. A panic goes on
    /// in the caller.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            thread::Builder::new()
                .name(self.thread_name())
                .spawn_scoped(scope, || self.switch().map(|()| work()))?
                .join()
                .unwrap_or_else(|payload| panic::resume_unwind(payload))
        })
    }

    /// Starts a thread inside this host's namespaces.
    pub fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let host = self.clone();
        let handle = thread::Builder::new()
            .name(self.thread_name())
            .spawn(move || {
                host.switch()?;
                work()
            })?;
        Ok(handle)
    }

    /// Only for a thread that ends inside this host.
    fn switch(&self) -> Result<()> {
        let open = |path: &Path| {
            File::open(path).with_context(|| format!("{}: {}", self.name(), path.display()))
        };
        let (net, mnt) = self.namespaces();
        let (net, mnt) = (open(&net)?, mnt.map(|path| open(&path)).transpose()?);
        // A mount namespace can be entered only by a thread that shares its root with no other.
        unshare(CloneFlags::CLONE_FS).context("unshare(CLONE_FS)")?;
        setns(net, CloneFlags::CLONE_NEWNET).context("setns to a network namespace")?;
        mnt.map_or(Ok(()), |mnt| {
            setns(mnt, CloneFlags::CLONE_NEWNS).context("setns to a mount namespace")
        })
    }

    /// The kernel cuts thread names at 15 bytes.
    fn thread_name(&self) -> String {
        format!("lab-{}", self.name()).chars().take(15).collect()
    }
}

/// The result of a thread of a host. A panic goes on in the caller.
pub fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|payload| panic::resume_unwind(payload))
}
