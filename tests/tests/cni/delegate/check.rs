//! CHECK.

use anyhow::Result;
use flannel_tests::cni::V4;
use serde_json::json;

use super::{World, conf, conf_with};

#[test]
fn the_delegate_checks_what_it_added() -> Result<()> {
    let world = World::new("cnicheck")?;
    world.ok("ADD", &conf("0.4.0"))?;
    let mut expected = world.recorder.calls()?[0].conf.clone();
    let keys =
        json!({ "prevResult": { "ips": [] }, "runtimeConfig": { "mac": "02:00:00:00:00:01" } });
    assert_eq!(world.ok("CHECK", &conf_with("1.0.0", &keys))?, "");
    expected["cniVersion"] = json!("1.0.0");
    expected["prevResult"] = json!({ "ips": [] });
    expected["runtimeConfig"] = json!({ "mac": "02:00:00:00:00:01" });
    let calls = world.recorder.calls()?;
    assert_eq!(
        (calls[1].verb.as_str(), &calls[1].conf),
        ("CHECK", &expected)
    );
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);

    let error = "{\"code\":999,\"msg\":\"the route is gone\"}";
    world.recorder.set_output("CHECK", error, 1)?;
    let output = world
        .runtime
        .call("CHECK", Some(&world.sandbox), &conf_with("1.0.0", &keys))?;
    assert_eq!((output.code, output.stdout.as_str()), (1, error));
    Ok(())
}

#[test]
fn each_reason_to_refuse_has_its_code() -> Result<()> {
    let world = World::new("cnicheck2")?;
    let result = json!({ "prevResult": { "ips": [] } });
    let refusal = |conf| -> Result<(u64, String)> {
        let error = world.runtime.error("CHECK", Some(&world.sandbox), &conf)?;
        Ok((
            error["code"].as_u64().unwrap_or(0),
            error["msg"].as_str().unwrap_or("").to_owned(),
        ))
    };
    let unknown = "no state of container \"pod1\", interface \"eth0\", in /var/lib/cni/flannel";
    assert_eq!(
        refusal(conf_with("1.0.0", &result))?,
        (3, unknown.to_owned())
    );
    world.ok("ADD", &conf("1.0.0"))?;
    assert_eq!(
        refusal(conf("1.0.0"))?,
        (7, "required prevResult missing".to_owned())
    );
    let version = "config version \"0.3.1\" does not allow CHECK";
    assert_eq!(
        refusal(conf_with("0.3.1", &result))?,
        (1, version.to_owned())
    );

    world.runtime.write(
        "/run/flannel/subnet.env",
        &V4.replace("10.244.7.1", "10.244.8.1"),
    )?;
    let error = world
        .runtime
        .error("CHECK", Some(&world.sandbox), &conf_with("1.0.0", &result))?;
    assert_eq!(error["code"], 102);
    let details = r#"the pod's ranges are [[{"subnet":"10.244.7.0/24"}]], the node's [[{"subnet":"10.244.8.0/24"}]]"#;
    assert_eq!(error["details"], details);
    assert_eq!(world.recorder.verbs()?, ["ADD"]);
    Ok(())
}
