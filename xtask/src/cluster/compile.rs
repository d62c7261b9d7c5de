//! Compiles Kubernetes with Go, statically and without network.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::{
    places::{self, Places},
    progress::{Download, Packages, is_package},
    source,
};
use crate::{
    files,
    setup::Setup,
    workspace::{self, Workspace},
};

/// Prints the packages that Go has to compile: the others are up to date, or in its cache.
const STALE: &str = r#"{{if and .Stale (ne .StaleReason "not installed but available in build cache")}}{{.ImportPath}}{{end}}"#;
/// The import path that starts those of all packages in the tree.
const ROOT_PACKAGE: &str = "k8s.io/kubernetes/";
/// Debian's packages of Go: the version that compiles this source.
pub(super) const GO: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];
/// The commit of the version, which programs report.
const COMMIT: &str = "faecb196815e248d3ecfb03c680a4507229c2a56";
/// The DNS server of the cluster, which Kubernetes does not have.
pub(super) const DNS: &str = include_str!("dns.go");
/// Variables of Go. The source is from before modules were all there is, and Go 1.19 refuses its
/// vendor directory as one.
pub(super) const ENVIRONMENT: [(&str, &str); 3] = [
    ("GO111MODULE", "off"),
    ("CGO_ENABLED", "0"),
    ("GOFLAGS", ""),
];
/// The package and the arguments of the programs that generate code: the schema of the API, and the
/// files that the end-to-end tests carry with them.
pub(super) const GENERATORS: [&[&str]; 2] = [
    &[
        "./vendor/k8s.io/kube-openapi/cmd/openapi-gen",
        "--logtostderr",
        "-O",
        "zz_generated.openapi",
        "-p",
        "k8s.io/kubernetes/pkg/generated/openapi",
        "-h",
        "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
    ],
    &[
        "./vendor/github.com/go-bindata/go-bindata/go-bindata",
        "-nometadata",
        "-o",
        "test/e2e/generated/bindata.go",
        "-pkg",
        "generated",
        "-ignore",
        ".jpg",
        "-ignore",
        ".png",
        "-ignore",
        ".md",
        "-ignore",
        r"BUILD(\.bazel)?",
        "test/conformance/testdata/...",
        "test/e2e/testing-manifests/...",
        "test/e2e_node/testing-manifests/...",
        "test/images/...",
        "test/fixtures/...",
    ],
];

/// Programs that are compiled together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    programs: &'static [&'static str],
    packages: &'static [&'static str],
}

const NODES: [Target; 4] = [
    Target {
        programs: &["kubectl", "kube-apiserver"],
        packages: &["./cmd/kubectl", "./cmd/kube-apiserver"],
    },
    Target {
        programs: &["kube-controller-manager", "kube-scheduler"],
        packages: &["./cmd/kube-controller-manager", "./cmd/kube-scheduler"],
    },
    Target {
        programs: &["kubelet", "kube-proxy"],
        packages: &["./cmd/kubelet", "./cmd/kube-proxy"],
    },
    Target {
        programs: &["agnhost"],
        packages: &["./test/images/agnhost"],
    },
];
const E2E: [Target; 2] = [
    Target {
        programs: &["clusterdns", "ginkgo"],
        packages: &["./cmd/clusterdns", "./vendor/github.com/onsi/ginkgo/ginkgo"],
    },
    Target {
        programs: &["e2e.test"],
        packages: &["./test/e2e"],
    },
];

/// All that is compiled.
pub(super) fn targets(e2e: bool) -> Vec<Target> {
    NODES
        .into_iter()
        .chain(E2E.into_iter().filter(|_| e2e))
        .collect()
}

impl Target {
    /// The names of its programs.
    pub(super) fn name(&self) -> String {
        self.programs.join(" and ")
    }

    /// Returns true if every program is kept already.
    pub(super) fn is_there(&self, places: &Places) -> bool {
        self.programs
            .iter()
            .all(|program| places.program(program).is_file())
    }

    /// Its programs and packages, as a part of a recipe.
    pub(super) fn input(&self) -> String {
        format!("{}: {}; ", self.programs.join(" "), self.packages.join(" "))
    }

    fn is_test(&self) -> bool {
        self.programs == ["e2e.test"]
    }
}

/// Go, and the tree it compiles.
#[derive(Debug)]
pub(super) struct Go<'a> {
    setup: &'a Setup<'a>,
    places: &'a Places,
    root: PathBuf,
}

impl<'a> Go<'a> {
    /// Unpacks Go, unless it is there.
    pub(super) fn new(setup: &'a Setup<'a>, places: &'a Places) -> anyhow::Result<Self> {
        let unpacked = places.work("golang");
        if !unpacked.is_dir() {
            // Renamed once it is whole, so an interrupted run leaves no compiler that lacks files.
            let partial = places.work("golang.partial");
            source::remove(&partial)?;
            setup.unpack(&GO, &partial)?;
            fs::rename(&partial, &unpacked)
                .with_context(|| format!("cannot rename {}", partial.display()))?;
        }
        Ok(Self {
            setup,
            places,
            root: unpacked.join("usr/lib/go-1.19"),
        })
    }

    /// The download of [`Go::new`].
    pub(super) fn download(places: &Places) -> Download {
        Download {
            files: places.work("golang.debs"),
            unpacked: places.work("golang.partial"),
            megabytes: 81,
        }
    }

