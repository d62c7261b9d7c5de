//! The options of `cargo xtask test`, as the targets to compile and the tests to run. Pure.

use std::ffi::OsString;

use anyhow::ensure;

use super::{
    job::{CLUSTER, END_TO_END, Filter, HostUse, KUBERNETES},
    programs::TestProgram,
    weights,
};
use crate::{
    build::{AGENT, CONFINE},
    cli::TestOptions,
};

/// The host profile on which a plain run has a few tests.
const CROWDED: &str = "crowded";
/// Subjects of `--quick`: agents on several nodes in all three modes.
const QUICK: [&str; 2] = ["lab", "cni"];

/// The crates with tests that need root or tools, and those tests: their manifests keep them out of
/// a bare `cargo test`.
const INTEGRATION: [(&str, &[&str]); 6] = [
    ("flannel-agent", &["programs"]),
    ("flannel-firewall", &["firewall"]),
    ("flannel-iface", &["iface"]),
    ("flannel-netlink", &["netlink"]),
    ("flannel-store", &["etcd", "kube"]),
    ("flannel-traffic", &["traffic"]),
];

/// The part of the tests that was chosen.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a part of a run, chosen independently of the others"
)]
pub(super) struct Selection {
    /// Unit tests, and the tests of single crates.
    pub(super) unit: bool,
    /// Only those of these crates; all if it is empty.
    pub(super) crates: Vec<String>,
    /// The end-to-end suite, or some of it.
    pub(super) end_to_end: bool,
    /// The tests on a Kubernetes cluster.
    pub(super) cluster: bool,
    /// Every test that a plain run has: also another kernel.
    pub(super) is_whole: bool,
    /// In addition what takes long: all kernels, Kubernetes compiled where it is not kept, hours of
    /// traffic in minutes.
    pub(super) is_all: bool,
    /// The profile of the host for end-to-end tests.
    pub(super) host: Option<String>,
    pub(super) filter: Filter,
}

impl Selection {
    /// Reads the options. A name is a subject of the end-to-end suite, a crate (with or without
    /// `flannel-`), or part of the path of end-to-end tests, such as `tunnel::restart`.
    ///
    /// # Errors
    /// A name is none of these.
    pub(super) fn new(
        options: &TestOptions,
        subjects: &[String],
        crates: &[String],
    ) -> anyhow::Result<Self> {
        let mut selection = Self {
            is_all: options.all,
            ..Self::default()
        };
        selection.filter.arguments = options.filter.iter().map(lossy).collect();
        for name in &options.names {
            selection.add(name, subjects, crates)?;
        }
        let names_some = !options.names.is_empty() || options.quick;
        if options.quick {
            selection.unit = true;
            selection.end_to_end = true;
            selection.filter.subjects = QUICK.map(str::to_owned).to_vec();
        } else if !names_some {
            selection.unit = !options.e2e;
            selection.end_to_end = !options.unit;
            // A filter does not say that what takes long to make is needed.
            selection.is_whole = !options.unit && !options.e2e && options.filter.is_empty();
            selection.cluster = selection.is_whole || (options.e2e && options.filter.is_empty());
        }
        // A run that names tests has all of those.
        selection.filter.is_plain = !options.all && !names_some && options.filter.is_empty();
        selection.host.clone_from(&options.host);
        if selection.host.is_some() {
            selection.filter.host = HostUse::All;
        } else if selection.is_whole {
            selection.filter.host = HostUse::Some;
            selection.host = Some(CROWDED.to_owned());
        }
        Ok(selection)
    }

    /// The part of it that measures time.
    pub(super) fn of_measurements(self) -> Self {
        let parts = weights::MEASUREMENTS
            .iter()
            .map(|&name| name.to_owned())
            .collect();
        let filter = Filter {
            parts,
            subjects: Vec::new(),
            host: HostUse::No,
            ..self.filter
        };
        Self {
            unit: false,
            cluster: false,
            is_whole: false,
            is_all: false,
            host: None,
            filter,
            ..self
        }
    }

