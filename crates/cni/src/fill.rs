//! The delegate's configuration: what the network configuration gives, and what subnet.env and
//! defaults add. Pure.

use flannel_subnet_env::{Networks, SubnetFile};
use serde_json::{Value, json};

use crate::{
    error::Error,
    netconf::{NetConf, Object},
};

/// The plugin that is called if none is named.
const BRIDGE: &str = "bridge";
/// The address management that is used if none is named.
const HOST_LOCAL: &str = "host-local";

/// Returns the delegate's configuration, without the values of a single call.
pub(crate) fn delegate(conf: &NetConf, file: &SubnetFile) -> Result<Object, Error> {
    let mut delegate = conf.delegate.clone();
    refuse(&delegate, "name", "the network's name is used")?;
    refuse(&delegate, "ipam", "put it next to \"delegate\"")?;
    let plugin = plugin(&delegate)?.unwrap_or(BRIDGE).to_owned();

    delegate.insert("name".to_owned(), conf.name.clone().into());
    default(&mut delegate, "type", plugin.as_str());
    // One of us masquerades.
    default(&mut delegate, "ipMasq", !file.ip_masq);
    default(&mut delegate, "mtu", file.mtu);
    if plugin == BRIDGE {
        default(&mut delegate, "isGateway", true);
    }
    if !conf.cni_version.is_empty() {
        delegate.insert("cniVersion".to_owned(), conf.cni_version.clone().into());
    }
    if let Some(runtime_config) = &conf.runtime_config {
        delegate.insert("runtimeConfig".to_owned(), runtime_config.clone().into());
    }
    delegate.insert("ipam".to_owned(), ipam(&conf.ipam, file)?.into());
    Ok(delegate)
}

/// The plugin a delegate's configuration names.
pub(crate) fn plugin(delegate: &Object) -> Result<Option<&str>, Error> {
    match delegate.get("type") {
        None => Ok(None),
        Some(Value::String(name)) if !name.is_empty() && !name.contains('/') && name != ".." => {
            Ok(Some(name))
        }
        Some(other) => Err(Error::Config(format!(
            "delegate.type is no name of a plugin: {other}"
        ))),
    }
}

/// Values in place of those of a subnet.env that is gone, for DEL: host-local wants ranges in its
/// configuration, and finds an address by the container. The network is that of documentation ([RFC
/// 5737](https://www.rfc-editor.org/rfc/rfc5737)).
pub(crate) fn stand_in() -> SubnetFile {
    let subnet = "192.0.2.0/24".parse().ok();
    let v4 = Networks {
        networks: subnet.into_iter().collect(),
        subnet,
    };
    SubnetFile {
        v4,
        v6: Networks {
            networks: Vec::new(),
            subnet: None,
        },
        mtu: 1280,
        ip_masq: true,
    }
}

/// The subnets addresses are given from, as `ipam` has them.
pub(crate) fn ranges(file: &SubnetFile) -> Value {
    let v4 = file
        .v4
        .subnet
        .iter()
        .map(|subnet| subnet.trunc().to_string());
    let v6 = file
        .v6
        .subnet
        .iter()
        .map(|subnet| subnet.trunc().to_string());
    v4.chain(v6)
        .map(|subnet| json!([{ "subnet": subnet }]))
        .collect()
}

fn ipam(given: &Object, file: &SubnetFile) -> Result<Object, Error> {
    let mut ipam = given.clone();
    default(&mut ipam, "type", HOST_LOCAL);
    ipam.insert("ranges".to_owned(), ranges(file));
    let mut routes = match ipam.remove("routes") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(routes)) => routes,
        Some(other) => return Err(Error::Config(format!("ipam.routes is no list: {other}"))),
    };
    let v4 = file
        .v4
        .networks
        .iter()
        .map(|network| network.trunc().to_string());
    let v6 = file
        .v6
        .networks
        .iter()
        .map(|network| network.trunc().to_string());
    routes.extend(v4.chain(v6).map(|network| json!({ "dst": network })));
    ipam.insert("routes".to_owned(), routes.into());
    Ok(ipam)
}

fn refuse(delegate: &Object, key: &'static str, advice: &'static str) -> Result<(), Error> {
    match delegate.get(key) {
        None => Ok(()),
        Some(value) => Err(Error::Unsupported {
            key,
            value: value.clone(),
            advice,
        }),
    }
}

