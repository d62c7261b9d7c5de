//! A real Kubernetes for this machine: its programs are built from the source package of the
//! distribution, its container runtime comes from packages, its images are made here.
//!
//! It owns where they lie: in the user's cache and not below `target/`, because they take minutes
//! to make and do not depend on the project. Sources and Go's own cache lie below `target/`.
//! Starting a cluster is left to the test crate (`flannel_tests::kubernetes`), which finds all of
//! it by the variable `FLANNEL_KUBERNETES`.

mod compile;
mod images;
mod places;
mod progress;
mod source;

use std::{convert::Infallible, env, fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use self::{
    compile::Go,
    images::Images,
    places::Places,
    progress::{Download, Packages},
};
use crate::{
    build,
    cli::ClusterOptions,
    files, image,
    launch::{self, Program},
    setup::{Needs, Setup, Steps},
    workspace,
};

/// Debian's packages with programs of a node, and the programs of each.
const RUNTIME: [(&str, &[&str]); 2] = [
    ("containerd", &["usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr"]),
    ("runc", &["usr/sbin/runc"]),
];

/// Becomes the program that runs the cluster.
pub(crate) fn launch(setup: &Setup<'_>, options: &ClusterOptions) -> anyhow::Result<Infallible> {
    ensure!(workspace::is_root(), "the cluster makes network namespaces and loads BPF programs: run it as root");
    setup.machine(Needs::COMPILE.and(Needs::LAB))?;
    let bpf = setup.bpf()?;
    let built = build::build(setup.workspace(), Some(build::Bpf::release(&bpf)), build::Parts::AgentAndLab)?;
    let variables =
        [("FLANNEL_KUBERNETES", ensure(setup, options.e2e)?), ("FLANNEL_IMAGE", image::make(setup, &built)?)];
    launch::become_program(setup, &built, Program::Cluster, &options.arguments(), &variables)
}

/// Makes what is missing of the programs and images; their directory. With `e2e` also those of the
/// tests of Kubernetes itself.
pub(crate) fn ensure(setup: &Setup<'_>, e2e: bool) -> anyhow::Result<PathBuf> {
    let places = Places::new(setup.workspace())?;
    let targets = compile::targets(e2e);
    let missing: Vec<_> = targets.iter().filter(|target| !target.is_there(&places)).collect();
    let images = Images::new(setup, &places);
    // Some of these run with the cluster.
    setup.machine(Needs::CLUSTER)?;
    if missing.is_empty() && runtime_is_there(&places) && images.are_there(e2e) {
        return Ok(places.kept().to_owned());
    }
    setup.machine(Needs::COMPILE)?;
    println!("cluster: Kubernetes {}, kept in {}", source::VERSION, places.kept().display());
    let mut steps = Steps::new("cluster", missing.len() + 4).with_log(setup.log()?);
    let download = runtime_download(&places);
    steps.run_reporting("fetch containerd and runc", || download.to_string(), || runtime(setup, &places))?;
    let download = source::download(&places);
    let what = "fetch the source of Kubernetes";
    steps.run_reporting(what, || download.to_string(), || source::ensure(setup, &places))?;
    let download = Go::download(&places);
    let go = steps.run_reporting("fetch Go", || download.to_string(), || Go::new(setup, &places))?;
    for target in missing {
        let packages = Packages::default();
        let what = format!("compile {}", target.name());
        steps.run_reporting(&what, || packages.to_string(), || go.build(*target, &packages))?;
    }
    steps.run_reporting("make the images", || images.progress(e2e), || images.make(e2e))?;
    Ok(places.kept().to_owned())
}

fn runtime_is_there(places: &Places) -> bool {
    RUNTIME.iter().flat_map(|(_, programs)| programs.iter()).all(|program| places.program_of(program).is_file())
}

/// The download of [`runtime`].
fn runtime_download(places: &Places) -> Download {
    Download { files: places.work("packages.debs"), unpacked: places.work("packages"), megabytes: 30 }
}

fn runtime(setup: &Setup<'_>, places: &Places) -> anyhow::Result<()> {
    if runtime_is_there(places) {
        return Ok(());
    }
    let unpacked = places.work("packages");
    setup.unpack(&RUNTIME.map(|(package, _)| package), &unpacked)?;
    for program in RUNTIME.iter().flat_map(|(_, programs)| programs.iter()) {
        files::install(&unpacked.join(program), &places.program_of(program), 0o755)?;
    }
    fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))
}

/// The user's directory of caches.
fn cache() -> anyhow::Result<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("FLANNEL_CLUSTER_CACHE")
        .or_else(|| Some(named("XDG_CACHE_HOME")?.join("flannel-agent")))
        .or_else(|| Some(named("HOME")?.join(".cache/flannel-agent")))
        .context("there is no place for a cache: set FLANNEL_CLUSTER_CACHE to a directory")
}
