//! STATUS, of CNI 1.1.

use std::fs;

use anyhow::Result;
use serde_json::json;

use super::{World, conf, conf_with};

#[test]
fn a_node_that_can_add_pods_says_so() -> Result<()> {
    let world = World::new("cnistat")?;
    let output = world.runtime.call("STATUS", None, &conf("1.1.0"))?;
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    let call = &world.recorder.calls()?[0];
    assert_eq!(
        (call.verb.as_str(), &call.conf["mtu"]),
        ("STATUS", &json!(1400))
    );

    let error = "{\"code\":50,\"msg\":\"no addresses\"}";
    world.recorder.set_output("STATUS", error, 1)?;
    let output = world.runtime.call("STATUS", None, &conf("1.1.0"))?;
    assert_eq!((output.code, output.stdout.as_str()), (1, error));
    Ok(())
}

#[test]
fn one_that_cannot_says_why_and_whether_pods_suffer() -> Result<()> {
    let world = World::new("cnistat2")?;
    let subnet_env = "/run/flannel/subnet.env";
    let absent = "no pod can be added to this network: /run/flannel/subnet.env is not there yet: \
        is flanneld running?";
    fs::remove_file(world.runtime.node().outside_path(subnet_env))?;
    let error = world.runtime.error("STATUS", None, &conf("1.1.0"))?;
    assert_eq!(
        error,
        json!({ "cniVersion": "1.1.0", "code": 50, "msg": absent })
    );

    world.runtime.write(subnet_env, flannel_tests::cni::V4)?;
    world.ok("ADD", &conf("1.1.0"))?;
    world.runtime.write(subnet_env, "FLANNEL_MTU=1400\n")?;
    let error = world.runtime.error("STATUS", None, &conf("1.1.0"))?;
    let msg = "no pod can be added to this network: /run/flannel/subnet.env is missing \
        FLANNEL_NETWORK, \
               FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, FLANNEL_IPV6_SUBNET, FLANNEL_IPMASQ";
    assert_eq!(
        error,
        json!({ "cniVersion": "1.1.0", "code": 51, "msg": msg })
    );
    // Pods of another network are none of this one's.
    let error = world.runtime.error(
        "STATUS",
        None,
        &conf_with("1.1.0", &json!({ "name": "others" })),
    )?;
    assert_eq!(error["code"], 50);

    world.runtime.write(subnet_env, flannel_tests::cni::V4)?;
    let no_delegate = conf_with(
        "1.1.0",
        &json!({ "name": "others", "delegate": { "type": "nosuch" } }),
    );
    assert_eq!(
        world.runtime.error("STATUS", None, &no_delegate)?["code"],
        50
    );
    assert_eq!(
        world.runtime.error("STATUS", None, &conf("1.0.0"))?["code"],
        1
    );
    Ok(())
}
