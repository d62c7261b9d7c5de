//! Errors that the runtime receives for invalid calls and configurations; and VERSION.

use anyhow::Result;
use flannel_tests::{
    Lab, Output,
    cni::{Runtime, Sandbox, V4},
};
use serde_json::{Value, json};

use super::{World, conf_with, sandbox};

const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

fn expect_versions(output: &Output) {
    assert_eq!((output.code, output.stdout.as_str()), (0, ""));
    assert!(
        output
            .stderr
            .contains("CNI protocol versions supported: 0.1.0, 0.2.0"),
        "{}",
        output.stderr
    );
}

fn expect_error(output: &Output, code: u32, msg: &str) -> Result<()> {
    let error: Value = serde_json::from_str(&output.stdout)?;
    assert_eq!(
        (output.code, &error["code"], &error["msg"]),
        (1, &json!(code), &json!(msg))
    );
    Ok(())
}

#[test]
fn an_invalid_call_or_configuration_is_reported_by_code() -> Result<()> {
    let world = World::new("cnierr")?;
    let good = world.sandbox.clone();
    let with = |keys: Value| conf_with("1.0.0", &keys);
    for (verb, sandbox, conf, code, msg) in [
        ("", Some(&good), with(json!({})), None, ""),
        (
            "UPDATE",
            Some(&good),
            with(json!({})),
            Some(4),
            "unknown CNI_COMMAND: UPDATE",
        ),
        (
            "ADD",
            None,
            with(json!({})),
            Some(4),
            "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing",
        ),
        (
            "DEL",
            Some(&sandbox("../x", "eth0")),
            with(json!({})),
            Some(4),
            "invalid CNI_CONTAINERID \"../x\"",
        ),
        (
            "ADD",
            Some(&good),
            with(json!({ "name": "" })),
            Some(7),
            "missing network name",
        ),
        (
            "ADD",
            Some(&good),
            with(json!({ "cniVersion": "9.0.0" })),
            Some(1),
            "incompatible CNI versions",
        ),
        (
            "ADD",
            Some(&good),
            with(json!({ "delegate": { "name": "x" } })),
            Some(2),
            "unsupported field in the network configuration: delegate.name = \"x\"; the network's \
             name is used",
        ),
    ] {
        let output = world.runtime.call(verb, sandbox, &conf)?;
        match code {
            None => expect_versions(&output),
            Some(code) => expect_error(&output, code, msg)?,
        }
    }
    assert_eq!(world.recorder.verbs()?, [""; 0]);
    Ok(())
}

#[test]
fn a_subnet_env_without_a_value_is_reported_by_line() -> Result<()> {
    let lab = Lab::new("cnienv")?;
    let runtime = Runtime::new(&lab, "n", Some(&format!("{V4}FLANNEL_SUBNET\n")))?;
    let conf = json!({
        "cniVersion": "1.0.0",
        "name": "net",
        "type": "flannel",
        "subnetFileWaitSeconds": 0,
    });
    let error = runtime.error("ADD", Some(&sandbox("pod1", "eth0")), &conf)?;
    let msg = "/run/flannel/subnet.env has FLANNEL_SUBNET without a value in line 5";
    assert_eq!(
        error,
        json!({ "cniVersion": "1.0.0", "code": 6, "msg": msg })
    );
    Ok(())
}

#[test]
fn version_lists_what_stock_flannel_lists() -> Result<()> {
    let lab = Lab::new("cniver")?;
    let runtime = Runtime::new(&lab, "n", None)?;
    let none: Option<&Sandbox> = None;
    for (input, version) in [
        (json!({ "cniVersion": "0.3.1" }), "0.3.1"),
        (json!({}), "1.1.0"),
    ] {
        let output = runtime.call("VERSION", none, &input)?;
        let answer: Value = serde_json::from_str(&output.stdout)?;
        assert_eq!(
            (output.code, answer),
            (
                0,
                json!({ "cniVersion": version, "supportedVersions": VERSIONS })
            )
        );
    }
    Ok(())
}
