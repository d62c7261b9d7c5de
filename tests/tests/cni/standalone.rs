//! The plugin on a host without the C library it was built with.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::cni::plugin;

/// The image's plugin is copied to hosts with an older C library, another one, or none where its
/// loader is looked for.
#[test]
fn the_plugin_runs_in_an_empty_root() -> Result<()> {
    let root = tempfile::tempdir()?;
    let copy = root.path().join("flannel");
    // With its permissions.
    fs::copy(plugin()?, &copy).context("cannot copy the plugin")?;
    let output = Command::new("chroot")
        .arg(root.path())
        .arg("/flannel")
        .env("CNI_COMMAND", "VERSION")
        .output()?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && answer.contains("\"supportedVersions\""),
        "{}: {answer}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
