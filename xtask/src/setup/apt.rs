//! apt and dpkg: install packages, or fetch and unpack them without installing.
//!
//! Package lists are updated at most once, and only when something is missing. Installation needs
//! root; fetching and unpacking does not, once the lists are there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, ensure};

use super::{log::run_logged, release::Release};
use crate::workspace::{self, Workspace};

/// Package lists that are none of this machine's.
#[derive(Debug)]
struct OtherLists {
    lists: PathBuf,
    sources: PathBuf,
}

impl OtherLists {
    /// Restricts apt-get to these lists.
    fn apply(&self, mut command: Command) -> Command {
        command.arg(format!(
            "--option=Dir::Etc::sourcelist={}",
            self.sources.display()
        ));
        command.arg("--option=Dir::Etc::sourceparts=/dev/null");
        command.arg(format!(
            "--option=Dir::State::lists={}",
            self.lists.display()
        ));
        command
    }

    fn remove(self) -> anyhow::Result<()> {
        fs::remove_file(&self.sources)
            .with_context(|| format!("cannot remove {}", self.sources.display()))?;
        remove_dir(&self.lists)
    }
}

/// The option of a line of sources.list that names the keys of Debian.
pub(super) const KEY: &str = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";

/// A line of sources.list, as apt-get fills it in.
fn line(kind: &str, options: &str) -> String {
    format!("{kind} [{options}{KEY}] $(REPO_URI) $(CODENAME) $(COMPONENT)")
}

/// The options by which apt-get takes packages of an architecture.
pub(super) fn architecture_options(name: &str) -> [String; 2] {
    ["Architecture", "Architectures"].map(|option| format!("--option=APT::{option}={name}"))
}

fn foreign_line(architecture: &str) -> String {
    line("deb", &format!("arch={architecture} "))
}

/// Plans the installation on a machine without any package, and fetches what it takes.
fn fetch_closure(
    workspace: &Workspace,
    apt_get: impl Fn() -> Command,
    names: &[&str],
    into: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let all = plan(apt_get(), names, into)?;
    download(workspace, apt_get(), &all, into)
}

/// The packages that an installation on a machine without any package takes.
fn plan(mut apt_get: Command, names: &[&str], into: &Path) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
    let nothing = into.with_extension("status");
    fs::write(&nothing, "").with_context(|| format!("cannot write {}", nothing.display()))?;
    apt_get.arg(format!("--option=Dir::State::status={}", nothing.display()));
    apt_get
        .args(["--simulate", "--no-install-recommends", "install"])
        .args(names);
    let plan = workspace::output(&mut apt_get)?;
    let all: Vec<String> = plan
        .lines()
        .filter_map(planned)
        .map(str::to_owned)
        .collect();
    ensure!(
        all.len() >= names.len(),
        "apt-get plans no installation:\n{plan}"
    );
    Ok(all)
}

fn download(
    workspace: &Workspace,
    mut apt_get: Command,
    names: &[String],
    into: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    run_logged(
        workspace,
        apt_get.arg("download").args(names).current_dir(into),
    )?;
    names.iter().map(|name| package_file(into, name)).collect()
}

/// This machine's package manager.
#[derive(Debug)]
pub(super) struct Apt<'a> {
    workspace: &'a Workspace,
    updated: AtomicBool,
}

