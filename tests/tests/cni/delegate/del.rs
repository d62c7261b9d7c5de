//! DEL.

use std::fs;

use anyhow::Result;
use flannel_tests::cni::STATE;
use serde_json::{Value, json};

use super::{World, conf, conf_with};

#[test]
fn del_works_by_what_add_saved_and_once() -> Result<()> {
    let world = World::new("cnidel")?;
    world.ok("ADD", &conf("1.0.0"))?;
    let saved = world.recorder.calls()?[0].conf.clone();
    // The agent's file is gone, and the configuration is another.
    fs::remove_file(world.runtime.node().outside_path("/run/flannel/subnet.env"))?;
    let changed = conf_with(
        "1.0.0",
        &json!({ "delegate": { "type": "bridge" }, "prevResult": { "ips": [] } }),
    );
    assert_eq!(world.ok("DEL", &changed)?, "");
    let mut expected = saved;
    expected["prevResult"] = json!({ "ips": [] });
    assert_eq!(world.recorder.calls()?[1].conf, expected);
    assert_eq!(world.runtime.state(), [""; 0]);

    world.ok("DEL", &changed)?;
    assert_eq!(world.recorder.verbs()?, ["ADD", "DEL"]);
    Ok(())
}

#[test]
fn del_succeeds_where_nothing_was_ever_added() -> Result<()> {
    let world = World::new("cnidel0")?;
    world.ok("DEL", &conf("0.3.1"))?;
    assert!(
        world.runtime.files("/var/lib").is_empty(),
        "a DEL made a directory"
    );
    assert_eq!(world.recorder.verbs()?, [""; 0]);
    // Another IPAM plugin may have an address: the delegate is asked, and may say what it wants.
    let other = |delegate: Value| {
        conf_with(
            "0.3.1",
            &json!({ "ipam": { "type": "dhcp" }, "delegate": delegate }),
        )
    };
    world.ok("DEL", &other(json!({ "type": "record" })))?;
    assert_eq!(world.recorder.verbs()?, ["DEL"]);
    world
        .recorder
        .set_output("DEL", "{\"code\":11,\"msg\":\"later\"}", 1)?;
    assert_eq!(
        world.runtime.error(
            "DEL",
            Some(&world.sandbox),
            &other(json!({ "type": "record" }))
        )?["code"],
        11
    );
    for never_ran in [
        json!({ "type": "nosuch" }),
        json!({ "type": "record", "name": "x" }),
    ] {
        world.ok("DEL", &other(never_ran))?;
    }
    Ok(())
}

#[test]
fn without_state_del_works_by_the_configuration() -> Result<()> {
    let world = World::new("cnidel4")?;
    world.ok("ADD", &conf("1.0.0"))?;
    fs::remove_dir_all(world.runtime.node().outside_path(STATE))?;
    world
        .runtime
        .write("/var/lib/cni/networks/net/10.244.7.9", "pod1\r\neth0")?;
    world.ok(
        "DEL",
        &conf_with("1.0.0", &json!({ "prevResult": { "ips": [] } })),
    )?;
    let calls = world.recorder.calls()?;
    let mut expected = calls[0].conf.clone();
    expected["prevResult"] = json!({ "ips": [] });
    assert_eq!((calls[1].verb.as_str(), &calls[1].conf), ("DEL", &expected));
    // While host-local has an address for the pod, a failure is one.
    world
        .recorder
        .set_output("DEL", "{\"code\":11,\"msg\":\"later\"}", 1)?;
    let error = world
        .runtime
        .error("DEL", Some(&world.sandbox), &conf("1.0.0"))?;
    assert_eq!(error["code"], 11);
    world.recorder.set_output("DEL", "", 0)?;
    // The ranges of a subnet.env that is gone do not matter.
    fs::remove_file(world.runtime.node().outside_path("/run/flannel/subnet.env"))?;
    world.ok("DEL", &conf("1.0.0"))?;
    let last = world.recorder.calls()?.pop().expect("a call").conf;
    assert_eq!(
        last["ipam"]["ranges"],
        json!([[{ "subnet": "192.0.2.0/24" }]])
    );
    // Other plugins than host-local may not take them for a stand-in.
    let count = world.recorder.calls()?.len();
    world.ok(
        "DEL",
        &conf_with("1.0.0", &json!({ "ipam": { "type": "dhcp" } })),
    )?;
    assert_eq!(world.recorder.calls()?.len(), count);
    Ok(())
}

