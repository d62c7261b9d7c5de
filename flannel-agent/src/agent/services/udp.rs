//! The process of the backend udp at the start of an agent.

use std::path::PathBuf;

use flannel_backends::udp;
use flannel_host::error_chain::chain;
use flannel_options::RunOptions;
use flannel_store::config::{BackendConfig, NetworkConfig};
use tokio::task::spawn_blocking;

/// Returns the control socket of the process that carries the packets, if the backend is udp. With
/// another backend, a running process is stopped, and its device and route are removed.
pub(in crate::agent) async fn control_socket(
    options: &RunOptions,
    config: &NetworkConfig,
) -> Option<PathBuf> {
    let control = udp::control_socket(&options.paths.state_dir);
    if matches!(config.backend, BackendConfig::Udp(_)) {
        return Some(control);
    }
    match spawn_blocking(move || udp::stop(&control)).await {
        Ok(Ok(true)) => tracing::info!("ended the tunnel process of the former backend udp"),
        Ok(Err(error)) => tracing::warn!(
            error = chain(&error),
            "the tunnel process of the former backend udp is left"
        ),
        Ok(Ok(false)) | Err(_) => {}
    }
    None
}