fn default(object: &mut Object, key: &str, value: impl Into<Value>) {
    if !object.contains_key(key) {
        object.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V4: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\n\
        FLANNEL_IPMASQ=true\n";
    const V6: &str = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00:0:0:5::1/64\n";

    fn filled(conf: &Value, file: &str) -> Result<Value, Error> {
        let conf = NetConf::parse(conf.to_string().as_bytes())?;
        delegate(&conf, &SubnetFile::parse(file).expect("a good file")).map(Value::from)
    }

    #[test]
    fn the_least_is_a_bridge_with_host_local_addresses() {
        let expected = json!({
            "name": "cni-flannel",
            "type": "bridge",
            "mtu": 1472,
            "ipMasq": false,
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": "10.1.17.0/24" }]],
                "routes": [{ "dst": "10.1.0.0/16" }]
            }
        });
        assert_eq!(
            filled(&json!({ "name": "cni-flannel", "type": "flannel" }), V4).expect("filled"),
            expected
        );
    }

    #[test]
    fn both_families_and_several_networks_are_all_there() {
        let file = V4.replace("NETWORK=10.1.0.0/16", "NETWORK=10.1.0.0/16,10.2.0.9/16") + V6;
        let conf = json!({
            "name": "n",
            "ipam": { "type": "host-local", "routes": [{ "dst": "0.0.0.0/0" }] },
        });
        let ipam = filled(&conf, &file).expect("filled")["ipam"].clone();
        assert_eq!(
            ipam["ranges"],
            json!([[{ "subnet": "10.1.17.0/24" }], [{ "subnet": "fc00:0:0:5::/64" }]])
        );
        let routes = ["0.0.0.0/0", "10.1.0.0/16", "10.2.0.0/16", "fc00::/48"]
            .map(|dst| json!({ "dst": dst }));
        assert_eq!(ipam["routes"], json!(routes));
    }

    #[test]
    fn what_is_given_stays() {
        let conf = json!({
            "name": "n",
            "cniVersion": "0.3.1",
            "runtimeConfig": { "mac": "x" },
            "ipam": { "type": "static", "x": 1, "ranges": 1 },
            "delegate": {
                "type": "bridge",
                "mtu": 1400,
                "ipMasq": true,
                "isGateway": false,
                "hairpinMode": true,
                "cniVersion": "0.1.0"
            }
        });
        let expected = json!({
            "type": "bridge",
            "mtu": 1400,
            "ipMasq": true,
            "isGateway": false,
            "hairpinMode": true,
            "cniVersion": "0.3.1",
            "name": "n", "runtimeConfig": { "mac": "x" },
            "ipam": {
                "type": "static",
                "x": 1,
                "ranges": [[{ "subnet": "10.1.17.0/24" }]],
                "routes": [{ "dst": "10.1.0.0/16" }]
            }
        });
        assert_eq!(filled(&conf, V4).expect("filled"), expected);
    }

    #[test]
    fn masquerade_is_done_once_and_a_gateway_is_a_bridges() {
        let file = V4.replace("true", "false");
        let delegate = filled(
            &json!({ "name": "n", "delegate": { "type": "ptp" } }),
            &file,
        )
        .expect("filled");
        assert_eq!(
            (&delegate["ipMasq"], delegate.get("isGateway")),
            (&json!(true), None)
        );
    }

    #[test]
    fn what_is_ours_to_set_is_refused() {
        for (delegate, code, words) in [
            (json!({ "name": "x" }), 2, "delegate.name = \"x\""),
            (json!({ "ipam": {} }), 2, "delegate.ipam = {}"),
            (
                json!({ "type": 5 }),
                7,
                "delegate.type is no name of a plugin: 5",
            ),
            (
                json!({ "type": "../sh" }),
                7,
                "delegate.type is no name of a plugin: \"../sh\"",
            ),
        ] {
            let error = filled(&json!({ "name": "n", "delegate": delegate }), V4).expect_err(words);
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let error =
            filled(&json!({ "name": "n", "ipam": { "routes": {} } }), V4).expect_err("routes");
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (7, "ipam.routes is no list: {}")
        );
    }

    /// Any JSON, as deep as a configuration is.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from)
        ];
        let key = prop_oneof!["type", "name", "ipam", "routes", "mtu", ".{0,4}"];
        leaf.prop_recursive(3, 16, 4, move |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let object = prop::collection::vec((key.clone(), inner), 0..4);
            prop_oneof![
                list,
                object.prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
            ]
        })
    }

    proptest! {
        #[test]
        fn no_configuration_makes_it_panic(
            delegate in any_json(),
            ipam in any_json(),
            runtime in any_json(),
        ) {
            let conf = json!({
                "name": "n",
                "delegate": delegate,
                "ipam": ipam,
                "runtimeConfig": runtime,
            });
            if let Ok(filled) = filled(&conf, V4) {
                prop_assert_eq!(&filled["name"], "n");
                prop_assert_eq!(
                    &filled["ipam"]["ranges"],
                    &json!([[{ "subnet": "10.1.17.0/24" }]])
                );
            }
        }
    }
}
