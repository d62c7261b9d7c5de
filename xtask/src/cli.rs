//! The command line: verbs and their options. Owns no behaviour.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

/// Sets up, builds, shows, tests and measures the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Options {
    /// Take the machine as it is: install nothing, and let a missing tool show where it is used
    #[arg(long, global = true)]
    pub(crate) skip_setup: bool,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Install everything any other verb needs (each verb also does this for itself)
    Setup,
    /// Build the BPF object and, around it, the agent in release mode; and the CNI plugin
    ///
    /// The result is target/release/flannel-agent and the CNI plugin next to it, `flannel`.
    /// Installed or linked under the name `flanneld`, the agent takes flanneld's command line.
    Build {
        /// Build the agent without its BPF programs; it then runs in kernel mode only
        #[arg(long)]
        no_bpf: bool,
        /// Build a debug object, whose programs log what they do with every packet through the
        /// agent (at -v=4)
        #[arg(long, conflicts_with = "no_bpf")]
        bpf_log: bool,
    },
    /// Build a release for amd64 and arm64 in `target/dist`: Debian packages, images, archives, the
    /// plugin of kubectl with a manifest for krew, the chart and their digests
    ///
    /// The software bills of materials in CycloneDX lie there too, one for each program and one for
    /// the BPF object. The packages contain them. Programs for arm64 are compiled with Debian's
    /// cross toolchain, and started under emulation.
    Dist(DistOptions),
    /// Build, and put the result into a container image,
    /// `target/dist/flannel-agent_<version>_<architecture>.oci.tar`
    ///
    /// It needs root and Debian's or Ubuntu's package manager, and no container runtime.
    /// `docker load`, `ctr images import`, `k3s ctr images import`, `kind load image-archive` and
    /// skopeo read it. The packages in it are those of the distribution of this machine.
    Image,
    /// Show a three-node cluster on this machine, step by step (needs root)
    Demo {
        /// Passed on to the demo, for example `--keep` or `--check`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run the unit tests and the end-to-end suite (needs root); the last line is the sum
    ///
    /// Unit tests run as soon as they are compiled, end-to-end tests as soon as the agent is.
    /// `cargo xtask test --quick` is the inner loop of a few minutes: the unit tests of all crates,
    /// the BPF programs on their fixtures, and two end-to-end subjects. `cargo xtask test fast`
    /// runs one subject, `cargo xtask test store` one crate. The line before the sum is the
    /// duration.
    Test(TestOptions),
    /// Run fuzz targets for as long as wanted, with counters of coverage
    ///
    /// `cargo xtask test` runs each target for a second. This verb keeps the corpus in
    /// `target/fuzz/corpora` and continues with it. An input that fails is kept there, too, and the
    /// command that repeats it is printed.
    Fuzz(FuzzOptions),
    /// Run the tests that grow with time for as long as wanted (needs root): churn of leases, short
    /// flows, idle connections, random rules and traffic in mode `fast` against mode `kernel`,
    /// random changes of agents under load, and random faults of a cluster
    Soak {
        /// The duration of each test, such as `90s`, `30m` or `2h`
        #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = duration)]
        time: Duration,
        /// Passed on to the test programs, for example part of a test's name
        #[arg(last = true)]
        filter: Vec<OsString>,
    },
    /// Rehearse the update from another version and the way back, under traffic (needs root)
    ///
    /// The other version is built once by its own `cargo xtask build`, and kept in `target/former`.
    Upgrade {
        /// A revision of the repository [default: the latest tag]
        #[arg(long, value_name = "REVISION")]
        from: Option<String>,
        /// Passed on to the test programs, for example part of a test's name
        #[arg(last = true)]
        filter: Vec<OsString>,
    },
    /// Run a real Kubernetes of three nodes on this machine, with our image (needs root)
    ///
    /// Kubernetes is compiled from Debian's source package, once, and kept in the user's cache
    /// (`FLANNEL_CLUSTER_CACHE` names another directory). Without options the tests run that
    /// `cargo xtask test kubernetes` runs.
    Cluster(ClusterOptions),
    /// Measure latency and throughput of each mode side by side (needs root)
    Bench {
        /// Passed on to the bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Check formatting, clippy and the documentation, for the host and for BPF
    Lint {
        /// Leave out what needs the BPF toolchain
        #[arg(long)]
        no_bpf: bool,
        /// Leave out clippy and the documentation for the host, which `cargo xtask test --clippy`
        /// has
        #[arg(long)]
        no_clippy: bool,
    },
    /// Check licences, sources and versions of all dependencies by cargo-deny (deny.toml), and
    /// advisories where their database can be fetched
    Deny,
    /// Take down labs whose demo or test died, and labs kept with `--keep`
    CleanLab(CleanLabOptions),
}

/// The contents of a release, and its signature.
#[derive(Debug, Args)]
pub(crate) struct DistOptions {
    /// Only for the architecture of this machine
    #[arg(long)]
    pub(crate) native: bool,
    /// Sign the digests with this private key (PEM, P-256): SHA256SUMS.sig, and release.pub to
    /// verify it
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// The address below which the files will lie, for the manifest of krew
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterOptions {
    /// Run our tests of the cluster, which is the default
    #[arg(long, conflicts_with_all = ["keep", "e2e"])]
    pub(crate) check: bool,
    /// Leave the cluster running, and show how to use it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Run Kubernetes' own network tests in the modes kernel and fast, and compare the results
    #[arg(long, conflicts_with = "keep")]
    pub(crate) e2e: bool,
    /// Passed on to the program that runs the cluster
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

impl ClusterOptions {
    /// Returns true if our tests of the cluster are to run.
    pub(crate) fn is_check(&self) -> bool {
        !self.keep && !self.e2e
    }

    /// The arguments of the program that runs the cluster.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let chosen = [(self.keep, "--keep"), (self.e2e, "--e2e")];
        let flags = chosen
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, flag)| OsString::from(flag));
        flags.chain(self.args.iter().cloned()).collect()
    }
}

