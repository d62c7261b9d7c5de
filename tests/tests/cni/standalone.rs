//! The plugin on a host without the C library it was built with.

use std::{env, fs, os::unix::fs::PermissionsExt as _, process::Command};

use anyhow::{Context as _, Result, ensure};

/// The image's plugin is copied to hosts with an older C library, another one, or none where its
/// loader is looked for.
#[test]
fn the_plugin_runs_in_an_empty_root() -> Result<()> {
    let plugin = env::var_os("FLANNEL_CNI").context("FLANNEL_CNI names the plugin; `cargo xtask test` sets it")?;
    let root = tempfile::tempdir()?;
    let copy = root.path().join("flannel");
    fs::copy(&plugin, &copy).with_context(|| format!("cannot copy {}", plugin.display()))?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    let output = Command::new("chroot").arg(root.path()).arg("/flannel").env("CNI_COMMAND", "VERSION").output()?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && answer.contains("\"supportedVersions\""),
        "{}: {answer}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
