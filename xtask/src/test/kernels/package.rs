//! The kernel's package: fetched once, unpacked below `target/kernels`, its modules indexed.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};

use super::{architecture::Architecture, set::Series};
use crate::{files, setup::Setup, workspace};

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    dir: PathBuf,
    /// Its version as upstream counts, such as `6.1.192`.
    pub(super) version: String,
    /// Its release as it says itself, such as `6.1.0-56-amd64`.
    pub(super) release: String,
    /// The architecture it is for.
    pub(super) architecture: Architecture,
}

impl Kernel {
    /// Finds it, or fetches the newest of its series.
    pub(super) fn ensure(setup: &Setup<'_>, series: &Series) -> anyhow::Result<Self> {
        let dir = setup.workspace().target().join("kernels").join(series.name);
        if !dir.join("root").is_dir() {
            println!("kernel {}: fetch it, 60 to 170 MB", series.name);
            fetch(setup, series, &dir)
                .with_context(|| format!("cannot get the kernel {}", series.name))?;
        }
        let version = dir.join("root/version");
        let version = fs::read_to_string(&version)
            .with_context(|| format!("cannot read {}", version.display()))?;
        let release = release(&dir.join("root"))?;
        Ok(Self {
            dir,
            version,
            release,
            architecture: series.architecture,
        })
    }

    /// The directory of what belongs to it.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The root directory of its package.
    pub(super) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The directory of its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.root().join("lib/modules").join(&self.release)
    }

    /// The image that is booted. Packages since Linux 6.19 have it next to the modules.
    pub(super) fn image(&self) -> anyhow::Result<PathBuf> {
        let places = [
            self.root()
                .join("boot")
                .join(format!("vmlinuz-{}", self.release)),
            self.modules().join("vmlinuz"),
        ];
        let image = places.iter().find(|path| path.is_file());
        image.cloned().with_context(|| {
            format!(
                "no {}",
                places
                    .each_ref()
                    .map(|path| path.display().to_string())
                    .join(" and no ")
            )
        })
    }
}

fn fetch(setup: &Setup<'_>, series: &Series, dir: &Path) -> anyhow::Result<()> {
    let workspace = setup.workspace();
    let architecture = workspace.architecture()?;
    ensure!(
        architecture == "amd64",
        "kernels are booted on amd64 alone, and this machine is {architecture}"
    );
    let (debs, partial) = (dir.join("debs"), dir.join("partial"));
    for stale in [&debs, &partial] {
        files::remove(stale)?;
    }
    let image = format!("linux-image-{}", series.architecture.name());
    let packages = setup.of_release(&series.release, &[&image], is_of_a_kernel, &debs)?;
    for package in &packages {
        setup.extract(package, &partial)?;
    }
    if !partial.join("lib").exists() {
        symlink("usr/lib", partial.join("lib")).context("cannot link lib to usr/lib")?;
    }
    // The package leaves this to the machine it is installed on.
    setup.run_logged(
        workspace
            .command("depmod")
            .arg("-b")
            .arg(&partial)
            .arg(release(&partial)?),
    )?;
    let version = packages
        .iter()
        .find_map(|package| version(package))
        .context("a package without a version")?;
    fs::write(partial.join("version"), version).context("cannot note the version")?;
    fs::rename(&partial, dir.join("root"))
        .with_context(|| format!("cannot rename {}", partial.display()))?;
    fs::remove_dir_all(&debs).with_context(|| format!("cannot remove {}", debs.display()))
}

/// Image, modules, and what lists them: one package or several, by the release of Debian.
fn is_of_a_kernel(name: &str) -> bool {
    let rest = [
        "linux-image-",
        "linux-binary-",
        "linux-modules-",
        "linux-base-",
    ]
    .iter()
    .find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Upstream's part of a version, in a file name such as
/// `linux-image-6.1.0-56-amd64_6.1.192-1_amd64.deb`.
fn version(package: &Path) -> Option<String> {
    let name = package.file_name()?.to_str()?;
    let (version, _) = name.split('_').nth(1)?.split_once('-')?;
    Some(version.to_owned())
}

fn release(root: &Path) -> anyhow::Result<String> {
    let modules = root.join("lib/modules");
    let mut entries =
        fs::read_dir(&modules).with_context(|| format!("cannot read {}", modules.display()))?;
    let entry = entries
        .next()
        .with_context(|| format!("no modules in {}", modules.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// The files of a module and of all it depends on, in the order in which they are loaded; none if
/// it is built in.
pub(super) fn module_files(
    setup: &Setup<'_>,
    kernel: &Kernel,
    name: &str,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut modprobe = setup.workspace().command("modprobe");
    modprobe
        .arg("--dirname")
        .arg(kernel.root())
        .arg("--set-version")
        .arg(&kernel.release);
    let text = workspace::output(modprobe.args(["--show-depends", name]))?;
    Ok(text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("insmod ")?.trim().into()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_kernel_are_known_by_a_number() {
        for name in [
            "linux-image-6.1.0-56-amd64",
            "linux-modules-7.3.4+deb13-amd64",
            "linux-base-7.3.4+deb13-amd64",
        ] {
            assert!(is_of_a_kernel(name), "{name}");
        }
        for name in [
            "linux-image-amd64",
            "linux-base",
            "linux-base-amd64",
            "kmod",
        ] {
            assert!(!is_of_a_kernel(name), "{name}");
        }
        let package = Path::new("x/linux-binary-7.3.4+deb13-amd64_7.3.4-1~bpo13+1_amd64.deb");
        assert_eq!(version(package).as_deref(), Some("7.3.4"));
    }
}