/// The tests that grow with time, by parts of their paths.
const SOAK: [&str; 7] = [
    "fast::churn",
    "fast::idle",
    "fast::flood",
    "fast::differential",
    "fast::stress::chaos",
    "node::many::churn",
    "upgrade::faults",
];

#[derive(Debug, Default, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct TestOptions {
    /// Only these: subjects of the end-to-end suite (folders of tests/tests, such as `tunnel`),
    /// crates (such as `store`), or parts of the paths of end-to-end tests (`tunnel::restart`)
    #[arg(value_name = "NAME", conflicts_with_all = ["unit", "e2e", "quick"])]
    pub(crate) names: Vec<String>,
    /// Only the unit tests, and the tests of single crates
    #[arg(long, conflicts_with = "e2e")]
    pub(crate) unit: bool,
    /// Only the end-to-end suite
    #[arg(long)]
    pub(crate) e2e: bool,
    /// The unit tests, and of the end-to-end suite what takes seconds: a few minutes in all
    #[arg(long, conflicts_with_all = ["unit", "e2e"])]
    pub(crate) quick: bool,
    /// In addition what takes long: Kubernetes is compiled where it is not kept, all other kernels
    /// are booted, and soak and differential tests run for minutes instead of seconds
    #[arg(long, conflicts_with_all = ["unit", "e2e", "quick"])]
    pub(crate) all: bool,
    /// Print what each test took, and its share of a CPU
    #[arg(long)]
    pub(crate) timings: bool,
    /// Compile the code of this project with clippy, read it with rustdoc, and count their
    /// warnings as a failure: lints need no second compilation
    #[arg(long)]
    pub(crate) clippy: bool,
    /// Run the end-to-end tests on a host of this profile, made in namespaces: a script of
    /// tests/hosts, such as `docker`
    #[arg(long, value_name = "PROFILE")]
    pub(crate) host: Option<String>,
    /// Run the chosen tests twice, and those that measure time five times more, while the machine
    /// is at a load of 15
    #[arg(long)]
    pub(crate) stress: bool,
    /// Boot these kernels of Debian under emulation and run a part of the tests on each: `5.10`,
    /// `6.1`, `6.12`, `newest`, `arm64` (only programs on their fixtures), or `all`
    ///
    /// The list of tests is xtask/src/test/kernels/set.rs. With `FLANNEL_WRITE_DOCS=1` the results
    /// are written to docs/reference/kernels.md.
    #[arg(
        long = "kernel",
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with_all = ["names", "unit", "e2e", "quick", "all", "timings", "host", "stress"]
    )]
    pub(crate) kernels: Vec<String>,
    /// The duration of tests that grow with time; `cargo xtask soak` sets it
    #[arg(skip)]
    pub(crate) soak: Option<Duration>,
    /// Another version of the agent; `cargo xtask upgrade` sets it
    #[arg(skip)]
    pub(crate) former: Option<PathBuf>,
    /// Passed on to the test programs, for example part of a test's name. With `--kernel`: parts of
    /// the names of the rows to run
    #[arg(last = true)]
    pub(crate) filter: Vec<OsString>,
}

