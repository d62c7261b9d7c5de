//! The last lines of the log, in memory: the service manager or the container runtime has the log,
//! where `bugtool` may not read it.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

/// The bytes that are kept.
const KEPT: usize = 128 << 10;

static LINES: Mutex<Lines> = Mutex::new(Lines {
    lines: VecDeque::new(),
    bytes: 0,
});

/// Lines up to a sum of bytes, the oldest first.
#[derive(Debug, Default)]
struct Lines {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Lines {
    fn push(&mut self, line: &[u8]) {
        let line = &line[..line.len().min(KEPT)];
        self.bytes += line.len();
        self.lines.push_back(line.into());
        while self.bytes > KEPT {
            self.bytes -= self.lines.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

/// Writes lines to the memory. Each write is a line.
#[derive(Clone, Copy, Debug)]
pub struct RecentLines;

impl Write for RecentLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that are kept.
pub fn lines() -> Vec<u8> {
    let kept = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    kept.lines
        .iter()
        .flat_map(|line| line.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_kept_up_to_a_bound() {
        let mut lines = Lines::default();
        for number in 0..10_000 {
            lines.push(format!("line {number:>40}\n").as_bytes());
            assert!(lines.bytes <= KEPT);
        }
        assert_eq!(
            lines.lines.iter().map(|line| line.len()).sum::<usize>(),
            lines.bytes
        );
        assert!(
            lines.bytes > KEPT - 100
                && lines
                    .lines
                    .back()
                    .is_some_and(|line| line.ends_with(b" 9999\n"))
        );
        lines.push(&vec![b'x'; 2 * KEPT]);
        assert_eq!((lines.lines.len(), lines.bytes), (1, KEPT));
    }
}
