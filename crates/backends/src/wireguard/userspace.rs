//! Starts a process that is a WireGuard device.

use std::{
    env, fs, io,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use super::{WireguardError, uapi};

/// The programs, in the order in which they are looked for.
const PROGRAMS: [&str; 2] = ["wireguard-go", "boringtun-cli"];
/// The variable in which wg-quick looks for another one.
const VARIABLE: &str = "WG_QUICK_USERSPACE_IMPLEMENTATION";
/// The program puts itself into the background when its device is there.
const PATIENCE: Duration = Duration::from_secs(20);
const PERIOD: Duration = Duration::from_millis(20);

/// Starts a process for the device of this name and waits until it answers.
///
/// The process inherits no open files, and its parent ends at once, so it outlives the agent. (A
/// service manager or a container runtime that ends all processes of a service ends it too.)
pub async fn start(device: &str) -> Result<(), WireguardError> {
    let program = program().ok_or(WireguardError::NoImplementation)?;
    let failed = |problem: String| WireguardError::NotStarted {
        program: program.display().to_string(),
        device: device.to_owned(),
        problem,
    };
    let socket = uapi::socket(device);
    // A process that was killed leaves its socket behind, and some programs do not start over it.
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(error.to_string()));
        }
        _ => {}
    }
    let child = Command::new(&program)
        .arg(device)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut child = child.map_err(|error| failed(error.to_string()))?;
    let ended = timeout(PATIENCE, child.wait()).await;
    let status = ended.map_err(|_late| failed(format!("it did not start within {PATIENCE:?}")))?;
    let status = status.map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!(
            "{status}; run it with --foreground to see why"
        )));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match uapi::ask(&socket, uapi::READ).await {
            Ok(_) => break,
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => sleep(PERIOD).await,
        }
    }
    tracing::info!(device, program = %program.display(), "the kernel has no WireGuard: a process \
        is the device");
    Ok(())
}

fn program() -> Option<PathBuf> {
    let asked = env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    match asked {
        Some(name) => which::which(name).ok(),
        None => PROGRAMS.iter().find_map(|name| which::which(name).ok()),
    }
}
