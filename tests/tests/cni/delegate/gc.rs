//! GC, of CNI 1.1.

use anyhow::Result;
use flannel_tests::cni::STATE;
use serde_json::{Value, json};

use super::{World, conf, conf_with, sandbox};

fn gc(valid: &Value) -> Value {
    conf_with("1.1.0", &json!({ "cni.dev/valid-attachments": valid }))
}

#[test]
fn what_is_not_in_use_is_deleted_and_the_delegate_collects_too() -> Result<()> {
    let world = World::new("cnigc")?;
    let others = conf_with("1.1.0", &json!({ "name": "others" }));
    for (id, ifname, conf) in [
        ("live", "eth0", conf("1.1.0")),
        ("live", "net1", conf("1.1.0")),
        ("dead", "net1", conf("1.1.0")),
        ("foreign", "eth0", others),
    ] {
        world.ok_for("ADD", &sandbox(id, ifname), &conf)?;
    }
    let stock = json!({ "name": "net", "type": "record" }).to_string();
    for name in ["live", "stock"] {
        world.runtime.write(&format!("{STATE}/{name}"), &stock)?;
    }
    world
        .runtime
        .write(&format!("{STATE}/.torn:eth0"), "{\"type")?;
    world.recorder.forget()?;

    let valid = json!([{ "containerID": "live", "ifname": "eth0" }]);
    let output = world.runtime.call("GC", None, &gc(&valid))?;
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    assert_eq!(world.runtime.state(), ["foreign:eth0", "live", "live:eth0"]);

    let calls = world.recorder.calls()?;
    let mut deleted: Vec<(&str, &str, &str)> = calls[..calls.len() - 1]
        .iter()
        .map(|call| {
            assert_eq!((call.verb.as_str(), call.netns.as_str()), ("DEL", ""));
            (
                call.id.as_str(),
                call.ifname.as_str(),
                call.conf["name"].as_str().unwrap_or(""),
            )
        })
        .collect();
    deleted.sort_unstable();
    assert_eq!(
        deleted,
        [
            ("dead", "net1", "net"),
            ("live", "net1", "net"),
            ("stock", "eth0", "net")
        ]
    );
    let own = calls.last().expect("a call");
    assert_eq!((own.verb.as_str(), own.id.as_str()), ("GC", ""));
    assert_eq!(own.conf["cni.dev/valid-attachments"], valid);
    assert_eq!(
        own.conf["ipam"]["ranges"],
        json!([[{ "subnet": "10.244.7.0/24" }]])
    );
    Ok(())
}

#[test]
fn one_that_cannot_be_deleted_stops_no_other() -> Result<()> {
    let world = World::new("cnigc2")?;
    for id in ["a", "b", "c"] {
        world.ok_for("ADD", &sandbox(id, "eth0"), &conf("1.1.0"))?;
    }
    world.runtime.write(
        &format!("{STATE}/b:eth0"),
        &json!({ "name": "net", "type": "nosuch" }).to_string(),
    )?;
    let error = world.runtime.error("GC", None, &gc(&Value::Null))?;
    assert_eq!(error["code"], 100);
    assert_eq!(world.runtime.state(), ["b:eth0"]);
    assert_eq!(
        world.recorder.verbs()?.last().map(String::as_str),
        Some("GC")
    );
    Ok(())
}

#[test]
fn without_a_list_nothing_is_deleted() -> Result<()> {
    let world = World::new("cnigc3")?;
    world.ok("ADD", &conf("1.1.0"))?;
    let error = world.runtime.error("GC", None, &conf("1.1.0"))?;
    assert_eq!(
        (&error["code"], &error["msg"]),
        (&json!(7), &json!("missing cni.dev/valid-attachments"))
    );
    let error = world.runtime.error(
        "GC",
        None,
        &conf_with("1.0.0", &json!({ "cni.dev/valid-attachments": [] })),
    )?;
    assert_eq!(error["msg"], "config version \"1.0.0\" does not allow GC");
    assert_eq!(world.runtime.state(), ["pod1:eth0"]);
    Ok(())
}
