//! Software bills of materials: what the shipped programs are made of, in CycloneDX 1.5.
//!
//! cargo-cyclonedx writes one file into the directory of each package of the workspace. Those of
//! the shipped programs, and of the BPF object inside the agent, are moved to where they belong;
//! none is left in the project.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{
    files::write,
    image,
    workspace::{self, Workspace},
};

/// The shipped programs: the package, and the name of its bill.
const SHIPPED: [(&str, &str); 3] = [
    ("flannel-agent", "flannel-agent"),
    ("flannel-cni", "flannel"),
    ("flannel-ebpf", "flannel-ebpf"),
];
/// Before its suffix; no file of the project is called so.
const NAME: &str = "xtask-sbom";

/// Writes the bills into a directory, by the cargo-cyclonedx in `tool`; their paths.
pub(super) fn make(
    workspace: &Workspace,
    tool: &Path,
    into: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let mut cargo = workspace.cargo_with(tool);
    cargo.args([
        "cyclonedx",
        "--format=json",
        "--spec-version=1.5",
        "--no-build-deps",
        "--override-filename",
        NAME,
    ]);
    // With it a bill has no random number, and the time of all other files.
    cargo.env("SOURCE_DATE_EPOCH", image::epoch()?.to_string());
    let made = workspace::run(&mut cargo, "cargo cyclonedx")
        .and_then(|()| collect(workspace.root(), into));
    remove_rest(workspace.root())?;
    made
}

fn collect(root: &Path, into: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut bills = Vec::new();
    for (package, name) in SHIPPED {
        let made = workspace::package_dir(root, package).join(format!("{NAME}.json"));
        let text =
            fs::read_to_string(&made).with_context(|| format!("cannot read {}", made.display()))?;
        let bill = into.join(format!("{name}.cdx.json"));
        write(&bill, &without_root(&text, root))?;
        bills.push(bill);
    }
    Ok(bills)
}

/// Removes the project's directory on this machine from a bill, where it does not belong. Our own
/// packages are named by their directory.
fn without_root(text: &str, root: &Path) -> String {
    text.replace(&format!("file://{}", root.display()), "file://")
}

fn remove_rest(root: &Path) -> anyhow::Result<()> {
    for package in workspace::package_dirs(root)? {
        let rest = package.join(format!("{NAME}.json"));
        if rest.is_file() {
            fs::remove_file(&rest).with_context(|| format!("cannot remove {}", rest.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_a_package_of_the_workspace() {
        let workspace = Workspace::new().expect("the project");
        for (package, _) in SHIPPED {
            assert!(
                workspace::package_dir(workspace.root(), package)
                    .join("Cargo.toml")
                    .is_file(),
                "{package}"
            );
        }
    }

    #[test]
    fn a_bill_does_not_say_where_it_was_made() {
        let text = r#"{"bom-ref":"path+file:///home/me/flannel/flannel-common#0.1.0"}"#;
        let wanted = r#"{"bom-ref":"path+file:///flannel-common#0.1.0"}"#;
        assert_eq!(without_root(text, Path::new("/home/me/flannel")), wanted);
    }

    /// Also those of packages that are not shipped, and after a failure.
    #[test]
    fn nothing_is_left_in_the_project() {
        let root = std::env::temp_dir().join(format!("xtask-sbom-{}", std::process::id()));
        let folders = [
            "flannel-agent",
            "flannel-ebpf",
            "tests",
            "crates/cni",
            "crates/host",
        ]
        .map(|name| root.join(name));
        for folder in &folders {
            write(&folder.join("Cargo.toml"), "").expect("a file");
            write(&folder.join(format!("{NAME}.json")), "{}").expect("a file");
        }
        let bills = collect(&root, &root.join("dist")).expect("bills");
        remove_rest(&root).expect("removed");
        assert!(bills.iter().all(|bill| bill.is_file()), "{bills:?}");
        let left = folders.map(|folder| folder.join(format!("{NAME}.json")).exists());
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(left, [false; 5]);
    }
}
