//! Random sequences of verbs and faults, with the distribution's plugins: after each step every pod
//! that runs has the interface and the address of its ADD, no DEL has failed, and in the end
//! no address, interface or state is left.
//!
//! `FLANNEL_CNI_SEED` repeats one sequence; a failure names its seed.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    cni::{List, Recorder, STATE, Sandbox, V4},
    eventually,
    harness::variable::number,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use super::World;

/// Those of every run.
const SEEDS: std::ops::Range<u64> = 1..5;
const STEPS: usize = 40;
const PODS: usize = 3;
const SUBNET_ENV: &str = "/run/flannel/subnet.env";

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(usize),
    /// The plugin is killed in the middle.
    KilledAdd(usize),
    /// By another network, for the same interface.
    AddOfOther(usize),
    DelOfOther(usize),
    Del(usize),
    /// The namespace goes, and its file, or the file stays as a plain one.
    LoseNamespace(usize, bool),
    LoseStateOf(usize),
    /// With the lock.
    LoseState,
    DamageStateOf(usize),
    LoseSubnetEnv,
    /// To a subnet of this number.
    WriteSubnetEnv(u8),
    /// `bridge` no longer speaks what is configured, or does again.
    LimitVersion(bool),
}

struct Sequence<'a> {
    world: &'a World,
    pods: Vec<Sandbox>,
    /// The address of each pod that runs.
    running: BTreeMap<usize, String>,
    is_limited: bool,
    has_subnet_env: bool,
}

fn draw(random: &mut StdRng) -> Step {
    let pod = random.random_range(0..PODS);
    match random.random_range(0..26) {
        0..7 => Step::Add(pod),
        7 => Step::KilledAdd(pod),
        8..10 => Step::AddOfOther(pod),
        10..12 => Step::DelOfOther(pod),
        12..16 => Step::Del(pod),
        16..18 => Step::LoseNamespace(pod, random.random()),
        18 => Step::LoseStateOf(pod),
        19 => Step::LoseState,
        20 => Step::DamageStateOf(pod),
        21 => Step::LoseSubnetEnv,
        22..24 => Step::WriteSubnetEnv(random.random_range(7..9)),
        _ => Step::LimitVersion(random.random_ratio(1, 3)),
    }
}

impl<'a> Sequence<'a> {
    fn new(world: &'a World) -> Result<Self> {
        let pods = (0..PODS)
            .map(|pod| world.runtime.sandbox(&format!("pod{pod}")))
            .collect::<Result<_>>()?;
        Ok(Self {
            world,
            pods,
            running: BTreeMap::new(),
            is_limited: false,
            has_subnet_env: true,
        })
    }

    fn conf(&self, network: &str) -> Value {
        let mut conf =
            self.world
                .list
                .conf(&json!({ "type": "flannel" }), &Value::Null, &Value::Null);
        conf["subnetFileWaitSeconds"] = json!(0);
        // The bridge changes its address with the subnet.
        conf["delegate"] = json!({ "forceAddress": true });
        if network != "cbr0" {
            conf["name"] = json!(network);
            conf["delegate"]["bridge"] = json!("cni1");
        }
        conf
    }