    fn add(&mut self, name: &str, subjects: &[String], crates: &[String]) -> anyhow::Result<()> {
        let full = format!("flannel-{name}");
        if name == KUBERNETES {
            self.cluster = true;
        } else if subjects.iter().any(|subject| subject == name) {
            self.end_to_end = true;
            self.filter.subjects.push(name.to_owned());
        } else if let Some(name) = crates
            .iter()
            .find(|known| *known == name || **known == full)
        {
            self.unit = true;
            self.crates.push(name.clone());
        } else {
            ensure!(
                name.contains("::"),
                "{name} is not a subject ({}), not a crate ({}), and not part of a test's path, \
                 such as \
                 tunnel::restart. Part of any test's name stands behind `--`",
                subjects.join(", "),
                crates.join(", ")
            );
            self.end_to_end = true;
            self.filter.parts.push(name.to_owned());
        }
        Ok(())
    }

    /// Returns true if tests need the agent as a program.
    pub(super) const fn needs_agent(&self) -> bool {
        self.end_to_end || self.cluster
    }

    /// Returns true if tests need the container image.
    pub(super) fn needs_image(&self) -> bool {
        let subjects = &self.filter.subjects;
        let has_deploy = self.end_to_end
            && (self.is_whole || subjects.iter().any(|subject| subject == "deploy"));
        has_deploy || self.cluster
    }

    /// Returns true if tests call the checkers of documents: Helm, promtool, the cloud's double.
    pub(super) fn needs_checkers(&self) -> bool {
        const CALLERS: [&str; 3] = ["cli", "cloud", "deploy"];
        let subjects = &self.filter.subjects;
        let is_caller = |name: &String| CALLERS.contains(&name.as_str());
        let has_caller = self.end_to_end && (self.is_whole || subjects.iter().any(is_caller));
        has_caller || self.cluster
    }

    /// Returns true if the unit tests of the verbs are among the chosen.
    pub(super) fn takes_verbs(&self) -> bool {
        self.unit && self.takes("xtask")
    }

    /// Returns true if the tests of a crate are among the chosen.
    pub(super) fn takes(&self, package: &str) -> bool {
        match package {
            "flannel-tests" => self.unit && self.crates.is_empty(),
            _ => {
                self.unit
                    && (self.crates.is_empty() || self.crates.iter().any(|name| name == package))
            }
        }
    }

    /// Returns true if the tests of a program are among the chosen.
    pub(super) fn takes_program(&self, program: &TestProgram) -> bool {
        match program.name.as_str() {
            END_TO_END => self.end_to_end,
            CLUSTER => self.cluster,
            _ => self.takes(&program.package),
        }
    }

    /// Returns true if unit tests of others than the verbs are among the chosen: those of the verbs
    /// are compiled separately.
    fn compiles_units(&self) -> bool {
        self.unit && !(self.crates.len() == 1 && self.takes_verbs())
    }

    /// The verb of cargo that compiles them. `test` compiles libraries and programs as their unit
    /// tests, and the programs of a crate with its integration tests.
    pub(super) fn verb(&self) -> &'static [&'static str] {
        if self.compiles_units() {
            &["test", "--no-run"]
        } else {
            &["build"]
        }
    }

    /// The targets to compile, as arguments of that verb; those of the cluster only where one
    /// can be started.
    pub(super) fn targets(&self, has_cluster: bool) -> Vec<String> {
        let mut targets = Vec::new();
        if self.compiles_units() {
            // Cargo cannot be asked for the unit tests of one crate without another set of
            // features.
            targets.extend(["--lib", "--bins"].map(str::to_owned));
            // By this verb the agent is compiled as a program only with its integration tests.
            let is_compiled =
                |package| self.takes(package) || (self.needs_agent() && package == AGENT);
            let integration = INTEGRATION
                .iter()
                .filter(|(package, _)| is_compiled(package));
            targets.extend(
                integration
                    .flat_map(|(_, names)| *names)
                    .map(|name| format!("--test={name}")),
            );
        } else if self.needs_agent() {
            targets.extend([AGENT, CONFINE].map(|name| format!("--bin={name}")));
        }
        targets.extend(self.end_to_end.then(|| format!("--test={END_TO_END}")));
        targets.extend((self.cluster && has_cluster).then(|| format!("--test={CLUSTER}")));
        targets
    }
}

