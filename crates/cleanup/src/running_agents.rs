//! Agents that run in this network namespace, whatever their state directory.
//!
//! `cleanup` removes devices, routes and rules by their marks, and those of two agents look alike.
//! The lock of one state directory does not protect the network of an agent with another one. The
//! kernel lists the listening sockets of this network namespace with their paths, the agents'
//! status sockets among them. An agent whose state directory cannot be seen from here, because it
//! is in another mount namespace, is found by its claims ([`flannel_claims`]).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use flannel_claims::state_dir::status_socket;
use flannel_observe::socket::ask_status;

/// The sockets of this network namespace.
const SOCKETS: &str = "/proc/net/unix";
/// `__SO_ACCEPTCON` of [include/uapi/linux/net.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/net.h): the socket listens.
const LISTENS: u32 = 1 << 16;

/// Fails if an agent with another state directory than `own` runs in this network namespace, or one
/// with this pin root in any.
pub(super) async fn refuse_others(own: &Path, pin_root: &Path) -> anyhow::Result<()> {
    let sockets = fs::read(SOCKETS).with_context(|| format!("cannot read {SOCKETS}"))?;
    for dir in state_directories(&String::from_utf8_lossy(&sockets)) {
        if dir == own {
            continue;
        }
        let Some(agent) = agent_of(&dir).await else {
            continue;
        };
        let dir = dir.display();
        bail!(
            "{agent} runs here with the state directory {dir}, and cleanup would remove its \
             network; stop it first. \
             To clean up after that agent, pass --state-dir={dir}, and --bpf-pin-root if it has \
             one of its own"
        );
    }
    // Those whose state directory cannot be seen from here.
    if let Some(agent) = flannel_claims::agents()
        .await
        .with_context(|| format!("cannot read {SOCKETS}"))?
        .first()
    {
        bail!("{agent} runs here, and cleanup would remove its network; stop it first");
    }
    if let Some(agent) = flannel_claims::owner_of_pins(pin_root) {
        bail!(
            "{agent} runs in another network namespace, and cleanup would remove its programs; \
             stop it first"
        );
    }
    Ok(())
}

/// The directories of listening sockets that are named as an agent's.
fn state_directories(sockets: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = sockets.lines().filter_map(state_directory).collect();
    found.sort();
    found.dedup();
    found
}

/// Reads a line of [`SOCKETS`]: number, references, protocol, flags, type, state, inode, path.
fn state_directory(line: &str) -> Option<PathBuf> {
    let mut fields = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
    let path = Path::new(line.get(line.find(" /")? + 1..)?);
    let dir = path.parent()?;
    (flags & LISTENS != 0 && path == status_socket(dir)).then(|| dir.to_owned())
}

/// Describes the agent with this state directory; `None` if another program has the socket, or none
/// can be reached by this path.
async fn agent_of(dir: &Path) -> Option<String> {
    match ask_status(dir).await {
        Ok(status) => {
            let pid = status
                .pid
                .map(|pid| format!(" (process {pid})"))
                .unwrap_or_default();
            let lease = status
                .lease
                .map(|lease| format!(" with the subnet {}", lease.subnet))
                .unwrap_or_default();
            Some(format!("an agent{pid}{lease}"))
        }
        // It was stopped, or hangs: its network is in use.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Some("an agent that does not answer".to_owned())
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use flannel_host::count::Count;
    use flannel_observe::socket;
    use flannel_status::{ModeStatus, Status};

    use super::*;

    #[test]
    fn listening_sockets_of_agents_are_found_by_name() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 27 /run/flannel/agent.sock\n\
             0000000000000000: 00000003 00000000 00000000 0001 03 28 /run/connected/agent.sock\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 29 /run/with blank/agent.sock\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 30 @/run/abstract/agent.sock\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 31 \
             /run/containerd/containerd.sock\n\
             0000000000000000: 00000002 00000000 00010000 0001 01 32\n";
        let expected = ["/run/flannel", "/run/with blank"].map(PathBuf::from);
        assert_eq!(state_directories(sockets), expected);
    }

    #[tokio::test]
    async fn a_running_agent_is_named_and_other_programs_are_not_agents() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let [agent, own, other] = dirs.each_ref().map(tempfile::TempDir::path);
        let kernel = "kernel".to_owned();
        let mode = ModeStatus {
            effective: kernel.clone(),
            wanted: kernel,
            ..ModeStatus::default()
        };
        let status = Status {
            pid: Some(7),
            ..Status::without_agent("test", mode)
        };
        let listener = socket::bind(agent).expect("a socket");
        let server = tokio::spawn(socket::serve(
            listener,
            Count::default(),
            socket::Answers {
                status: move || status.clone(),
                metrics: None,
                names: None,
                history: None,
            },
        ));
        // Accepts nothing and is closed before it is asked.
        drop(UnixListener::bind(status_socket(other)).expect("a socket"));

        let found = fs::read_to_string(SOCKETS).expect("the sockets");
        assert!(
            state_directories(&found).contains(&agent.to_owned()),
            "{found}"
        );
        assert_eq!(
            agent_of(agent).await.as_deref(),
            Some("an agent (process 7)")
        );
        assert_eq!(agent_of(other).await, None);
        let refusal = refuse_others(own, own)
            .await
            .expect_err("an agent runs")
            .to_string();
        assert!(
            refusal.contains(" runs here with the state directory "),
            "{refusal}"
        );
        server.abort();
    }
}
