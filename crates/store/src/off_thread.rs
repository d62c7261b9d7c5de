//! Work that reads files, on a separate thread and with a deadline.
//!
//! A file may be on a network file system whose server is away. A read of it does not return, and
//! the thread that waits for it cannot be ended. So there is one such thread at most: other
//! attempts wait for it, until their own deadline.

use std::sync::Arc;

use tokio::{
    sync::Mutex,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

/// The thread of one kind of work. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffThread {
    turn: Arc<Mutex<()>>,
}

/// Work that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The deadline passed.
    #[error("the files cannot be read in time; is their file system away?")]
    TimedOut,
    /// An earlier attempt did not come to its end before the deadline.
    #[error("an earlier attempt still waits for the files; is their file system away?")]
    Busy,
    /// It panicked.
    #[error("reading the files failed")]
    Panicked,
}

impl OffThread {
    /// Runs `work` until its end or until `end`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        end: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let turn = timeout_at(end, Arc::clone(&self.turn).lock_owned())
            .await
            .or(Err(Unfinished::Busy))?;
        let task = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        match timeout_at(end, task).await {
            Ok(result) => result.or(Err(Unfinished::Panicked)),
            Err(_elapsed) => Err(Unfinished::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test]
    async fn work_that_hangs_ends_at_its_deadline_and_has_no_second_thread() {
        let thread = OffThread::default();
        let (release, held) = mpsc::channel::<()>();
        let hang = move || {
            let _ended = held.recv();
        };
        assert_eq!(
            thread.run(Instant::now(), hang).await,
            Err(Unfinished::TimedOut)
        );
        assert_eq!(
            thread.run(Instant::now(), || 1).await,
            Err(Unfinished::Busy)
        );
        let waits = thread.run(after(60), || 1);
        drop(release);
        assert_eq!(waits.await, Ok(1));
    }

    #[tokio::test]
    async fn a_panic_ends_the_turn() {
        let thread = OffThread::default();
        // Without the hook, whose backtrace takes seconds on a busy machine.
        let panic = || std::panic::resume_unwind(Box::new(()));
        assert_eq!(
            thread.run::<()>(after(60), panic).await,
            Err(Unfinished::Panicked)
        );
        assert_eq!(thread.run(after(60), || 2).await, Ok(2));
    }
}
