//! Subjects of the end-to-end suite: the folders of `tests/tests`.

use std::fs;

use anyhow::{Context as _, ensure};

use crate::{cli::TestOptions, workspace::Workspace};

/// Subjects of `--quick`: less than a minute, with agents on several nodes in all three modes.
const QUICK: [&str; 2] = ["lab", "cni"];

/// The subject that runs at the same time as the others: a cluster is mostly waiting for itself.
pub(super) const KUBERNETES: &str = "kubernetes";

/// Returns the subjects that the options choose: all where they name none.
///
/// # Errors
/// There is no subject of that name.
pub(super) fn chosen(workspace: &Workspace, options: &TestOptions) -> anyhow::Result<Vec<String>> {
    if options.quick {
        return Ok(QUICK.map(str::to_owned).to_vec());
    }
    let known = all(workspace)?;
    for subject in &options.subjects {
        ensure!(known.contains(subject), "no subject {subject} in tests/tests; there are: {}", known.join(", "));
    }
    Ok(if options.subjects.is_empty() { known } else { options.subjects.clone() })
}

fn all(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let folder = workspace.root().join("tests/tests");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let folders = entries.filter_map(Result::ok).filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_chooses_no_other_subject() {
        let names = all(&Workspace::new().expect("the project")).expect("folders");
        for name in &names {
            assert!(names.iter().filter(|other| other.starts_with(name.as_str())).count() == 1, "{name}");
        }
        for quick in QUICK {
            assert!(names.iter().any(|name| name == quick), "{quick}");
        }
    }

    #[test]
    fn programs_are_named_after_their_folder() {
        let workspace = Workspace::new().expect("the project");
        let manifest = fs::read_to_string(workspace.root().join("tests/Cargo.toml")).expect("the manifest");
        let values = |key: &str| -> Vec<String> {
            let lines = manifest.split("[[test]]").skip(1).filter_map(|entry| entry.split_once(&format!("{key} = \"")));
            lines.filter_map(|(_, rest)| Some(rest.split_once('"')?.0.to_owned())).collect()
        };
        let (names, paths) = (values("name"), values("path"));
        assert_eq!(names.len(), paths.len());
        for (name, path) in names.iter().zip(paths) {
            let folder = path.split('/').nth(1).expect("a folder");
            assert!(name.starts_with(&format!("{folder}_")), "{name} lies at {path}");
        }
    }
}