impl TestOptions {
    /// The tests that grow with time.
    pub(crate) fn soak(time: Duration, filter: Vec<OsString>) -> Self {
        let names = SOAK.map(str::to_owned).to_vec();
        Self {
            names,
            soak: Some(time),
            filter,
            ..Self::default()
        }
    }

    /// One subject of the end-to-end suite.
    pub(crate) fn subject(name: &str) -> Self {
        Self {
            names: vec![name.to_owned()],
            ..Self::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// Only these; all without a name
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// The duration of each target, such as `90s`, `30m` or `2h`
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub(crate) time: Duration,
    /// Run one target with the input in this file, without counters
    #[arg(long, value_name = "FILE", requires = "targets")]
    pub(crate) input: Option<PathBuf>,
    /// List the targets
    #[arg(long)]
    pub(crate) list: bool,
}

/// Reads a number of seconds, minutes or hours.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let read = |(unit, seconds): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds).map(Duration::from_secs)
    };
    units
        .into_iter()
        .find_map(read)
        .ok_or_else(|| format!("{text:?} is not a duration such as 90s, 30m or 2h"))
}

#[derive(Debug, Args)]
pub(crate) struct CleanLabOptions {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also take down labs in use, their owner first
    #[arg(long)]
    pub(crate) all: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn subjects_stand_before_the_filter() {
        let options = Options::parse_from(["xtask", "test", "fast", "lease", "--", "own"]);
        let Verb::Test(options) = options.verb else {
            panic!("another verb")
        };
        assert_eq!(options.names, ["fast", "lease"]);
        assert_eq!(options.filter, ["own"]);
        assert!(Options::try_parse_from(["xtask", "test", "--quick", "fast"]).is_err());
    }

    #[test]
    fn kernels_are_a_list_of_their_own() {
        let options = Options::parse_from(["xtask", "test", "--kernel", "6.1,newest"]);
        let Verb::Test(options) = options.verb else {
            panic!("another verb")
        };
        assert_eq!(options.kernels, ["6.1", "newest"]);
        assert!(Options::try_parse_from(["xtask", "test", "--kernel", "6.1", "--quick"]).is_err());
        assert!(Options::try_parse_from(["xtask", "test", "fast", "--kernel", "6.1"]).is_err());
    }

    #[test]
    fn a_duration_has_a_unit() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        assert!(
            ["", "2", "h", "-1s", "1d"]
                .iter()
                .all(|text| duration(text).is_err())
        );
        let options = Options::parse_from(["xtask", "fuzz", "net_conf", "--for", "2h"]);
        let Verb::Fuzz(options) = options.verb else {
            panic!("another verb")
        };
        assert_eq!(
            (options.targets, options.time),
            (vec!["net_conf".to_owned()], Duration::from_hours(2))
        );
    }

    #[test]
    fn a_soak_has_tests_that_exist() {
        let tests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tests"));
        let options = TestOptions::soak(Duration::from_mins(1), Vec::new());
        for name in &options.names {
            let path = tests.join(name.replace("::", "/"));
            assert!(
                path.is_dir() || path.with_extension("rs").exists(),
                "{name}"
            );
        }
    }

    #[test]
    fn demo_and_bench_pass_their_own_flags_on() {
        let options = Options::parse_from(["xtask", "demo", "--keep", "--check=3"]);
        assert!(matches!(options.verb, Verb::Demo { args } if args == ["--keep", "--check=3"]));
    }
}
