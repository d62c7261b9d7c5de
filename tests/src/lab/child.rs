//! Long-running children of a lab: etcd, agents, servers.
//!
//! Each is recorded, writes its output to a log file of the lab, dies with the lab's process
//! whatever way that ends, and is killed and waited for when its guard or its lab is dropped -
//! except in a kept lab.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::{sys::signal::Signal, unistd::Pid};

use super::Shared;
use crate::harness::wait::eventually;

/// A child and its log. Clones share the child; the last one to go ends it.
#[derive(Clone, Debug)]
pub struct ChildGuard {
    process: Arc<Process>,
    log: PathBuf,
}

/// A recorded process of a lab. Dropping it ends it, unless the lab is kept.
#[derive(Debug)]
pub(crate) struct Process {
    what: String,
    pid: u32,
    child: Mutex<Child>,
    kept: Arc<AtomicBool>,
}

impl ChildGuard {
    /// Starts `command` with its output in a log file of the lab. The lab ends it if its guard did
    /// not.
    pub(crate) fn start(lab: &Shared, what: &str, mut command: Command) -> Result<Self> {
        let (log, file) = lab.record().log_file(what)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let process = Process::start(lab, what, command)?;
        lab.own_child(&process);
        Ok(Self { process, log })
    }

    /// The process id. It is this process's own: the wrappers around the command `exec`.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The file with the child's output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns the child's output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last `lines` lines of the log, for error messages.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Returns true while the child runs or is stopped by a signal.
    pub fn is_running(&self) -> bool {
        matches!(self.process.child().try_wait(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.process.child();
        if let Some(status) = child.try_wait()? {
            bail!(
                "{}: {signal} not sent, it has ended: {status}",
                self.process.what
            );
        }
        // Not reaped and the lock is held: the pid is still this child's.
        nix::sys::signal::kill(Pid::from_raw(child.id().cast_signed()), signal)
            .with_context(|| format!("{signal} to {}", self.process.what))
    }

    /// Waits for the end, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        eventually(&format!("end of {}", self.process.what), limit, || {
            self.process.child().try_wait().ok().flatten()
        })
        .with_context(|| format!("end of its log:\n{}", self.log_tail(15)))
    }

    /// Waits for the end and requires exit status 0.
    pub fn wait_success(&self, limit: Duration) -> Result<()> {
        let status = self.wait(limit)?;
        if !status.success() {
            bail!(
                "{}: {status}; end of its log:\n{}",
                self.process.what,
                self.log_tail(15)
            );
        }
        Ok(())
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill9(&self) -> Result<()> {
        let status = self.process.end()?;
        if status.signal() != Some(Signal::SIGKILL as i32) {
            bail!(
                "{} ended before it was killed: {status}\n{}",
                self.process.what,
                self.log_tail(15)
            );
        }
        Ok(())
    }
}

impl Process {
    /// Starts and records a process.
    pub(crate) fn start(lab: &Shared, what: &str, command: Command) -> Result<Arc<Self>> {
        let child = spawn(command).with_context(|| format!("starting {what}"))?;
        let pid = child.id();
        let process = Self {
            what: what.to_owned(),
            pid,
            child: Mutex::new(child),
            kept: lab.kept(),
        };
        // Owned before anything can fail, so that an error ends the child.
        lab.record().add(pid, what)?;
        Ok(Arc::new(process))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills and reaps; also when it has ended already.
    pub(crate) fn end(&self) -> std::io::Result<ExitStatus> {
        let mut child = self.child();
        child.kill()?;
        child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed) {
            // A child that cannot be killed is gone already; a destructor has no caller to report
            // to.
            drop(self.end());
        }
    }
}

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The thread that starts children. `PDEATHSIG` fires when the *thread* that forked ends, so
/// children must not be forked by a thread of a test.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (send, orders) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("lab-spawner".to_owned())
        .spawn(move || {
            for (mut command, reply) in orders {
                // Who gave up waiting for the answer drops the child's handle with it.
                drop(reply.send(command.spawn()));
            }
        })
        .expect("a thread can be started");
    Mutex::new(send)
});

/// Starts a command on a thread that lives as long as this process.
fn spawn(command: Command) -> std::io::Result<Child> {
    let (reply, child) = mpsc::channel();
    SPAWNER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .send((command, reply))
        .map_err(std::io::Error::other)?;
    child.recv().map_err(std::io::Error::other)?
}
