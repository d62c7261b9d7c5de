//! ADD.

use std::time::Duration;

use anyhow::{Context as _, Result};
use flannel_tests::{
    Lab,
    cni::{Call, Recorder, Runtime, STATE, V4},
    throughout,
};
use serde_json::{Value, json};

use super::{World, conf, conf_with, sandbox};

#[test]
fn the_delegate_gets_the_whole_call_and_its_result_is_ours() -> Result<()> {
    let world = World::new("cniadd")?;
    let result = "{ \"cniVersion\":\"1.0.0\",\n  \"ips\": [] }";
    world.recorder.set_output("ADD", result, 0)?;
    world
        .recorder
        .set_stderr("ADD", "a word of the delegate\n")?;
    let keys = json!({
        "ipam": { "routes": [{ "dst": "0.0.0.0/0" }] },
        "runtimeConfig": { "portMappings": [{ "hostPort": 80, "containerPort": 80 }] },
        "prevResult": { "cniVersion": "1.0.0", "dns": {} }
    });
    let output = world
        .runtime
        .call("ADD", Some(&world.sandbox), &conf_with("1.0.0", &keys))?;
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (0, result, "a word of the delegate\n")
    );

    let netconf = json!({
        "type": "record", "name": "net", "ipMasq": false, "mtu": 1400, "cniVersion": "1.0.0",
        "runtimeConfig": { "portMappings": [{ "hostPort": 80, "containerPort": 80 }] },
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": "10.244.7.0/24" }]],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "10.244.0.0/16" }]
        }
    });
    let mut conf = netconf.clone();
    conf["prevResult"] = json!({ "cniVersion": "1.0.0", "dns": {} });
    let text = str::to_owned;
    let call = Call {
        verb: text("ADD"),
        id: text("pod1"),
        ifname: text("eth0"),
        netns: text("/run/netns/pod1"),
        args: text("IgnoreUnknown=1;K8S_POD_NAME=p"),
        conf,
    };
    assert_eq!(world.recorder.calls()?, [call]);
    // The form that stock flannel's plugin reads, too.
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    let state: Value = serde_json::from_str(&world.runtime.read(&format!("{STATE}/pod1:eth0"))?)?;
    assert_eq!(state, netconf);
    Ok(())
}

#[test]
fn each_interface_has_its_own_state() -> Result<()> {
    let world = World::new("cniif")?;
    let other = sandbox("pod1", "net1");
    world.ok("ADD", &conf("1.0.0"))?;
    world.ok_for(
        "ADD",
        &other,
        &conf_with("1.0.0", &json!({ "name": "other" })),
    )?;
    assert_eq!(world.runtime.state(), ["pod1:eth0", "pod1:net1"]);
    world.ok_for(
        "DEL",
        &other,
        &conf_with("1.0.0", &json!({ "name": "other" })),
    )?;
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    world.ok("DEL", &conf("1.0.0"))?;
    let names: Vec<Value> = world
        .recorder
        .calls()?
        .iter()
        .map(|call| call.conf["name"].clone())
        .collect();
    assert_eq!(names, ["net", "other", "other", "net"]);
    Ok(())
}

