//! A machine that was suspended, as one process sees it.
//!
//! A test can neither suspend its machine nor set its clock. A library loaded before libc answers
//! `clock_gettime` instead. Either the boot clock and the wall clock have advanced by the time
//! slept and the monotonic clock has not, or only the wall clock was set. Timers are the kernel's
//! and stand where they stood, as after suspension.

use std::{fs, io::Write as _, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};

use crate::{AgentOptions, Node};

const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Seconds: slept, and by how much the wall clock was set. */
static const volatile int64_t *skew;

__attribute__((constructor)) static void map(void) {
  int fd = open("/run/clocks", O_RDONLY);
  void *at = fd < 0 ? MAP_FAILED : mmap(0, 16, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) abort();
  skew = at;
  close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && skew && clock == CLOCK_BOOTTIME) now->tv_sec += skew[0];
  if (!failed && skew && clock == CLOCK_REALTIME) now->tv_sec += skew[0] + skew[1];
  return failed;
}
"#;

/// The clocks of the processes a node starts with [`Clocks::of`]'s options.
#[derive(Debug)]
pub struct Clocks {
    skew: PathBuf,
}

impl Clocks {
    /// Prepares a node, and an agent that is to run on it.
    pub fn of(node: &Node, options: AgentOptions) -> Result<(Self, AgentOptions)> {
        let (source, library) = (
            node.outside_path("/run/clocks.c"),
            node.outside_path("/run/clocks.so"),
        );
        fs::write(&source, SOURCE)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .output();
        let built = built.context("cc, which cargo links with")?;
        ensure!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let clocks = Self {
            skew: node.outside_path("/run/clocks"),
        };
        fs::write(&clocks.skew, [0; 16])?;
        Ok((clocks, options.wrapped_by("env LD_PRELOAD=/run/clocks.so")))
    }

    /// Sets the total time for which the machine was suspended.
    pub fn slept(&self, time: Duration) -> Result<()> {
        self.write(0, time)
    }

    /// Sets the total time by which the wall clock was set forward.
    pub fn set_forward(&self, time: Duration) -> Result<()> {
        self.write(8, time)
    }

    /// In place: the file is mapped.
    fn write(&self, at: u64, time: Duration) -> Result<()> {
        use std::io::{Seek as _, SeekFrom};
        let mut file = fs::OpenOptions::new().write(true).open(&self.skew)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(file.write_all(&i64::try_from(time.as_secs())?.to_ne_bytes())?)
    }
}
