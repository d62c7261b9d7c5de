//! The cgroups of a host that is a whole machine: a directory in each hierarchy, and the host sees
//! nothing above it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::lab::record::LabRecord;

/// Controllers that container runtimes want of version 2, where the kernel has them.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];
const MOUNTS: &str = "/proc/self/mounts";

/// The directories of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Cgroups {
    /// The root of the host in each hierarchy.
    roots: Vec<PathBuf>,
    /// The cgroups of the host's processes: version 2 has none in a cgroup with children.
    leaves: Vec<PathBuf>,
    /// The mounts of version 1 inside the host.
    mounts: Vec<String>,
}

/// A mounted hierarchy of version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    point: PathBuf,
    options: String,
}

impl Cgroups {
    /// Makes the directories of `name`; they go with the lab.
    pub(super) fn make(record: &LabRecord, name: &str) -> Result<Self> {
        let mounts = fs::read_to_string(MOUNTS).context(MOUNTS)?;
        let controllers = fs::read_to_string("/proc/cgroups").context("controllers")?;
        let hierarchies = hierarchies(&mounts, &controllers);
        let name = format!("{}-{name}", record.name());
        if hierarchies.is_empty() {
            Self::second(record, &name)
        } else {
            Self::first(record, &name, &hierarchies)
        }
    }

    /// Of version 1.
    fn first(record: &LabRecord, name: &str, hierarchies: &[Hierarchy]) -> Result<Self> {
        let mut made = Self::default();
        for Hierarchy { point, options } in hierarchies {
            let root = point.join(name);
            create(record, &root)?;
            if options.split(',').any(|option| option == "cpuset") {
                // Empty in a new cgroup, which then takes no process.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(root.join(file), fs::read(point.join(file))?).context(file)?;
                }
            }
            made.mounts.push(format!("{} {options}", point.display()));
            made.roots.push(root);
        }
        made.leaves.clone_from(&made.roots);
        Ok(made)
    }

    /// Of version 2.
    fn second(record: &LabRecord, name: &str) -> Result<Self> {
        let point = Path::new("/sys/fs/cgroup");
        ensure!(
            point.join("cgroup.controllers").exists(),
            "no cgroup hierarchy is mounted at {}",
            point.display()
        );
        for controller in CONTROLLERS {
            // One that the kernel lacks is not needed either.
            drop(fs::write(
                point.join("cgroup.subtree_control"),
                format!("+{controller}"),
            ));
        }
        let root = point.join(name);
        let leaf = root.join("init");
        create(record, &root)?;
        fs::create_dir(&leaf).with_context(|| leaf.display().to_string())?;
        Ok(Self {
            roots: vec![root],
            leaves: vec![leaf],
            mounts: Vec::new(),
        })
    }

    /// The lines `<mount point> <options>` of version 1.
    pub(super) fn mounts(&self) -> String {
        self.mounts.join("\n")
    }

    /// A command line before which a command enters the host's root cgroups.
    pub(super) fn enter_roots(&self) -> Vec<String> {
        enter(&self.roots)
    }

    /// A command line before which a command joins the host's processes.
    pub(super) fn join(&self) -> Vec<String> {
        enter(&self.leaves)
    }
}

fn create(record: &LabRecord, dir: &Path) -> Result<()> {
    record.own(dir)?;
    fs::create_dir(dir).with_context(|| format!("{}: a cgroup", dir.display()))
}

fn enter(dirs: &[PathBuf]) -> Vec<String> {
    const SCRIPT: &str =
        "for dir in $0; do echo $$ > $dir/cgroup.procs || exit 126; done; exec \"$@\"";
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    ["sh", "-c", SCRIPT, &dirs.join(" ")]
        .map(str::to_owned)
        .to_vec()
}

/// The mounts of version 1, from `/proc/mounts` and the names of all controllers.
fn hierarchies(mounts: &str, controllers: &str) -> Vec<Hierarchy> {
    let controllers: Vec<&str> = controllers
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    let is_own = |option: &&str| {
        controllers.contains(option) || option.starts_with("name=") || *option == "none"
    };
    mounts
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, point, "cgroup", options, ..] = fields[..] else {
                return None;
            };
            let mut own: Vec<&str> = options.split(',').filter(is_own).collect();
            if own.iter().all(|option| option.starts_with("name=")) {
                own.insert(0, "none");
            }
            Some(Hierarchy {
                point: point.into(),
                options: own.join(","),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_keep_the_options_that_name_them() {
        let mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                      cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = hierarchies(mounts, "#subsys_name\thierarchy\ncpu\t1\ncpuacct\t1\n");
        let options: Vec<&str> = found
            .iter()
            .map(|hierarchy| hierarchy.options.as_str())
            .collect();
        assert_eq!(options, ["cpu,cpuacct", "none,name=systemd"]);
        assert!(hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "").is_empty());
    }
}
