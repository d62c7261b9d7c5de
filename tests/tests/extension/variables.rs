//! The values that commands get, of both families.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{self, LEASES, topology::Stack},
    eventually,
};
use serde_json::json;

use super::{added, runs, script};

const ALL: &str = "$SUBNET $IPV6SUBNET $PUBLIC_IP $PUBLIC_IPV6 $NETWORK $IPV6NETWORK";

#[test]
fn both_families_of_a_node_are_one_peer_with_all_its_values() -> Result<()> {
    let backend = json!({
        "Type": "extension",
        "PreStartupCommand": "printenv PUBLIC_IPV6",
        "PostStartupCommand": script(&format!("echo start {ALL} > /run/flannel/runs")),
        "SubnetAddCommand": script(&format!("read data; echo add {ALL} $data >> \
            /run/flannel/runs")),
        "SubnetRemoveCommand": script(&format!("read data; echo remove {ALL} $data >> \
            /run/flannel/runs")),
    });
    let pair = TwoNodes::with(
        "ext-dual",
        Stack::Dual,
        &cluster::config(Stack::Dual, &backend.to_string()),
    )?;
    let key = format!("{LEASES}10.244.9.0-24&fd00:10:244:9::-64");
    let value = r#"{"PublicIP":"192.168.1.9","PublicIPv6":"2001:db8:1::9","BackendType":"extension","BackendData":"four","BackendV6Data":"six"}"#;
    pair.etcd.put(&key, value, Some(86_400))?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let status = added(&agent, 1)?;
    let own = |key: &str| status["lease"][key].as_str().unwrap_or_default().to_owned();
    let networks = "10.244.0.0/16 fd00:10:244::/48";
    let start = format!(
        "start {} {} 192.168.1.11 2001:db8:1::11 {networks}",
        own("subnet"),
        own("ipv6_subnet")
    );
    let peer =
        format!("10.244.9.0/24 fd00:10:244:9::/64 192.168.1.9 2001:db8:1::9 {networks} four");
    assert_eq!(runs(&pair.a)?, [start.clone(), format!("add {peer}")]);
    // What the command printed is published for both families.
    let leases = pair.etcd.list(LEASES)?;
    let published = r#""BackendData":"2001:db8:1::11","BackendV6Data":"2001:db8:1::11""#;
    ensure!(
        leases.iter().any(|(_, value)| value.contains(published)),
        "{published} in {leases:?}"
    );

    pair.etcd.delete(&key)?;
    eventually(
        "the command for a peer that is gone",
        Duration::from_secs(10),
        || {
            let last = runs(&pair.a)?.split_off(2);
            ensure!(last == [format!("remove {peer}")], "{last:?}");
            Ok(())
        },
    )
}
