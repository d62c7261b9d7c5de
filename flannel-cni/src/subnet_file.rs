//! Reading subnet.env, and waiting for it: after a boot the kubelet may be ahead of the agent.
//!
//! The wait polls. inotify would need a watch on a directory that is not there yet either, and a look costs some
//! microseconds.

use std::{
    fs, io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use flannel_subnet_env::SubnetFile;

use crate::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// What is there now.
pub(crate) fn read(path: &Path) -> Result<SubnetFile, Error> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::NoSubnetFile { path: path.to_owned() });
        }
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    SubnetFile::parse(&text).map_err(|reason| Error::SubnetFile { path: path.to_owned(), reason })
}

/// Waits until the file is there and whole; after `patience` the last reason why it is not.
///
/// A malformed file is waited out too: flanneld wrote it in place before 0.28.8, and an operator may mend it.
pub(crate) fn wait(path: &Path, patience: Duration) -> Result<SubnetFile, Error> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match read(path) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let Some(left) = patience.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(error);
        };
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";

    #[test]
    fn each_reason_has_its_code() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("subnet.env");
        let code = |path: &Path| wait(path, Duration::ZERO).expect_err("no file").code();
        assert_eq!((code(&path), code(scratch.path())), (11, 5));
        fs::write(&path, "FLANNEL_MTU\n").expect("written");
        let error = read(&path).expect_err("malformed");
        let expected = format!("{} has FLANNEL_MTU without a value in line 1", path.display());
        assert_eq!((error.code(), error.to_string()), (6, expected));
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
