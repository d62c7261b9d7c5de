//! Files and output that are not what they should be.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Result, ensure};
use flannel_tests::cni::STATE;
use serde_json::json;

use super::{World, conf};

const SUBNET_ENV: &str = "/run/flannel/subnet.env";

#[test]
fn a_delegate_that_prints_without_end_is_an_error_and_is_undone() -> Result<()> {
    let world = World::new("cnilong")?;
    world.recorder.set_output("ADD", &"x".repeat(96 << 20), 0)?;
    // In less memory than it prints.
    let output = world
        .runtime
        .limited_to(64 << 20, "ADD", &world.sandbox, &conf("1.0.0"))?;
    let error: serde_json::Value = serde_json::from_str(&output.stdout)?;
    let msg =
        "the delegate plugin \"record\" failed on ADD: more than 1048576 bytes on standard output";
    assert_eq!(
        (output.code, &error["code"], &error["msg"]),
        (1, &json!(101), &json!(msg))
    );
    assert_eq!(error["details"].as_str().map(str::len), Some(1024));
    assert_eq!(world.recorder.verbs()?, ["ADD", "DEL"]);
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

#[test]
fn del_of_what_was_never_added_succeeds_on_a_read_only_file_system() -> Result<()> {
    let world = World::new("cniro")?;
    let node = world.runtime.node();
    for with_lock in [false, true] {
        node.sh("mount -o remount,rw /var/lib")?;
        node.sh(&format!("mkdir -p -m 700 {STATE}"))?;
        if with_lock {
            world.runtime.write(&format!("{STATE}/.lock"), "")?;
        }
        node.sh("mount -o remount,ro /var/lib")?;
        world.ok("DEL", &conf("1.0.0"))?;
    }
    node.sh("mount -o remount,rw /var/lib")?;
    world.ok("ADD", &conf("1.0.0"))?;
    node.sh("mount -o remount,ro /var/lib")?;
    let error = world
        .runtime
        .error("DEL", Some(&world.sandbox), &conf("1.0.0"))?;
    assert_eq!(error["code"], 5, "what was added is not forgotten: {error}");
    Ok(())
}

#[test]
fn a_planted_link_is_not_written_through() -> Result<()> {
    let world = World::new("cnilink")?;
    world.runtime.write("/var/lib/victim", "precious")?;
    world
        .runtime
        .node()
        .sh(&format!("mkdir -p -m 700 {STATE}"))?;
    for link in [".pod1:eth0", "pod1:eth0"] {
        world
            .runtime
            .node()
            .sh(&format!("ln -s /var/lib/victim {STATE}/{link}"))?;
    }
    world.ok("ADD", &conf("1.0.0"))?;
    assert_eq!(world.runtime.read("/var/lib/victim")?, "precious");
    world.ok("DEL", &conf("1.0.0"))?;
    assert_eq!(
        (
            world.runtime.state(),
            world.runtime.read("/var/lib/victim")?
        ),
        (vec![], "precious".to_owned())
    );
    world.runtime.node().sh(&format!("rm {STATE}/.lock"))?;
    world
        .runtime
        .node()
        .sh(&format!("ln -s /var/lib/victim {STATE}/.lock"))?;
    let error = world
        .runtime
        .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
    assert_eq!(error["code"], 5, "{error}");
    Ok(())
}

#[test]
fn a_data_directory_that_others_can_write_is_corrected_or_refused() -> Result<()> {
    let world = World::new("cnidir")?;
    let dir = world.runtime.node().outside_path(STATE);
    world
        .runtime
        .node()
        .sh(&format!("mkdir -p -m 777 {STATE}"))?;
    world.ok("ADD", &conf("1.0.0"))?;
    assert_eq!(fs::metadata(&dir)?.permissions().mode() & 0o7777, 0o755);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777))?;
    let error = world
        .runtime
        .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
    let msg = format!(
        "all users may create files in {STATE} (mode 1777); name another dataDir, or chmod go-w,-t \
         it"
    );
    assert_eq!((&error["code"], &error["msg"]), (&json!(5), &json!(msg)));
    // Pods go all the same.
    world.ok("DEL", &conf("1.0.0"))?;
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

/// The plugin does not run a delegate's configuration that another user has put there.
#[test]
fn a_state_file_of_another_user_is_removed_and_not_run() -> Result<()> {
    let world = World::new("cniforged")?;
    let forged = json!({ "name": "net", "type": "record", "forged": true });
    world
        .runtime
        .write(&format!("{STATE}/pod1:eth0"), &forged.to_string())?;
    world
        .runtime
        .node()
        .sh(&format!("chown 65534 {STATE}/pod1:eth0"))?;
    let output = world
        .runtime
        .call("DEL", Some(&world.sandbox), &conf("1.0.0"))?;
    ensure!(
        output.code == 0
            && output
                .stderr
                .contains("others may have written it (user 65534, mode 0644)"),
        "{output:?}"
    );
    assert_eq!(
        (world.recorder.verbs()?, world.runtime.state()),
        (vec![], vec![])
    );
    // Where there is an address to free, the delegate of the configuration is called.
    world
        .runtime
        .write(&format!("{STATE}/pod1:eth0"), &forged.to_string())?;
    world
        .runtime
        .node()
        .sh(&format!("chown 65534 {STATE}/pod1:eth0"))?;
    world
        .runtime
        .write("/var/lib/cni/networks/net/10.244.7.9", "pod1\r\neth0")?;
    world.ok("DEL", &conf("1.0.0"))?;
    let calls = world.recorder.calls()?;
    ensure!(
        calls.len() == 1 && calls[0].conf["forged"].is_null(),
        "{calls:?}"
    );
    Ok(())
}

#[test]
fn a_subnet_env_that_is_a_fifo_or_huge_holds_no_call_up() -> Result<()> {
    let world = World::new("cnififo")?;
    for (make, reason) in [
        (format!("mkfifo {SUBNET_ENV}"), "not a regular file"),
        (
            format!("truncate -s 100M {SUBNET_ENV}"),
            "longer than the 65536 bytes a subnet.env may have",
        ),
    ] {
        world.runtime.node().sh(&format!("rm {SUBNET_ENV}"))?;
        world.runtime.node().sh(&make)?;
        let error = world
            .runtime
            .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
        assert_eq!(
            (&error["code"], &error["msg"]),
            (
                &json!(5),
                &json!(format!("cannot read {SUBNET_ENV}: {reason}"))
            )
        );
    }
    Ok(())
}
