//! The process: adopted, started, or replaced.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use flannel_udp::{Reply, Request, State, TunnelOptions, ask, build};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{PATIENCE, UdpError};

/// The program of this process, whatever became of its file.
const OURSELVES: &str = "/proc/self/exe";
/// The time for a process to begin, with a predecessor that hands over.
const START: Duration = Duration::from_secs(20);
const PERIOD: Duration = Duration::from_millis(5);
/// Bytes of an error message that are read.
const MESSAGE: u64 = 4096;

/// A handle on the process at a control socket.
#[derive(Clone, Debug)]
pub struct Process {
    control: PathBuf,
}

impl Process {
    /// Creates the handle. It sends no request.
    pub const fn new(control: PathBuf) -> Self {
        Self { control }
    }

    /// The path of the control socket.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Asks on another thread: the process may take a moment.
    pub async fn ask(&self, request: Request) -> Result<Reply, UdpError> {
        let control = self.control.clone();
        let asked = spawn_blocking(move || ask(&control, &request, PATIENCE)).await;
        match asked.map_err(|error| UdpError::Unexpected {
            reply: error.to_string(),
        })?? {
            Reply::Refused { reason } => Err(UdpError::Unexpected { reply: reason }),
            reply => Ok(reply),
        }
    }

    /// Returns the state of the process.
    pub async fn state(&self) -> Result<State, UdpError> {
        match self.ask(Request::State).await? {
            Reply::State(state) => Ok(state),
            other => Err(UdpError::Unexpected {
                reply: format!("{other:?}"),
            }),
        }
    }

    /// Starts a process, which takes over from a running one, and waits until it carries packets.
    pub async fn start(&self, options: &TunnelOptions) -> Result<State, UdpError> {
        let failed = |problem: String| UdpError::NotStarted { problem };
        let mut child = spawn(options).map_err(|error| failed(error.to_string()))?;
        let deadline = Instant::now() + START;
        loop {
            if child
                .try_wait()
                .map_err(|error| failed(error.to_string()))?
                .is_some()
            {
                return Err(failed(message(&mut child).await));
            }
            match self.state().await {
                Ok(state) if Some(state.pid) == child.id() => return Ok(state),
                _ if Instant::now() >= deadline => break,
                _ => sleep(PERIOD).await,
            }
        }
        // It would be in the way of the next one.
        child
            .kill()
            .await
            .map_err(|error| failed(error.to_string()))?;
        Err(failed(format!("it does not answer within {START:?}")))
    }
}

/// Returns true if a process does what these options ask for, with our own program.
pub fn fits(state: &State, options: &TunnelOptions, index: u32) -> bool {
    let TunnelOptions {
        device,
        network,
        source,
        port,
        ..
    } = options;
    state.device == *device
        && state.index == index
        && state.network == *network
        && state.source == *source
        && state.port == *port
        && state.build == build()
}

/// Starts the process. It inherits only standard error, which it needs until it carries packets. (A
/// service manager or a container runtime that ends all processes of a service ends it too.)
fn spawn(options: &TunnelOptions) -> std::io::Result<Child> {
    let TunnelOptions {
        control,
        device,
        network,
        source,
        port,
    } = options;
    Command::new(OURSELVES)
        .arg0("flannel-agent")
        .arg("udp-tunnel")
        .arg("--control")
        .arg(control)
        .arg(format!("--device={device}"))
        .arg(format!("--network={network}"))
        .arg(format!("--source={source}"))
        .arg(format!("--port={port}"))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// Returns the last words of a process that has ended.
async fn message(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut stderr = stderr.take(MESSAGE);
        // Without its words its end is known all the same.
        let _ = timeout(PATIENCE, stderr.read_to_end(&mut text)).await;
    }
    let text = String::from_utf8_lossy(&text);
    let text = text.trim().trim_start_matches("error: ");
    if text.is_empty() {
        "it ended at once".to_owned()
    } else {
        text.to_owned()
    }
}
