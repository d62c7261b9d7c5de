//! The process: found, adopted, started, ended.

use std::{
    fs, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use flannel_host::{file, port_holder::process_name};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        socket::{getsockopt, sockopt::PeerCredentials},
    },
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::{
    IpsecError,
    configuration::{self, CharonFiles},
    ports,
};

const NAME: &str = "charon";
/// Directories of the program in distributions, as flannel looks for it.
const PLACES: [&str; 4] = [
    "/usr/lib/strongswan",
    "/usr/lib/ipsec",
    "/usr/libexec/strongswan",
    "/usr/libexec/ipsec",
];
/// A path that is compiled into the program; it does not start while the process in it runs.
const PID_FILE: &str = "/run/charon.pid";
/// The time for a process to begin.
const START: Duration = Duration::from_secs(10);
/// The time to end: each peer is informed.
const END: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_millis(20);

/// Returns the path of the program.
pub fn program() -> Result<PathBuf, IpsecError> {
    let in_places = || {
        PLACES
            .iter()
            .map(|place| Path::new(place).join(NAME))
            .find(|path| path.is_file())
    };
    let found = which::which(NAME).ok().or_else(in_places);
    found.ok_or_else(|| IpsecError::NoProgram {
        places: PLACES.join(", "),
    })
}

/// Returns the process id of the process that listens at a socket; `None` if none does.
pub(super) fn pid_at(socket: &Path) -> Result<Option<u32>, IpsecError> {
    let failed = |error| IpsecError::NoAnswer {
        socket: socket.to_owned(),
        error,
    };
    match UnixStream::connect(socket) {
        Ok(stream) => {
            let credentials =
                getsockopt(&stream, PeerCredentials).map_err(|errno| failed(errno.into()))?;
            Ok(u32::try_from(credentials.pid()).ok())
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Starts a process and waits until it answers.
pub(super) async fn start(program: &Path, files: &CharonFiles) -> Result<(Child, u32), IpsecError> {
    ports::check()?;
    clear_pid_file(Path::new(PID_FILE))?;
    file::remove(&files.socket)?;
    let failed = |problem: String| IpsecError::NotStarted { problem };
    let mut child =
        spawn(program, files).map_err(|error| failed(format!("{}: {error}", program.display())))?;
    let deadline = Instant::now() + START;
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|error| failed(error.to_string()))?
        {
            return Err(failed(format!(
                "it ended with {status}, and its words are in the agent's log; it needs \
                 CAP_NET_BIND_SERVICE, and a \
                 writable directory for {PID_FILE}"
            )));
        }
        if let Some(pid) = pid_at(&files.socket)? {
            return Ok((child, pid));
        }
        if Instant::now() >= deadline {
            break;
        }
        sleep(PERIOD).await;
    }
    // It would be in the way of the next one.
    child
        .kill()
        .await
        .map_err(|error| failed(error.to_string()))?;
    Err(failed(format!(
        "it opens no control socket within {START:?}; its plugin vici may be missing (Debian: \
         strongswan-swanctl)"
    )))
}

/// Starts the process. It inherits only standard error, its log. (A service manager or a container
/// runtime that ends all processes of a service ends it too.)
fn spawn(program: &Path, files: &CharonFiles) -> io::Result<Child> {
    Command::new(program)
        .env_clear()
        .env("STRONGSWAN_CONF", &files.configuration)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
}

/// The program does not start over the file of a process that runs, be it another program's by now:
/// process ids come again in a container that was started again.
fn clear_pid_file(path: &Path) -> Result<(), IpsecError> {
    let pid = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse::<u32>().ok());
    match pid.map(|pid| (pid, process_name(pid))) {
        Some((pid, Some(name))) if name == NAME => Err(IpsecError::AnotherCharon {
            pid,
            file: path.to_owned(),
        }),
        Some((_, Some(_))) => Ok(file::remove(path)?),
        _ => Ok(()),
    }
}

/// Ends the process, with its associations, and removes its files.
pub fn remove(state_dir: &Path) -> Result<(), IpsecError> {
    stop(state_dir)?;
    let directory = configuration::directory(state_dir);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file::failed("remove", &directory)(error).into())
        }
        _ => Ok(()),
    }
}

/// Ends the process, with its associations. Returns false if there is none.
pub fn stop(state_dir: &Path) -> Result<bool, IpsecError> {
    let socket = configuration::socket(&configuration::directory(state_dir));
    let Some(pid) = pid_at(&socket)? else {
        return Ok(false);
    };
    let is_gone = |signal| raw(pid).is_none_or(|target| kill(target, signal) == Err(Errno::ESRCH));
    let deadline = Instant::now() + END;
    let mut gone = is_gone(Some(Signal::SIGTERM));
    while !gone && Instant::now() < deadline {
        thread::sleep(PERIOD);
        gone = is_gone(None);
    }
    if gone {
        Ok(true)
    } else {
        Err(IpsecError::NotEnded { pid })
    }
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, process};

    use super::*;

    #[test]
    fn a_process_is_known_by_its_socket() {
        let scratch = tempfile::tempdir().expect("a directory");
        let socket = scratch.path().join("s");
        assert_eq!(pid_at(&socket).expect("no process"), None);
        let listener = UnixListener::bind(&socket).expect("a socket");
        assert_eq!(pid_at(&socket).expect("this process"), Some(process::id()));
        drop(listener);
        assert_eq!(
            pid_at(&socket).expect("no process"),
            None,
            "a socket that was left"
        );
        assert!(!stop(scratch.path()).expect("none"), "nothing to end");
    }

    #[test]
    fn a_file_of_another_program_s_process_does_not_stay() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("charon.pid");
        clear_pid_file(&file).expect("no file");
        fs::write(&file, format!("{}\n", process::id())).expect("written");
        clear_pid_file(&file).expect("removed");
        assert!(!file.exists());
    }
}
