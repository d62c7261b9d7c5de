//! `flannel-agent cleanup`.

use std::path::PathBuf;

use clap::Args;
use flannel_cleanup::{self as cleanup, CleanupScope, When};
use flannel_command::{PinOptions, StateOptions};

/// The scope of the cleanup.
#[derive(Debug, Args)]
pub struct CleanupOptions {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove this subnet.env too; it is kept otherwise, so that the node gets its subnet back
    #[arg(long, value_name = "FILE")]
    remove_subnet_file: Option<PathBuf>,
    /// Leave the tunnel devices, routes and rules, by which packets go on without the programs: for
    /// stock flannel to take over
    #[arg(long, conflicts_with = "remove_subnet_file")]
    keep_network: bool,
    /// When the sysctls mode fast changed get back the values before
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    restore_sysctls: When,
    #[command(flatten)]
    state: StateOptions,
    #[command(flatten)]
    pins: PinOptions,
}

/// Runs the command; the text to print.
pub async fn run(options: &CleanupOptions) -> anyhow::Result<String> {
    let scope = CleanupScope {
        pins: options.pins.root(),
        state_dir: options.state.state_dir.clone(),
        subnet_file: options.remove_subnet_file.clone(),
        keep_network: options.keep_network,
        restore_sysctls: options.restore_sysctls,
        dry_run: options.dry_run,
    };
    cleanup::run(&scope).await
}
