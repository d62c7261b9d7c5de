//! The JSON schema of the document, for programs that read it, and descriptions of types of other
//! crates in it.

use serde_json::Value;

// A test of the agent compares these with its own names.
flannel_json_schema::names! {
    /// A mode of the datapath.
    pub(crate) ModeName: ["kernel", "encap", "fast"];
    /// A mode of a check of the guard.
    pub(crate) GuardModeName: ["off", "audit", "enforce"];
    /// The attach type of the programs.
    pub(crate) AttachName: ["tcx", "clsact"];
    /// The path of packets to a peer.
    pub(crate) WayName: [
        "direct",
        "tunnel",
        "kernel",
        "wireguard",
        "ipsec",
        "ipip",
        "udp",
        "extension",
        "cloud",
        "none",
    ];
}

/// As `flannel_host` writes it.
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "a description of another crate's type")]
pub(crate) struct ChangedSysctl {
    /// Its name, such as `net.netfilter.nf_conntrack_tcp_be_liberal`.
    name: String,
    /// The last value that was not the agent's.
    before: u32,
    /// The value the agent set.
    set: u32,
}

#[test]
fn a_sysctl_is_described_as_it_is_written() {
    let changed = serde_json::from_str::<flannel_host::sysctl_record::ChangedSysctl>(
        r#"{"name":"net.netfilter.nf_conntrack_tcp_be_liberal","before":0,"set":1}"#,
    );
    let written = serde_json::to_value(changed.expect("a sysctl")).expect("JSON");
    let schema = serde_json::to_value(schemars::schema_for!(ChangedSysctl)).expect("JSON");
    let names = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&written), names(&schema["properties"]));
}