impl<'a> Apt<'a> {
    /// Runs nothing yet.
    pub(super) fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            updated: AtomicBool::new(false),
        }
    }

    /// Returns the reason why packages cannot be installed here, if any. It completes a sentence
    /// after "because".
    pub(super) fn obstacle_to_install(&self) -> Option<&'static str> {
        let there = ["apt-get", "dpkg-deb"]
            .iter()
            .all(|name| self.workspace.find_command(name).is_some());
        if !there {
            Some("there is no apt on this system")
        } else if !workspace::is_root() {
            Some("you are not root")
        } else {
            None
        }
    }

    /// Installs packages with what they depend on, not with what they recommend.
    pub(super) fn install(&self, names: &[&str]) -> anyhow::Result<()> {
        self.update();
        let mut command = self.apt_get();
        command
            .args(["install", "--yes", "--no-install-recommends"])
            .args(names);
        run_logged(self.workspace, &mut command)
    }

    /// Fetches packages, without what they depend on, and unpacks them into a directory.
    pub(super) fn unpack(&self, names: &[&str], into: &Path) -> anyhow::Result<()> {
        let fetched = into.with_extension("debs");
        self.fetch(names, &fetched)?;
        for name in names {
            self.extract(&package_file(&fetched, name)?, into)?;
        }
        remove_dir(&fetched)
    }

    /// Fetches packages into a directory, which is made.
    pub(super) fn fetch(&self, names: &[&str], into: &Path) -> anyhow::Result<()> {
        self.update();
        fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
        let mut command = self.apt_get();
        command.arg("download").args(names).current_dir(into);
        run_logged(self.workspace, &mut command)
    }

    /// Fetches packages with all that they depend on, whatever is installed here, into a directory
    /// that is made; the files, by name.
    pub(super) fn closure(&self, names: &[&str], into: &Path) -> anyhow::Result<Vec<PathBuf>> {
        self.update();
        fetch_closure(self.workspace, || self.apt_get(), names, into)
    }

    /// Like [`Self::closure`], for another architecture, whose lists are fetched only for this
    /// call.
    pub(super) fn foreign_closure(
        &self,
        architecture: &str,
        names: &[&str],
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let lists = self.other_lists(&foreign_line(architecture), into)?;
        let files = fetch_closure(
            self.workspace,
            || self.foreign_apt_get(&lists, architecture),
            names,
            into,
        )?;
        lists.remove()?;
        Ok(files)
    }

    /// Fetches packages of another architecture, without what they depend on; their files.
    pub(super) fn foreign(
        &self,
        architecture: &str,
        names: &[&str],
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let lists = self.other_lists(&foreign_line(architecture), into)?;
        let mut fetch = self.foreign_apt_get(&lists, architecture);
        run_logged(
            self.workspace,
            fetch.arg("download").args(names).current_dir(into),
        )?;
        lists.remove()?;
        names.iter().map(|name| package_file(into, name)).collect()
    }

    fn foreign_apt_get(&self, lists: &OtherLists, architecture: &str) -> Command {
        let mut command = lists.apply(self.apt_get());
        command.args(architecture_options(architecture));
        command
    }

    /// Fetches a source package into a directory, which is made; its description (`.dsc`).
    pub(super) fn source(&self, name: &str, into: &Path) -> anyhow::Result<PathBuf> {
        let lists = self.other_lists(&line("deb-src", ""), into)?;
        let mut fetch = lists.apply(self.apt_get());
        run_logged(
            self.workspace,
            fetch
                .args(["source", "--download-only", name])
                .current_dir(into),
        )?;
        lists.remove()?;
        let mut files = fs::read_dir(into)?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        files
            .find(|file| file.extension().is_some_and(|extension| extension == "dsc"))
            .with_context(|| format!("apt-get source left no .dsc in {}", into.display()))
    }

    /// Fetches those packages of an installation of `names` that `wanted` accepts, in the version
    /// of another release of Debian; their files.
    pub(super) fn of_release(
        &self,
        release: &Release<'_>,
        names: &[&str],
        wanted: impl Fn(&str) -> bool,
        into: &Path,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let lists = self.lists_of(
            &release.lines(&self.targets("$(REPO_URI) $(CODENAME) $(COMPONENT)")?),
            into,
        )?;
        let apt_get = || {
            let mut command = lists.apply(self.apt_get());
            command.args(release.options());
            command
        };
        let mut all = plan(apt_get(), names, into)?;
        all.retain(|name| wanted(name));
        let files = download(self.workspace, apt_get(), &all, into)?;
        lists.remove()?;
        Ok(files)
    }

    /// Lists of what this machine has none of, from where it has its packages; and the directory
    /// `into`, next to which they lie.
    fn other_lists(&self, line: &str, into: &Path) -> anyhow::Result<OtherLists> {
        self.lists_of(&self.targets(line)?, into)
    }

    /// The places of this machine's packages of Debian, each in the form of `line`.
    fn targets(&self, line: &str) -> anyhow::Result<BTreeSet<String>> {
        self.update();
        let mut targets = self.workspace.command("apt-get");
        targets.args([
            "indextargets",
            "--format",
            line,
            "Created-By: Packages",
            "Origin: Debian",
        ]);
        let text = workspace::output(&mut targets)?;
        ensure!(
            !text.trim().is_empty(),
            "this machine has no packages of Debian, of which more are needed"
        );
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn lists_of(&self, lines: &BTreeSet<String>, into: &Path) -> anyhow::Result<OtherLists> {
        let lists = OtherLists {
            lists: into.with_extension("lists"),
            sources: into.with_extension("list"),
        };
        for dir in [into, &lists.lists.join("partial")] {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let text = lines
            .iter()
            .fold(String::new(), |text, line| text + line + "\n");
        fs::write(&lists.sources, text)
            .with_context(|| format!("cannot write {}", lists.sources.display()))?;
        run_logged(self.workspace, lists.apply(self.apt_get()).arg("update"))?;
        Ok(lists)
    }

    /// Unpacks one package file into a directory, which is made.
    pub(super) fn extract(&self, package: &Path, into: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(into).with_context(|| format!("cannot create {}", into.display()))?;
        run_logged(
            self.workspace,
            self.workspace
                .command("dpkg-deb")
                .arg("--extract")
                .arg(package)
                .arg(into),
        )
    }

    /// The dependency of a package file whose name starts with `prefix`.
    pub(super) fn dependency(&self, package: &Path, prefix: &str) -> anyhow::Result<String> {
        let mut fields = self.workspace.command("dpkg-deb");
        let depends = workspace::output(fields.arg("--field").arg(package).arg("Depends"))?;
        find_dependency(&depends, prefix).with_context(|| {
            format!(
                "{} depends on no package named {prefix}*",
                package.display()
            )
        })
    }

    /// Updates the lists, once, and ignores a failure: a broken third-party source fails the
    /// update, yet the lists that matter may be fresh. The installation that follows decides, and
    /// its log has both.
    fn update(&self) {
        if !self.updated.swap(true, Ordering::Relaxed) {
            let _ = run_logged(self.workspace, self.apt_get().arg("update"));
        }
    }

    fn apt_get(&self) -> Command {
        let mut command = self.workspace.command("apt-get");
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        command.args([
            "--quiet",
            "--option=DPkg::Lock::Timeout=300",
            "--option=Dpkg::Use-Pty=0",
        ]);
        command
    }
}

/// The file of a package among the fetched ones: `<name>_<version>_<architecture>.deb`.
pub(super) fn package_file(dir: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let start = format!("{name}_");
    fs::read_dir(dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .filter_map(Result::ok)
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&start))
        .map(|entry| entry.path())
        .with_context(|| format!("apt-get download left no {start}*.deb in {}", dir.display()))
}

