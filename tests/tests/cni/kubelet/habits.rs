//! Habits of runtimes and of those who configure them: an ADD again after a lost answer, two
//! networks with one interface name, plugins that come, go and are older, state that is lost.
//!
//! A pod that runs keeps its interface and address whatever ADD comes, and DEL succeeds after
//! whatever an ADD left.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Output,
    cni::{List, STATE, Sandbox, V4},
    eventually,
};
use serde_json::{Value, json};

use super::World;

const SUBNET_ENV: &str = "/run/flannel/subnet.env";
/// A directory without plugins.
const NO_PLUGINS: &str = "/run/no-plugins";

/// A pod that runs, and what it must keep.
struct Running<'a> {
    world: &'a World,
    pod: Sandbox,
    result: Value,
    interface: String,
}

impl<'a> Running<'a> {
    fn new(world: &'a World) -> Result<Self> {
        let pod = world.runtime.sandbox("pod1")?;
        let result = world.list.add(&pod, &Value::Null)?;
        let interface = world.interface(&pod)?;
        Ok(Self {
            world,
            pod,
            result,
            interface,
        })
    }

    /// Its interface is the same, and works.
    fn expect_untouched(&self, after: &str) -> Result<()> {
        let now = self.world.interface(&self.pod)?;
        ensure!(
            now == self.interface,
            "after {after}: {now}, before: {}",
            self.interface
        );
        self.world
            .runtime
            .inside(&self.pod, "ping -n -c 1 -W 2 10.244.7.1")
            .with_context(|| after.to_owned())?;
        ensure!(
            self.world.runtime.leases() == super::addresses(&self.result),
            "after {after}"
        );
        Ok(())
    }

    fn delete(self) -> Result<()> {
        self.world.list.del(&self.pod, &Value::Null, &self.result)?;
        self.world.expect_clean()
    }
}

impl World {
    /// The interface and its addresses, as `ip` shows them.
    fn interface(&self, pod: &Sandbox) -> Result<String> {
        Ok(self
            .runtime
            .inside(pod, &format!("ip -o address show dev {}", pod.ifname))?
            .stdout)
    }

    /// One call of the plugin by the list's first configuration.
    fn call(&self, verb: &str, pod: &Sandbox, list: &List) -> Result<Output> {
        self.runtime.call(
            verb,
            Some(pod),
            &list.conf(&json!({ "type": "flannel" }), &Value::Null, &Value::Null),
        )
    }

    fn expect_clean(&self) -> Result<()> {
        // The kernel deletes a namespace's devices after its name is gone.
        eventually("nothing left", Duration::from_secs(10), || {
            self.runtime.expect_clean()
        })
    }