fn lossy(word: &OsString) -> String {
    word.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::EARLY,
        workspace::{self, Workspace},
    };

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn select(options: &TestOptions) -> anyhow::Result<Selection> {
        Selection::new(
            options,
            &names(&["lab", "kubernetes", "tunnel", "cloud"]),
            &names(&["flannel-store", "xtask"]),
        )
    }

    #[test]
    fn a_plain_run_has_everything() {
        let selection = select(&TestOptions::default()).expect("no name");
        assert!(selection.is_whole && selection.unit && selection.end_to_end && selection.cluster);
        assert!(selection.takes_verbs() && selection.needs_image());
        assert!(selection.filter.is_plain);
        let all = TestOptions {
            all: true,
            ..TestOptions::default()
        };
        assert!(!select(&all).expect("no name").filter.is_plain);
    }

    #[test]
    fn a_name_is_a_subject_a_crate_or_part_of_a_path() {
        let of = |name: &str| {
            select(&TestOptions {
                names: names(&[name]),
                ..TestOptions::default()
            })
        };
        let subject = of("tunnel").expect("a subject");
        assert!(!subject.filter.is_plain);
        assert!(subject.end_to_end && !subject.unit && !subject.cluster && !subject.needs_image());
        assert!(!subject.needs_checkers());
        let cloud = of("cloud").expect("a subject");
        assert!(cloud.needs_checkers() && !cloud.needs_image());
        let store = of("store").expect("a crate");
        assert!(
            store.takes("flannel-store") && !store.takes("flannel-agent") && !store.takes_verbs()
        );
        assert!(!store.needs_agent() && store.targets(false).contains(&"--test=etcd".to_owned()));
        assert_eq!(
            of("tunnel::restart").expect("a path").filter.parts,
            ["tunnel::restart"]
        );
        assert!(of("kubernetes").expect("the cluster").cluster);
        let error = of("tunnels").expect_err("unknown").to_string();
        assert!(
            error.contains("lab, kubernetes, tunnel") && error.contains("behind `--`"),
            "{error}"
        );
    }

    #[test]
    fn the_agent_is_compiled_where_a_test_needs_it() {
        let of = |list: &[&str]| {
            let options = TestOptions {
                names: names(list),
                ..TestOptions::default()
            };
            select(&options).expect("names").targets(false)
        };
        assert_eq!(of(&["xtask"]), [""; 0]);
        assert!(of(&["tunnel"]).contains(&"--bin=flannel-agent".to_owned()));
        assert!(of(&["xtask", "tunnel"]).contains(&"--bin=flannel-agent".to_owned()));
        assert!(of(&["store", "tunnel"]).contains(&"--test=programs".to_owned()));
        assert!(!of(&["store"]).contains(&"--test=programs".to_owned()));
    }

    #[test]
    fn half_a_run_is_not_whole() {
        let unit = select(&TestOptions {
            unit: true,
            ..TestOptions::default()
        })
        .expect("no name");
        assert!(unit.unit && !unit.end_to_end && !unit.cluster && !unit.is_whole);
        let quick = select(&TestOptions {
            quick: true,
            ..TestOptions::default()
        })
        .expect("no name");
        assert!(quick.unit && quick.end_to_end && !quick.is_whole && !quick.needs_image());
    }

    #[test]
    fn what_is_compiled_early_does_not_import_the_agent() {
        let others = INTEGRATION
            .iter()
            .filter(|(package, _)| *package != AGENT)
            .flat_map(|(_, names)| *names);
        assert_eq!(others.copied().collect::<Vec<_>>(), EARLY);
    }

    /// A program that is not in the list would not be run.
    #[test]
    fn the_list_of_integration_tests_is_that_of_the_manifests() {
        let workspace = Workspace::new().expect("the project");
        for folder in workspace::package_dirs(workspace.root()).expect("folders") {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
            let package = workspace::package_name(&manifest).expect("a name");
            let found: Vec<_> = manifest
                .split("[[test]]")
                .skip(1)
                .filter_map(|row| {
                    row.split_once("name = \"")?
                        .1
                        .split_once('"')
                        .map(|(name, _)| name)
                })
                .collect();
            let listed = match package {
                "flannel-tests" => vec![END_TO_END, CLUSTER],
                _ => INTEGRATION
                    .iter()
                    .filter(|(name, _)| *name == package)
                    .flat_map(|(_, names)| *names)
                    .copied()
                    .collect(),
            };
            assert_eq!(found, listed, "{package}");
        }
    }
}