#[test]
fn a_refused_version_is_replaced_by_the_others() -> Result<()> {
    let world = World::new("cnidel5")?;
    world.ok("ADD", &conf("1.0.0"))?;
    world.recorder.set_output(
        "DEL",
        "{\"code\":1,\"msg\":\"incompatible CNI versions\"}",
        1,
    )?;
    let error = world
        .runtime
        .error("DEL", Some(&world.sandbox), &conf("0.3.1"))?;
    assert_eq!(error["code"], 1);
    let calls = world.recorder.calls()?;
    let mut tried: Vec<&str> = calls[1..]
        .iter()
        .filter_map(|call| call.conf["cniVersion"].as_str())
        .collect();
    assert_eq!(&tried[..3], ["1.0.0", "0.3.1", "1.1.0"]);
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(
        tried,
        [
            "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"
        ]
    );
    assert_eq!(world.runtime.state(), ["pod1:eth0"], "nothing was deleted");
    Ok(())
}

#[test]
fn state_stays_until_the_delegate_has_deleted() -> Result<()> {
    let world = World::new("cnidel2")?;
    world.ok("ADD", &conf("0.3.1"))?;
    let error = "{\"code\":11,\"msg\":\"later\"}";
    world.recorder.set_output("DEL", error, 1)?;
    let output = world
        .runtime
        .call("DEL", Some(&world.sandbox), &conf("0.3.1"))?;
    assert_eq!((output.code, output.stdout.as_str()), (1, error));
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    world.recorder.set_output("DEL", "", 0)?;
    world.ok("DEL", &conf("0.3.1"))?;
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

#[test]
fn a_result_of_another_version_is_kept_from_the_delegate() -> Result<()> {
    let world = World::new("cnidel3")?;
    world.ok("ADD", &conf("0.3.1"))?;
    world.ok(
        "DEL",
        &conf_with("1.0.0", &json!({ "prevResult": { "ips": [] } })),
    )?;
    let call = world.recorder.calls()?[1].conf.clone();
    assert_eq!(
        (&call["cniVersion"], call.get("prevResult")),
        (&json!("0.3.1"), None)
    );
    Ok(())
}

#[test]
fn pods_that_stock_flannel_added_can_be_deleted() -> Result<()> {
    let world = World::new("cnistock")?;
    let saved = json!({
        "cniVersion": "0.3.1",
        "hairpinMode": true,
        "ipMasq": false,
        "isDefaultGateway": true,
        "isGateway": true,
        "ipam": {
            "ranges": [[{ "subnet": "10.244.7.0/24" }]],
            "routes": [{ "dst": "10.244.0.0/16" }],
            "type": "host-local"
        },
        "mtu": 1400, "name": "net", "type": "record"
    });
    world
        .runtime
        .write(&format!("{STATE}/pod1"), &saved.to_string())?;
    world.ok("DEL", &conf("0.3.1"))?;
    let seen: Vec<Value> = world
        .recorder
        .calls()?
        .into_iter()
        .map(|call| call.conf)
        .collect();
    assert_eq!(seen, [saved]);
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

#[test]
fn damaged_state_does_not_keep_a_pod_alive() -> Result<()> {
    let world = World::new("cnidamage")?;
    for name in ["pod1", "pod1:eth0"] {
        world
            .runtime
            .write(&format!("{STATE}/{name}"), "{\"type\":\"rec")?;
        let output = world
            .runtime
            .call("DEL", Some(&world.sandbox), &conf("0.3.1"))?;
        assert_eq!((output.code, output.stdout.as_str()), (0, ""));
        assert!(
            output
                .stderr
                .contains(&format!("{STATE}/{name} is no state file")),
            "{}",
            output.stderr
        );
        assert_eq!(world.runtime.state(), [""; 0]);
    }
    assert_eq!(world.recorder.verbs()?, [""; 0]);
    Ok(())
}
