//! Reading subnet.env, and waiting for it: after a boot the kubelet may be ahead of the agent.
//!
//! The wait polls. inotify would need a watch on a directory that is not there yet either, and a
//! look costs some microseconds.

use std::{
    io::{self, Read as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use flannel_subnet_env::SubnetFile;

use crate::{
    error::Error,
    regular_file::{self, Links},
};

/// The most a subnet.env has, in bytes: the agent writes less than one kilobyte for each network.
const LARGEST: u64 = 64 << 10;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Reads the file as it is now.
pub(crate) fn read(path: &Path) -> Result<SubnetFile, Error> {
    let text = match read_bounded(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoSubnetFile {
                path: path.to_owned(),
            });
        }
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    SubnetFile::parse(&text).map_err(|reason| Error::SubnetFile {
        path: path.to_owned(),
        reason,
    })
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    regular_file::open(path, Links::Follow)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        let too_long = format!("longer than the {LARGEST} bytes a subnet.env may have");
        return Err(io::Error::new(io::ErrorKind::InvalidData, too_long));
    }
    Ok(bytes)
}

/// Waits until the file is there and complete. Returns the last error after `patience`.
///
/// A malformed file is retried too: flanneld wrote it in place before 0.28.8, and an operator may
/// repair it.
pub(crate) fn wait(path: &Path, patience: Duration) -> Result<SubnetFile, Error> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match read(path) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let Some(left) = patience
            .checked_sub(start.elapsed())
            .filter(|left| !left.is_zero())
        else {
            return Err(error);
        };
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    const GOOD: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\n\
        FLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";

    #[test]
    fn each_reason_has_its_code() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("subnet.env");
        let code = |path: &Path| wait(path, Duration::ZERO).expect_err("no file").code();
        assert_eq!((code(&path), code(scratch.path())), (11, 5));
        fs::write(&path, "FLANNEL_MTU\n").expect("written");
        let error = read(&path).expect_err("malformed");
        let expected = format!(
            "{} has FLANNEL_MTU without a value in line 1",
            path.display()
        );
        assert_eq!((error.code(), error.to_string()), (6, expected));
    }

    #[test]
    fn neither_a_huge_file_nor_a_fifo_holds_a_call_up() {
        let scratch = tempfile::tempdir().expect("a directory");
        let huge = scratch.path().join("huge");
        fs::File::create(&huge)
            .and_then(|file| file.set_len(100 << 20))
            .expect("a sparse file");
        let error = read(&huge).expect_err("too long");
        assert_eq!(error.code(), 5, "{error}");
        assert!(
            error
                .to_string()
                .ends_with("longer than the 65536 bytes a subnet.env may have"),
            "{error}"
        );
        let fifo = scratch.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).expect("made");
        let error = read(&fifo).expect_err("a FIFO");
        assert_eq!(
            error.to_string(),
            format!("cannot read {}: not a regular file", fifo.display())
        );
    }

    #[test]
    fn a_file_that_comes_or_is_completed_later_is_waited_for() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("flannel/subnet.env");
        let whole = thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(&path, Duration::from_mins(1)));
            fs::create_dir(path.parent().expect("a parent")).expect("created");
            fs::write(&path, &GOOD[..40]).expect("a part");
            fs::write(&path, GOOD).expect("the whole");
            waiter.join().expect("no panic")
        });
        assert_eq!(whole.expect("the file").mtu, 1472);
    }
}