#[test]
fn a_failed_add_is_undone_and_the_delegates_error_is_ours() -> Result<()> {
    let world = World::new("cniundo")?;
    let error = "{\"code\": 999,\"msg\":\"no more addresses\"}\n";
    world.recorder.set_output("ADD", error, 1)?;
    let output = world
        .runtime
        .call("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
    assert_eq!((output.code, output.stdout.as_str()), (1, error));
    assert_eq!(world.recorder.verbs()?, ["ADD", "DEL"]);
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

/// A plugin that refuses the version does so before it does anything; 100 is a plugin's that misses
/// another one, and whose DEL misses it too.
#[test]
fn a_delegate_that_did_not_begin_leaves_no_state() -> Result<()> {
    let world = World::new("cnibegin")?;
    world
        .recorder
        .set_output("DEL", "{\"code\":100,\"msg\":\"cannot find plugin\"}", 1)?;
    for (code, verbs) in [(1, &["ADD"] as &[&str]), (100, &["ADD", "DEL"])] {
        world.recorder.forget()?;
        world
            .recorder
            .set_output("ADD", &json!({ "code": code, "msg": "no" }).to_string(), 1)?;
        let error = world
            .runtime
            .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
        assert_eq!(error["code"], code);
        assert_eq!(
            (world.recorder.verbs()?, world.runtime.state().len()),
            (verbs.iter().map(|verb| (*verb).to_owned()).collect(), 0)
        );
        world.ok("DEL", &conf("1.0.0"))?;
    }
    Ok(())
}

#[test]
fn a_repeated_add_that_fails_is_not_undone() -> Result<()> {
    let world = World::new("cnitwo2")?;
    world.ok("ADD", &conf("1.0.0"))?;
    let file = format!("{STATE}/pod1:eth0");
    let before = world.runtime.read(&file)?;
    for (stdout, code) in [
        ("{\"code\":999,\"msg\":\"no\"}", 1),
        ("{\"code\":1,\"msg\":\"no\"}", 1),
        ("", 2),
    ] {
        world.recorder.set_output("ADD", stdout, code)?;
        world.runtime.error(
            "ADD",
            Some(&world.sandbox),
            &conf_with(
                "1.0.0",
                &json!({ "delegate": { "type": "record", "x": 1 } }),
            ),
        )?;
        assert_eq!(world.runtime.read(&file)?, before);
    }
    assert_eq!(world.recorder.verbs()?, ["ADD"; 4]);
    world.recorder.set_output("ADD", "", 0)?;
    world.ok(
        "ADD",
        &conf_with(
            "1.0.0",
            &json!({ "delegate": { "type": "record", "x": 2 } }),
        ),
    )?;
    assert!(
        world.runtime.read(&file)?.contains("\"x\":2"),
        "DEL needs what was added last"
    );
    Ok(())
}

#[test]
fn what_could_not_be_undone_is_left_to_the_runtimes_del() -> Result<()> {
    let world = World::new("cniundo2")?;
    world.recorder.set_output("ADD", "", 2)?;
    world.recorder.set_output("DEL", "", 1)?;
    let error = world
        .runtime
        .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
    assert_eq!(
        error["msg"],
        "the delegate plugin \"record\" failed on ADD: exit status 2 without an error object"
    );
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    world.recorder.set_output("DEL", "", 0)?;
    world.ok("DEL", &conf("1.0.0"))?;
    assert_eq!(world.runtime.state(), [""; 0]);
    Ok(())
}

#[test]
fn a_delegate_that_is_absent_or_fails_without_an_object_is_reported() -> Result<()> {
    let world = World::new("cnibad")?;
    world
        .recorder
        .set_output("ADD", "goroutine 1 [running]", 2)?;
    let error = world
        .runtime
        .error("ADD", Some(&world.sandbox), &conf("0.4.0"))?;
    let msg = "the delegate plugin \"record\" failed on ADD: exit status 2 without an error object";
    assert_eq!(
        error,
        json!({ "cniVersion": "0.4.0", "code": 101, "msg": msg, "details": "goroutine 1 \
            [running]" })
    );

    let absent = conf_with("1.0.0", &json!({ "delegate": { "type": "nosuch" } }));
    let error = world.runtime.error("ADD", Some(&world.sandbox), &absent)?;
    assert_eq!(
        (&error["code"], &error["msg"]),
        (
            &json!(100),
            &json!("cannot find the delegate plugin \"nosuch\" in CNI_PATH")
        )
    );
    assert!(
        error["details"]
            .as_str()
            .context("details")?
            .contains("/usr/lib/cni"),
        "{error}"
    );

    world.recorder.forget()?;
    world
        .runtime
        .node()
        .sh("chmod 0644 /run/cni-recorder/record")?;
    let error = world
        .runtime
        .error("ADD", Some(&world.sandbox), &conf("1.0.0"))?;
    let msg = "cannot start the delegate plugin /run/cni-recorder/record: Permission denied (os \
        error 13)";
    assert_eq!(
        error,
        json!({ "cniVersion": "1.0.0", "code": 5, "msg": msg })
    );
    assert_eq!(
        (world.recorder.verbs()?.len(), world.runtime.state().len()),
        (0, 0)
    );
    Ok(())
}

#[test]
fn an_add_ahead_of_the_agent_waits_for_subnet_env() -> Result<()> {
    let lab = Lab::new("cniwait")?;
    let runtime = Runtime::new(&lab, "n", None)?;
    let recorder = Recorder::new(&runtime)?;
    let sandbox = sandbox("pod1", "eth0");
    let error = runtime.error("ADD", Some(&sandbox), &conf("1.0.0"))?;
    let msg = "/run/flannel/subnet.env is not there yet: is flanneld running?";
    assert_eq!(
        error,
        json!({ "cniVersion": "1.0.0", "code": 11, "msg": msg })
    );

    let patient = conf_with("1.0.0", &json!({ "subnetFileWaitSeconds": 60 }));
    let add = runtime.start("add", "ADD", &sandbox, &patient)?;
    throughout("the wait", Duration::from_millis(300), || {
        (add.is_running() && recorder.calls().ok()?.is_empty()).then_some(())
    })?;
    runtime.write("/run/flannel/subnet.env", V4)?;
    add.wait_success(Duration::from_secs(10))?;
    assert_eq!(recorder.verbs()?, ["ADD"]);
    Ok(())
}
