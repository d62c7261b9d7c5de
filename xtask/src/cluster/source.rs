//! The source of Kubernetes: Debian's package, with Debian's patches, and what the package leaves
//! to be generated.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, ensure};

use super::{
    places::{self, Places},
    progress::Download,
};
use crate::{files, setup::Setup, workspace};

/// The version that is built: that of Debian 12.
pub(super) const VERSION: &str = "1.20.2";

/// The arguments of grep that find the files with described types.
pub(super) const DESCRIBED: [&str; 8] = [
    "-rl",
    "--include=*.go",
    "--exclude-dir=_output",
    "--exclude-dir=code-generator",
    "--exclude-dir=sample-apiserver",
    "--exclude-dir=hack",
    "+k8s:openapi-gen=",
    ".",
];

/// Makes the tree, unless it is there.
pub(super) fn ensure(setup: &Setup<'_>, places: &Places) -> anyhow::Result<()> {
    places.remove_other_source()?;
    let tree = places.source();
    if tree.is_dir() {
        return Ok(());
    }
    let fetched = places.work("package");
    let description = setup.source("kubernetes", &fetched)?;
    ensure!(
        description.display().to_string().contains(VERSION),
        "the package's version is that of {}, and the recipe is for {VERSION}, as in Debian 12",
        description.display()
    );
    // Unpacked next to its place: an interrupted run leaves no tree that lacks files.
    let partial = places.work("source.partial");
    remove(&partial)?;
    let mut unpack = setup.workspace().command("dpkg-source");
    unpack
        .args(["--no-check", "--no-copy", "--extract"])
        .arg(&description)
        .arg(&partial);
    workspace::output(&mut unpack)?;
    places::make(tree.parent().context("the tree lies in a directory")?)?;
    fs::rename(&partial, &tree).with_context(|| format!("cannot rename {}", partial.display()))?;
    remove(&fetched)
}

/// The download of [`ensure()`].
pub(super) fn download(places: &Places) -> Download {
    Download {
        files: places.work("package"),
        unpacked: places.work("source.partial"),
        megabytes: 34,
    }
}

/// The packages whose types are described in the API's schema, as arguments of Go's generator.
pub(super) fn described(setup: &Setup<'_>, tree: &Path) -> anyhow::Result<String> {
    let mut grep = setup.workspace().command("grep");
    grep.args(DESCRIBED).current_dir(tree);
    let found = workspace::output(&mut grep)?;
    let packages: BTreeSet<String> = found.lines().filter_map(package).collect();
    ensure!(
        packages.len() > 50,
        "only {} packages have a described type",
        packages.len()
    );
    Ok(packages.into_iter().collect::<Vec<_>>().join(","))
}

/// The package of a file such as `./staging/src/k8s.io/api/core/v1/doc.go`.
fn package(file: &str) -> Option<String> {
    let file = file.strip_prefix("./")?;
    if file.starts_with("test/") {
        return None;
    }
    let (dir, _) = file.rsplit_once('/')?;
    let dir = dir
        .strip_prefix("staging/src/")
        .map_or_else(|| dir.to_owned(), |rest| format!("vendor/{rest}"));
    Some(format!("k8s.io/kubernetes/{dir}"))
}

/// Removes a directory, if there is one.
pub(super) fn remove(dir: &Path) -> anyhow::Result<()> {
    files::remove(dir)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_packages_are_named_as_vendored_ones() {
        let staged = "./staging/src/k8s.io/api/core/v1/doc.go";
        assert_eq!(
            package(staged).as_deref(),
            Some("k8s.io/kubernetes/vendor/k8s.io/api/core/v1")
        );
        assert_eq!(
            package("./pkg/a/b.go").as_deref(),
            Some("k8s.io/kubernetes/pkg/a")
        );
        assert_eq!(package("./test/e2e/a.go"), None);
    }
}