    /// Compiles a target and keeps its programs. `packages` counts what is compiled.
    pub(super) fn build(&self, target: Target, packages: &Packages) -> anyhow::Result<()> {
        self.generate(target)?;
        let stale = self.stale(target)?;
        packages.set_total(stale.len());
        let out = self.places.work("out");
        places::make(&out)?;
        if target.is_test() {
            self.compile(&stale, packages)?;
        }
        self.setup
            .run_observed(&mut self.link(target, &out), |line| packages.count(line))?;
        for program in target.programs {
            files::install(&out.join(program), &self.places.program(program), 0o755)?;
            fs::remove_file(out.join(program))
                .with_context(|| format!("cannot remove {program}"))?;
        }
        Ok(())
    }

    /// The packages that Go has to compile for a target.
    fn stale(&self, target: Target) -> anyhow::Result<Vec<String>> {
        let mut go = self.go();
        go.args(["list", "-deps", "-f", STALE]);
        if target.is_test() {
            go.arg("-test");
        }
        let found = workspace::output(go.args(target.packages))?;
        Ok(found
            .lines()
            .filter(|line| is_package(line))
            .map(str::to_owned)
            .collect())
    }

    /// Compiles packages into Go's cache: unlike `go build`, `go test` does not print them.
    fn compile(&self, stale: &[String], packages: &Packages) -> anyhow::Result<()> {
        let named: Vec<&String> = stale
            .iter()
            .filter(|package| package.starts_with(ROOT_PACKAGE))
            .collect();
        if named.is_empty() {
            return Ok(());
        }
        self.setup
            .run_observed(self.go().args(["build", "-v"]).args(named), |line| {
                packages.count(line);
            })
    }

    /// The command that compiles the rest of a target and links its programs.
    fn link(&self, target: Target, out: &Path) -> Command {
        let mut go = self.go();
        if target.is_test() {
            go.args(["test", "-c", "-o"])
                .arg(out.join(target.programs[0]));
        } else {
            go.args(["build", "-v", "-o"]).arg(out);
        }
        go.arg(format!("-ldflags={}", linker_flags()))
            .args(target.packages);
        go
    }

    /// Makes what Kubernetes' own build generates before it compiles, and the package leaves out.
    fn generate(&self, target: Target) -> anyhow::Result<()> {
        let tree = self.places.source();
        if target.is_test() && !tree.join("test/e2e/generated/bindata.go").exists() {
            self.fixtures()?;
        }
        if !tree
            .join("pkg/generated/openapi/zz_generated.openapi.go")
            .exists()
        {
            self.schema(&tree)?;
        }
        let dns = tree.join("cmd/clusterdns/main.go");
        if dns.exists() {
            Ok(())
        } else {
            files::write(&dns, DNS)
        }
    }

    fn schema(&self, tree: &Path) -> anyhow::Result<()> {
        let mut generator = self.generator(GENERATORS[0])?;
        generator
            .arg("-i")
            .arg(source::described(self.setup, tree)?);
        generator
            .arg("-r")
            .arg(self.places.work("openapi-violations.txt"));
        self.setup.run_logged(&mut generator)
    }

    fn fixtures(&self) -> anyhow::Result<()> {
        self.setup.run_logged(&mut self.generator(GENERATORS[1])?)
    }

    /// Compiles a program that is used only here; the command that runs it with its arguments.
    fn generator(&self, line: &[&str]) -> anyhow::Result<Command> {
        let (package, arguments) = line.split_first().context("a package")?;
        let program = self
            .places
            .work("tools")
            .join(package.rsplit('/').next().unwrap_or(package));
        if !program.is_file() {
            self.setup
                .run_logged(self.go().args(["build", "-o"]).arg(&program).arg(package))?;
        }
        let mut command = self.command(&program);
        command.args(arguments).current_dir(self.places.source());
        Ok(command)
    }

    fn go(&self) -> Command {
        self.command(&self.root.join("bin/go"))
    }

    /// A command with Go's environment, at low priority: it takes all processors for minutes.
    fn command(&self, program: &Path) -> Command {
        let mut command = Workspace::command(self.setup.workspace(), "nice");
        command.arg(program).current_dir(self.places.source());
        command
            .env("GOROOT", &self.root)
            .env("GOPATH", self.places.work("go"))
            .env("GOCACHE", self.places.work("cache"));
        command.envs(ENVIRONMENT);
        command
    }
}

/// Without symbols, and with the version that clients and servers compare.
pub(super) fn linker_flags() -> String {
    let (major, minor) = source::VERSION
        .split_once('.')
        .map_or(("", ""), |(major, rest)| {
            (major, rest.split('.').next().unwrap_or_default())
        });
    let values = [
        ("gitVersion", format!("v{}", source::VERSION)),
        ("gitMajor", major.to_owned()),
        ("gitMinor", minor.to_owned()),
        ("gitCommit", COMMIT.to_owned()),
        ("gitTreeState", "clean".to_owned()),
        ("buildDate", "2021-01-13T13:20:00Z".to_owned()),
    ];
    let packages = [
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
    ];
    let settings = packages.iter().flat_map(|package| {
        values.iter().map(move |(name, value)| {
            format!("-X k8s.io/kubernetes/vendor/{package}.{name}={value}")
        })
    });
    ["-s -w".to_owned()]
        .into_iter()
        .chain(settings)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_linked_in_whole_and_in_parts() {
        let flags = linker_flags();
        for part in [
            "version.gitVersion=v1.20.2",
            "version.gitMajor=1 ",
            "version.gitMinor=20 ",
        ] {
            assert!(flags.contains(part), "{flags}");
        }
    }
}