    fn lose(&self, path: &str) -> Result<()> {
        let path = self.runtime.node().outside_path(path);
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

fn code(output: &Output) -> Value {
    serde_json::from_str::<Value>(&output.stdout).map_or(Value::Null, |error| error["code"].clone())
}

#[test]
fn an_add_that_is_repeated_leaves_the_running_pod_as_it_is() -> Result<()> {
    let world = World::new("cniagain", "1.0.0", V4)?;
    let running = Running::new(&world)?;
    let again = || world.call("ADD", &running.pod, &world.list);
    ensure!(
        code(&again()?) == 104 && world.runtime.state() == ["pod1:eth0"],
        "{:?}",
        world.runtime.state()
    );
    running.expect_untouched("a second ADD")?;
    // As a file of stock's plugin.
    let at = |name: &str| world.runtime.node().outside_path(format!("{STATE}/{name}"));
    fs::rename(at("pod1:eth0"), at("pod1"))?;
    ensure!(
        code(&again()?) == 104 && world.runtime.state() == ["pod1"],
        "{:?}",
        world.runtime.state()
    );
    running.expect_untouched("a second ADD after one of stock's plugin")?;
    // The delegate is asked, and refuses; its DEL would delete the interface.
    for lost in [format!("{STATE}/pod1"), STATE.to_owned()] {
        world.lose(&lost)?;
        let output = again()?;
        ensure!(
            output.code == 1 && output.stdout.contains("already exists"),
            "{output:?}"
        );
        running.expect_untouched(&format!("a second ADD without {lost}"))?;
    }
    running.delete()
}

/// A second list with the same name of the interface, as Multus allows it.
#[test]
fn another_network_that_asks_for_the_same_interface_leaves_it() -> Result<()> {
    let world = World::new("cnitwice", "1.0.0", V4)?;
    for data_dir in [STATE, "/var/lib/cni/other"] {
        let running = Running::new(&world)?;
        let conf = json!({
            "cniVersion": "1.0.0", "name": "other", "type": "flannel", "dataDir": data_dir,
            "delegate": { "bridge": "cni1" }
        });
        for verb in ["ADD", "ADD", "DEL", "DEL", "ADD", "DEL"] {
            let output = world.runtime.call(verb, Some(&running.pod), &conf)?;
            ensure!(
                (output.code == 0) == (verb == "DEL"),
                "{verb} with {data_dir}: {output:?}"
            );
            running.expect_untouched(&format!("{verb} of another network with {data_dir}"))?;
            let others = world.runtime.files("/var/lib/cni/networks/other");
            ensure!(
                !others.iter().any(|name| name.starts_with("10.")),
                "{others:?}"
            );
        }
        running.delete()?;
        world.runtime.node().sh("ip netns delete pod1")?;
    }
    Ok(())
}

#[test]
fn an_interface_that_somebody_else_made_is_left() -> Result<()> {
    let world = World::new("cniforeign", "1.0.0", V4)?;
    let pod = world.runtime.sandbox("pod1")?;
    world
        .runtime
        .inside(&pod, "ip link add eth0 type veth peer name other")?;
    world
        .runtime
        .inside(&pod, "ip address add 198.51.100.7/24 dev eth0")?;
    let before = world.interface(&pod)?;
    for (verb, expected) in [
        ("ADD", 1),
        ("DEL", 0),
        ("ADD", 1),
        ("ADD", 1),
        ("DEL", 0),
        ("DEL", 0),
    ] {
        let output = world.call(verb, &pod, &world.list)?;
        ensure!(output.code == expected, "{verb}: {output:?}");
        ensure!(
            world.interface(&pod)? == before,
            "{verb}: {}",
            world.interface(&pod)?
        );
    }
    world.expect_clean()
}

#[test]
fn a_version_that_the_delegate_refuses_leaves_nothing_behind() -> Result<()> {
    let world = World::new("cnirefuse", "1.1.0", V4)?;
    let pod = world.runtime.sandbox("pod1")?;
    let output = world.call("ADD", &pod, &world.list)?;
    if output.code == 0 {
        flannel_tests::not_run(
            "a version that the delegate refuses",
            "this bridge speaks 1.1.0",
        );
        return Ok(());
    }
    ensure!(
        code(&output) == 1 && world.runtime.state().is_empty(),
        "{output:?} {:?}",
        world.runtime.state()
    );
    let older = List::new(&world.runtime, "1.0.0", json!([{ "type": "flannel" }]))?;
    for list in [&world.list, &older, &world.list] {
        let output = world.call("DEL", &pod, list)?;
        ensure!(output.code == 0, "{output:?}");
    }
    world.expect_clean()
}

/// The configuration has the version that pods were added with, or one that no plugin speaks.
#[test]
fn pods_go_after_the_plugins_became_older() -> Result<()> {
    let world = World::new("cniolder", "1.0.0", V4)?;
    for (now, lost) in [
        ("1.0.0", None),
        ("0.3.1", None),
        ("9.0.0", None),
        ("1.0.0", Some(STATE)),
    ] {
        let running = Running::new(&world)?;
        world.runtime.limit_version("bridge", Some("0.4.0"))?;
        lost.map_or(Ok(()), |path| world.lose(path))?;
        let list = List::new(&world.runtime, now, json!([{ "type": "flannel" }]))?;
        let output = world.call("DEL", &running.pod, &list)?;
        ensure!(output.code == 0, "{now}: {output:?}");
        world.runtime.limit_version("bridge", None)?;
        world.expect_clean()?;
        ensure!(
            world.interface(&running.pod).is_err(),
            "the interface is left"
        );
        world.runtime.node().sh("ip netns delete pod1")?;
    }
    Ok(())
}

#[test]
fn an_add_into_a_file_that_is_no_namespace_is_deleted() -> Result<()> {
    let world = World::new("cnifile", "1.0.0", V4)?;
    let pod = world.runtime.sandbox("pod1")?;
    world.runtime.node().sh("ip netns delete pod1")?;
    world.runtime.write("/run/netns/pod1", "")?;
    for (verb, expected) in [("ADD", 1), ("DEL", 0), ("DEL", 0)] {
        let output = world.call(verb, &pod, &world.list)?;
        ensure!(
            output.code == expected && world.runtime.state().is_empty(),
            "{verb}: {output:?}"
        );
    }
    world.expect_clean()?;
    // A pod that ran, whose namespace's file is a plain one now.
    world.lose("/run/netns/pod1")?;
    let running = Running::new(&world)?;
    world.runtime.node().sh("ip netns delete pod1")?;
    world.runtime.write("/run/netns/pod1", "")?;
    running.delete()
}

/// As after a reboot of a node that has all or some of it on a tmpfs.
#[test]
fn addresses_are_freed_without_state_and_without_subnet_env() -> Result<()> {
    let world = World::new("cnilost", "0.3.1", V4)?;
    for lost in [
        &[STATE] as &[&str],
        &[STATE, SUBNET_ENV],
        &["/var/lib/cni/flannel/pod1:eth0"],
    ] {
        let running = Running::new(&world)?;
        lost.iter().try_for_each(|path| world.lose(path))?;
        let output = world.call("DEL", &running.pod, &world.list)?;
        ensure!(output.code == 0, "{lost:?}: {output:?}");
        world.expect_clean().with_context(|| format!("{lost:?}"))?;
        ensure!(
            world.interface(&running.pod).is_err(),
            "the interface is left without {lost:?}"
        );
        world.runtime.node().sh("ip netns delete pod1")?;
        world.runtime.write(SUBNET_ENV, V4)?;
    }
    // A damaged file counts as a missing one.
    let running = Running::new(&world)?;
    world
        .runtime
        .write(&format!("{STATE}/pod1:eth0"), "{\"type\":\"bri")?;
    running.delete()
}

#[test]
fn plugins_that_are_missing_keep_only_what_has_an_address() -> Result<()> {
    let world = World::new("cniabsent", "1.0.0", V4)?;
    world.runtime.write(&format!("{NO_PLUGINS}/README"), "")?;
    let conf = world
        .list
        .conf(&json!({ "type": "flannel" }), &Value::Null, &Value::Null);
    let without = |verb: &str, pod: &Sandbox| {
        world
            .runtime
            .command("flannel", verb, Some(pod), &conf)
            .env("CNI_PATH", NO_PLUGINS)
            .run()
    };
    // What never was added goes.
    let never = world.runtime.sandbox("never")?;
    ensure!(code(&without("ADD", &never)?) == 100 && without("DEL", &never)?.code == 0);
    for lost in [None, Some(STATE)] {
        let running = Running::new(&world)?;
        lost.map_or(Ok(()), |path| world.lose(path))?;
        let output = without("DEL", &running.pod)?;
        ensure!(code(&output) == 100, "{lost:?}: {output:?}");
        running.expect_untouched("a DEL without plugins")?;
        running.delete()?;
        world.runtime.node().sh("ip netns delete pod1")?;
    }
    Ok(())
}
