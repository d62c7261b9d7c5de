//! A runtime that gives up an ADD kills the plugin, and the delegate lives on.

use std::time::Duration;

use anyhow::Result;
use flannel_tests::throughout;

use super::{World, conf, sandbox};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn del_waits_for_the_delegate_of_a_killed_add() -> Result<()> {
    let world = World::new("cnikill")?;
    world.recorder.block("ADD")?;
    let add = world
        .runtime
        .start("add", "ADD", &world.sandbox, &conf("1.0.0"))?;
    world.recorder.wait_calls(1)?;
    // By now DEL must be able to find it.
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    add.kill9()?;

    let del = world
        .runtime
        .start("del", "DEL", &world.sandbox, &conf("1.0.0"))?;
    throughout("the wait", Duration::from_millis(500), || {
        (del.is_running() && world.recorder.verbs().ok()? == ["ADD"]).then_some(())
    })?;
    // Calls for other pods do not wait.
    world.ok_for("DEL", &sandbox("pod2", "eth0"), &conf("1.0.0"))?;
    world.recorder.release("ADD")?;
    del.wait_success(SOON)?;
    assert_eq!(world.recorder.verbs()?, ["ADD", "end of ADD", "DEL"]);
    assert_eq!(world.runtime.state(), [""; 0]);

    world.ok("ADD", &conf("1.0.0"))?;
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    Ok(())
}
