//! A real Kubernetes for this machine: its programs are built from the source package of the
//! distribution, its container runtime comes from packages, its images are made here.
//!
//! It owns where they lie: in the user's cache and not below `target/`, because they take minutes
//! to make and do not depend on the project. Checkouts share them, by the key of their recipe, and
//! build one at a time.
//! Starting a cluster is left to the test crate (`flannel_tests::kubernetes`), which finds all of
//! it by the variable `FLANNEL_KUBERNETES`.

mod compile;
mod images;
mod lock;
mod places;
mod progress;
mod recipe;
mod source;

use std::{convert::Infallible, fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use self::{
    compile::{Go, Target},
    images::Images,
    lock::Lock,
    places::Places,
    progress::{Download, Packages},
};
use crate::{
    build::{self, Machine},
    cli::ClusterOptions,
    files, image,
    launch::{self, Program},
    setup::{Needs, Setup, Steps},
    workspace::{self, Workspace},
};

/// Debian's packages with programs of a node, and the programs of each.
const RUNTIME: [(&str, &[&str]); 2] = [
    (
        "containerd",
        &[
            "usr/bin/containerd",
            "usr/bin/containerd-shim-runc-v2",
            "usr/bin/ctr",
        ],
    ),
    ("runc", &["usr/sbin/runc"]),
];

/// Becomes the program that runs the cluster.
pub(crate) fn launch(setup: &Setup<'_>, options: &ClusterOptions) -> anyhow::Result<Infallible> {
    ensure!(
        workspace::is_root(),
        "the cluster makes network namespaces and loads BPF programs: run it as root"
    );
    let built = build::build_for_lab(
        setup,
        Needs::LAB,
        &[build::AGENT, build::CONFINE, "cluster"],
    )?;
    build::build_plugin(
        setup.workspace().cargo(),
        setup.workspace(),
        &built,
        Machine::Here,
    )?;
    let variables = [
        ("FLANNEL_KUBERNETES", ensure(setup, options.e2e)?),
        ("FLANNEL_IMAGE", image::make(setup, &built)?),
    ];
    launch::become_program(
        setup,
        &built,
        Program::Cluster,
        &options.arguments(),
        &variables,
    )
}

/// The directory of the programs and images, if all of them were made before. With `e2e` also those
/// of the tests of Kubernetes itself.
pub(crate) fn find(workspace: &Workspace, e2e: bool) -> Option<PathBuf> {
    let places = Places::new(workspace).ok()?;
    is_complete(&places, e2e).then(|| places.kept().to_owned())
}

/// Makes what is missing of the programs and images; their directory. With `e2e` also those of the
/// tests of Kubernetes itself.
pub(crate) fn ensure(setup: &Setup<'_>, e2e: bool) -> anyhow::Result<PathBuf> {
    // Some of these run with the cluster.
    setup.machine(Needs::CLUSTER)?;
    if let Some(kept) = find(setup.workspace(), e2e) {
        return Ok(kept);
    }
    setup.machine(Needs::COMPILE)?;
    let places = Places::new(setup.workspace())?;
    let lock = Lock::take(&places.lock())?;
    // Another checkout may have made all of it in the time of waiting.
    if !is_complete(&places, e2e) {
        make(setup, &places, e2e)?;
    }
    drop(lock);
    for line in places.other_directories() {
        println!("{line}");
    }
    Ok(places.kept().to_owned())
}

fn is_complete(places: &Places, e2e: bool) -> bool {
    let has_programs = compile::targets(e2e)
        .iter()
        .all(|target| target.is_there(places));
    has_programs && runtime_is_there(places) && images::are_kept(places, e2e) && places.are_linked()
}

fn make(setup: &Setup<'_>, places: &Places, e2e: bool) -> anyhow::Result<()> {
    println!(
        "cluster: Kubernetes {}, kept in {}",
        source::VERSION,
        places.kept().display()
    );
    let mut missing = compile::targets(e2e);
    missing.retain(|target| !target.is_there(places));
    let fetches = 2 + usize::from(!missing.is_empty());
    let mut steps = Steps::new("cluster", fetches + missing.len() + 1).with_log(setup.log()?);
    let download = runtime_download(places);
    steps.run_reporting(
        "fetch containerd and runc",
        || download.to_string(),
        || runtime(setup, places),
    )?;
    let download = source::download(places);
    let what = "fetch the source of Kubernetes";
    steps.run_reporting(
        what,
        || download.to_string(),
        || source::ensure(setup, places),
    )?;
    if !missing.is_empty() {
        compile(setup, places, &mut steps, &missing)?;
    }
    let images = Images::new(setup, places);
    steps.run_reporting(
        "make the images",
        || images.progress(e2e),
        || images.make(e2e),
    )?;
    places.finish()
}

fn compile(
    setup: &Setup<'_>,
    places: &Places,
    steps: &mut Steps,
    missing: &[Target],
) -> anyhow::Result<()> {
    let download = Go::download(places);
    let go = steps.run_reporting(
        "fetch Go",
        || download.to_string(),
        || Go::new(setup, places),
    )?;
    for target in missing {
        let packages = Packages::default();
        let what = format!("compile {}", target.name());
        steps.run_reporting(
            &what,
            || packages.to_string(),
            || go.build(*target, &packages),
        )?;
    }
    Ok(())
}

fn runtime_is_there(places: &Places) -> bool {
    RUNTIME
        .iter()
        .flat_map(|(_, programs)| programs.iter())
        .all(|program| places.program_of(program).is_file())
}

/// The download of [`runtime`].
fn runtime_download(places: &Places) -> Download {
    Download {
        files: places.work("packages.debs"),
        unpacked: places.work("packages"),
        megabytes: 30,
    }
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

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    #[test]
    fn a_cluster_is_found_when_every_part_is_kept() {
        let dir = env::temp_dir().join(format!("xtask-cluster-{}", process::id()));
        let places = Places::in_cache(dir.clone(), &dir.join("target"));
        let programs = [
            "kubectl",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
        ];
        let runtime = RUNTIME
            .iter()
            .flat_map(|(_, programs)| programs.iter())
            .map(|path| places.program_of(path));
        let programs = programs
            .iter()
            .chain(&["kube-proxy", "agnhost"])
            .map(|name| places.program(name));
        let parts: Vec<_> = programs
            .chain(runtime)
            .chain(["pause", "server"].map(|name| places.image(name)))
            .collect();
        for part in parts {
            assert!(!is_complete(&places, false), "without {}", part.display());
            files::write(&part, "").expect("a part");
        }
        assert!(!is_complete(&places, false), "without the link");
        places.finish().expect("a link");
        assert!(is_complete(&places, false));
        assert!(
            !is_complete(&places, true),
            "the tests of Kubernetes need more"
        );
        fs::remove_dir_all(&dir).expect("removed");
    }
}
