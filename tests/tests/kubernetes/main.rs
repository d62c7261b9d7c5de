//! Our image on a real Kubernetes of three nodes, installed by the manifest as it is shipped.
//!
//! All tests share one cluster, which takes a minute to start, and run one after the other. Each
//! leaves it as it found it.

mod paths;

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use anyhow::Result;
use flannel_tests::{
    Lab,
    kubernetes::{Kubernetes, Parts, Progress, flannel},
    not_run,
};
use libtest_mimic::{Arguments, Trial};

type Test = fn(&Kubernetes) -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("the_agents_are_in_mode_fast", paths::the_agents_are_in_mode_fast),
    ("every_pod_and_node_reaches_every_pod_and_service", paths::every_pod_and_node_reaches_every_pod_and_service),
];

/// A cluster that starts with the first test.
struct Cluster {
    parts: Result<Parts, String>,
    running: OnceLock<Result<Kubernetes, String>>,
}

impl Cluster {
    fn running(&self) -> Result<&Kubernetes, String> {
        let running = self.running.get_or_init(|| self.start().map_err(|error| format!("{error:#}")));
        running.as_ref().map_err(|error| format!("the cluster did not start: {error}"))
    }

    fn start(&self) -> Result<Kubernetes> {
        let progress = Progress::new();
        let parts = self.parts.as_ref().map_err(|reason| anyhow::anyhow!(reason.clone()))?;
        let cluster = Kubernetes::start(Lab::new("kubernetes")?, parts, &progress)?;
        cluster.install(&flannel::manifest()?)?;
        progress.say("nodes and the agents' pods are ready");
        paths::servers(&cluster)?;
        progress.say("a server's pod is ready on each node");
        Ok(cluster)
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let cluster = Arc::new(Cluster { parts: Parts::find(), running: OnceLock::new() });
    if let Err(reason) = &cluster.parts {
        not_run("the Kubernetes cluster", reason);
    }
    let trials = TESTS.iter().map(|(name, test)| trial(name, *test, &cluster)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: Test, cluster: &Arc<Cluster>) -> Trial {
    let ignored = cluster.parts.is_err();
    let cluster = Arc::clone(cluster);
    let run = move || test(cluster.running()?).map_err(|error| format!("{error:?}").into());
    Trial::test(name, run).with_ignored_flag(ignored)
}