/// Removes one of our directories.
pub(super) fn remove_dir(dir: &Path) -> anyhow::Result<()> {
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

/// The package of a line such as `Inst tar (1.34+dfsg-1.2 Debian:12/stable [amd64])`.
fn planned(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split(' ').next()
}

fn find_dependency(depends: &str, prefix: &str) -> Option<String> {
    let mut names = depends
        .split(',')
        .filter_map(|item| item.split_whitespace().next());
    names
        .find(|name| name.starts_with(prefix))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_of_an_installation_names_its_packages() {
        assert_eq!(
            planned("Inst tar (1.34+dfsg-1.2+deb12u1 Debian:12.12/oldstable [amd64])"),
            Some("tar")
        );
        assert_eq!(planned("Conf tar (1.34)"), None);
    }

    #[test]
    fn dependencies_are_found_with_and_without_versions() {
        let depends = "libc6 (>= 2.34), libgcc-s1 (>= 4.2), libllvm22, libstd-rust-web-1.96 (= \
            1.96.0+dfsg1-1)\n";
        assert_eq!(
            find_dependency(depends, "libllvm").as_deref(),
            Some("libllvm22")
        );
        assert_eq!(
            find_dependency(depends, "libstd-rust-web-").as_deref(),
            Some("libstd-rust-web-1.96")
        );
        assert_eq!(find_dependency(depends, "libpolly"), None);
    }
}
