//! The agent on this host: the options it runs with, and its mode.

use std::{net::IpAddr, path::PathBuf};

use flannel_datapath::{PinRoot, maps::ModeMap, policy::DEFAULT};
use flannel_observe::socket::ask_status;
use flannel_options::RunOptions;
use flannel_status::{ModeStatus, Status};
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::{
    modes::{PERIOD, SETTLED, choice_before},
    run::EXPLANATION,
};

/// The agent of this host.
#[derive(Clone, Debug)]
pub struct LocalAgent {
    /// The options it was started with.
    pub options: RunOptions,
    /// Its status before the test.
    pub status: Status,
    /// The directory of its socket.
    pub state_dir: PathBuf,
}

impl LocalAgent {
    /// Returns the active mode.
    pub(super) fn mode(&self) -> &ModeStatus {
        &self.status.mode
    }

    /// The addresses of its external interface, at which peers reach this host.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let interface = self.status.interface.as_ref();
        let texts = interface
            .into_iter()
            .flat_map(|found| [Some(&found.address), found.ipv6_address.as_ref()]);
        texts
            .flatten()
            .filter_map(|text| text.parse().ok())
            .collect()
    }

    /// Switches to a mode. Returns a remark if the mode does not become active.
    pub(super) async fn set_mode(&self, mode: &str) -> Option<String> {
        if let Err(error) = self.choose(mode) {
            return Some(format!(
                "stays in mode {}: {error:#}",
                self.mode().effective
            ));
        }
        let deadline = Instant::now() + SETTLED;
        loop {
            match ask_status(&self.state_dir).await {
                Ok(status) if status.mode.effective == mode => return None,
                Ok(status) if Instant::now() >= deadline => {
                    let reason = status
                        .mode
                        .reason
                        .unwrap_or_else(|| "no reason is known".to_owned());
                    return Some(format!("is in mode {}: {reason}", status.mode.effective));
                }
                Err(error) if Instant::now() >= deadline => {
                    return Some(format!("has no agent that answers: {error}"));
                }
                _ => sleep(PERIOD).await,
            }
        }
    }

    /// Sets the choice of before the test; a line if that failed.
    pub(super) fn restore_mode(&self) -> Option<String> {
        let choice = choice_before(self.mode());
        let problem = self.choose(&choice).err()?;
        Some(format!(
            "the mode was not set back: {problem:#}; run `flannel-agent datapath set {choice}`"
        ))
    }

    fn choose(&self, choice: &str) -> anyhow::Result<()> {
        let choice = if choice == "auto" {
            None
        } else {
            Some(choice.parse()?)
        };
        let mut map = ModeMap::open(&PinRoot::new(&self.options.paths.bpf_pin_root))?;
        map.set_anyway(choice.unwrap_or(DEFAULT), choice)?;
        Ok(())
    }

    /// Runs a command of this program. Returns its output or the error, and its exit status.
    pub(super) async fn run(&self, words: &[String]) -> (String, Option<i32>) {
        let mut command = Command::new("/proc/self/exe");
        command.args(words).kill_on_drop(true);
        command.arg(format!("--state-dir={}", self.state_dir.display()));
        command.arg(format!(
            "--bpf-pin-root={}",
            self.options.paths.bpf_pin_root.display()
        ));
        let name = words.first().map_or("", String::as_str);
        match timeout(EXPLANATION, command.output()).await {
            Ok(Ok(output)) => {
                let text = if output.stdout.is_empty() {
                    &output.stderr
                } else {
                    &output.stdout
                };
                (
                    String::from_utf8_lossy(text).into_owned(),
                    output.status.code(),
                )
            }
            Ok(Err(error)) => (format!("`{name}` cannot be run: {error}\n"), None),
            Err(_late) => (
                format!("`{name}` took more than {} s\n", EXPLANATION.as_secs()),
                None,
            ),
        }
    }
}