    fn apply(&mut self, step: Step) -> Result<()> {
        let runtime = &self.world.runtime;
        let remove = |path: String| {
            let path = runtime.node().outside_path(path);
            drop(if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            });
        };
        match step {
            Step::Add(pod) => self.add(pod)?,
            Step::KilledAdd(pod) if !self.running.contains_key(&pod) => {
                let add = runtime.start("add", "ADD", &self.pods[pod], &self.conf("cbr0"))?;
                drop(add.kill9());
                // As the specification asks of a runtime.
                self.del(pod, "cbr0")?;
            }
            // One that has no interface for another network to meet is not this case.
            Step::AddOfOther(pod) if self.running.contains_key(&pod) => {
                let output = runtime.call("ADD", Some(&self.pods[pod]), &self.conf("other"))?;
                ensure!(output.code == 1, "{output:?}");
            }
            Step::DelOfOther(pod) if runtime.state().contains(&format!("pod{pod}:eth0:other")) => {
                self.del_of(pod, "other")?;
            }
            Step::Del(pod) => self.del(pod, "cbr0")?,
            Step::LoseNamespace(pod, leaves_file) => {
                let id = self.pods[pod].id.clone();
                self.running.remove(&pod);
                runtime.node().sh(&format!("ip netns delete {id}"))?;
                if leaves_file {
                    runtime.write(&format!("/run/netns/{id}"), "")?;
                }
                let output = runtime.call("ADD", Some(&self.pods[pod]), &self.conf("cbr0"))?;
                ensure!(output.code == 1, "an ADD without a namespace: {output:?}");
                self.del(pod, "cbr0")?;
                remove(format!("/run/netns/{id}"));
                runtime.sandbox(&id)?;
            }
            Step::LoseStateOf(pod) => remove(format!("{STATE}/pod{pod}:eth0")),
            Step::LoseState => remove(STATE.to_owned()),
            Step::DamageStateOf(pod) if self.running.contains_key(&pod) => {
                runtime.write(&format!("{STATE}/pod{pod}:eth0"), "{")?;
            }
            Step::LoseSubnetEnv => {
                remove(SUBNET_ENV.to_owned());
                self.has_subnet_env = false;
            }
            Step::WriteSubnetEnv(number) => {
                runtime.write(
                    SUBNET_ENV,
                    &V4.replace("10.244.7.1", &format!("10.244.{number}.1")),
                )?;
                self.has_subnet_env = true;
            }
            Step::LimitVersion(limited) if limited != self.is_limited => {
                runtime.limit_version("bridge", limited.then_some("0.4.0"))?;
                self.is_limited = limited;
            }
            _ => {}
        }
        self.expect_running()
    }

    fn add(&mut self, pod: usize) -> Result<()> {
        let output = self
            .world
            .runtime
            .call("ADD", Some(&self.pods[pod]), &self.conf("cbr0"))?;
        let can_succeed =
            !self.running.contains_key(&pod) && self.has_subnet_env && !self.is_limited;
        ensure!(
            (output.code == 0) == can_succeed,
            "ADD of pod{pod}: {output:?}"
        );
        if can_succeed {
            let result = serde_json::from_str(&output.stdout)?;
            let address = super::addresses(&result).pop().context("an address")?;
            self.running.insert(pod, address);
        } else if !self.running.contains_key(&pod) {
            // As the specification asks of a runtime.
            self.del(pod, "cbr0")?;
        }
        Ok(())
    }

    fn del(&mut self, pod: usize, network: &str) -> Result<()> {
        self.running.remove(&pod);
        self.del_of(pod, network)?;
        let interface = self
            .world
            .runtime
            .inside(&self.pods[pod], "ip link show dev eth0");
        ensure!(interface.is_err(), "after DEL of pod{pod}: {interface:?}");
        Ok(())
    }

    fn del_of(&self, pod: usize, network: &str) -> Result<()> {
        let output = self
            .world
            .runtime
            .call("DEL", Some(&self.pods[pod]), &self.conf(network))?;
        ensure!(output.code == 0, "DEL of pod{pod}: {output:?}");
        Ok(())
    }

    fn expect_running(&self) -> Result<()> {
        let leases = self.world.runtime.leases();
        for (pod, address) in &self.running {
            let addresses = self
                .world
                .runtime
                .inside(&self.pods[*pod], "ip -4 -o address show dev eth0")?
                .stdout;
            ensure!(
                addresses.contains(&format!(" {address}/24 ")),
                "pod{pod} had {address}: {addresses}"
            );
        }
        let mut expected: Vec<_> = self.running.values().cloned().collect();
        expected.sort();
        ensure!(
            leases == expected,
            "{leases:?} are allocated, of {:?}",
            self.running
        );
        Ok(())
    }

    /// The pods go, and some twice.
    fn finish(mut self) -> Result<()> {
        for pod in [0, 0, 1, 2, 2] {
            self.del(pod, "cbr0")?;
            self.del_of(pod, "other")?;
        }
        eventually("nothing left", Duration::from_secs(10), || {
            let others = self.world.runtime.files("/var/lib/cni/networks/other");
            ensure!(
                !others.iter().any(|name| name.starts_with("10.")),
                "{others:?}"
            );
            self.world.runtime.expect_clean()
        })?;
        if self.is_limited {
            self.world.runtime.limit_version("bridge", None)?;
        }
        self.pods.iter().try_for_each(|pod| {
            self.world
                .runtime
                .node()
                .sh(&format!("ip netns delete {}", pod.id))
                .map(drop)
        })
    }
}

fn run(world: &World, seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut sequence = Sequence::new(world)?;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let step = draw(&mut random);
        steps.push(step);
        sequence
            .apply(step)
            .with_context(|| format!("after {steps:?}"))?;
    }
    sequence
        .finish()
        .with_context(|| format!("at the end of {steps:?}"))
}

#[test]
fn no_sequence_harms_a_pod_that_runs_or_leaves_an_address() -> Result<()> {
    let world = World::new("cniseq", "1.0.0", V4)?;
    // The directory of plugins before the distribution's.
    drop(Recorder::new(&world.runtime)?);
    let list = List::new(&world.runtime, "1.0.0", json!([{ "type": "flannel" }]))?;
    let world = World { list, ..world };
    let seeds: Vec<u64> = match number("FLANNEL_CNI_SEED")? {
        Some(seed) => vec![seed],
        None => SEEDS.chain([rand::random()]).collect(),
    };
    for seed in seeds {
        run(&world, seed).with_context(|| format!("FLANNEL_CNI_SEED={seed}"))?;
        world.runtime.write(SUBNET_ENV, V4)?;
    }
    Ok(())
}
