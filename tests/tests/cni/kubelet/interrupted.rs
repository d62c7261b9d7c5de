//! A runtime that gives up: the plugin is killed in the middle of ADD, and the real delegates are
//! not.

use std::time::Duration;

use anyhow::Result;
use flannel_tests::{cni::V4, eventually};
use serde_json::{Value, json};

use super::{World, addresses};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn add_killed_anywhere_then_del_and_add_again() -> Result<()> {
    let world = World::new("cnicut", "1.0.0", V4)?;
    let conf = world
        .list
        .conf(&json!({ "type": "flannel" }), &Value::Null, &Value::Null);
    for (moment, is_there) in [
        (
            "state",
            (&|| !world.runtime.state().is_empty()) as &dyn Fn() -> bool,
        ),
        ("an address", &|| !world.runtime.leases().is_empty()),
        ("a port of the bridge", &|| {
            !world.runtime.ports().is_empty()
        }),
    ] {
        let id = format!("pod-{}", moment.len());
        let pod = world.runtime.sandbox(&id)?;
        let add = world.runtime.start(&id, "ADD", &pod, &conf)?;
        eventually(moment, SOON, || is_there().then_some(()))?;
        // One that has ended already is another moment.
        drop(add.kill9());
        world.list.del(&pod, &Value::Null, &Value::Null)?;
        world.runtime.expect_clean()?;

        let result = world.list.add(&pod, &Value::Null)?;
        assert_eq!(world.runtime.leases(), addresses(&result));
        world.runtime.inside(&pod, "ping -n -c 1 -W 2 10.244.7.1")?;
        world.list.del(&pod, &Value::Null, &result)?;
        world.runtime.expect_clean()?;
    }
    Ok(())
}
