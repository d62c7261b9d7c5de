//! Input of any bytes: a network configuration, subnet.env, and the result of an ADD.

use flannel_subnet_env::SubnetFile;
use serde_json::Value;

use crate::{fill, netconf::NetConf, prev_result::with_explicit_gateways};

const CONF: &str = r#"{"cniVersion":"1.0.0","name":"cbr0","type":"flannel","subnetFile":"/a","dataDir":"/d","subnetFileWaitSeconds":1,
"delegate":{"type":"bridge","mtu":1400,"isDefaultGateway":true},"ipam":{"type":"host-local","routes":[{"dst":"0.0.0.0/0"}]},
"runtimeConfig":{"portMappings":[{"hostPort":1}]},"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],
"prevResult":{"ips":[{"address":"10.1.7.2/24","gateway":"10.1.7.1"}],"routes":[{"dst":"10.1.0.0/16"},{"dst":"::/0","scope":1}]}}"#;
const FILE: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.7.1/24\n\
    FLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:7::1/64\nFLANNEL_MTU=1450\n\
    FLANNEL_IPMASQ=true\n";
const BARE: &str = r#"{"name":"cbr0","type":"flannel"}"#;

/// The two parts are separated by a zero.
#[test]
fn fuzz_cni_input() {
    let seeds = [
        format!("{CONF}\0{FILE}"),
        format!("{BARE}\0{FILE}"),
        format!("{BARE}\0FLANNEL_SUBNET=10.1.7.1/24\n"),
    ];
    flannel_fuzz::run(
        "cni_input",
        &seeds.each_ref().map(String::as_bytes),
        |input| {
            let end = input
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(input.len());
            let (conf, file) = (
                NetConf::parse(&input[..end]),
                input.get(end + 1..).unwrap_or_default(),
            );
            let file = SubnetFile::parse(&String::from_utf8_lossy(file));
            let Ok(conf) = conf else { return };
            if let Some(result) = conf.prev_result.clone() {
                let explicit = with_explicit_gateways(result);
                assert_eq!(
                    with_explicit_gateways(explicit.clone()),
                    explicit,
                    "gateways are added once"
                );
            }
            if let Ok(file) = file
                && let Ok(delegate) = fill::delegate(&conf, &file)
            {
                assert_eq!(delegate.get("name"), Some(&Value::from(conf.name)));
                assert!(
                    fill::plugin(&delegate).is_ok_and(|plugin| plugin.is_some()),
                    "{delegate:?}"
                );
            }
        },
    );
}
