//! The result of an ADD, made explicit for CHECK. Pure.

use std::net::IpAddr;

use serde_json::Value;

/// Gives each route without a next hop the gateway of its family's first address, which is what the
/// specification lets it mean, and what the bridge plugin made of it. The same plugin's CHECK looks
/// for a route without any gateway.
pub(crate) fn with_explicit_gateways(mut result: Value) -> Value {
    let ips = result["ips"].as_array().cloned().unwrap_or_default();
    let gateways: Vec<IpAddr> = ips
        .iter()
        .filter_map(|ip| ip["gateway"].as_str()?.parse().ok())
        .collect();
    for route in result
        .get_mut("routes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(route) = route.as_object_mut() else {
            continue;
        };
        let is_v6 = route
            .get("dst")
            .and_then(Value::as_str)
            .is_some_and(|dst| dst.contains(':'));
        let gateway = gateways.iter().find(|gateway| gateway.is_ipv6() == is_v6);
        // A scope means that the route has no next hop on purpose.
        if let Some(gateway) =
            gateway.filter(|_| !route.contains_key("gw") && !route.contains_key("scope"))
        {
            route.insert("gw".to_owned(), gateway.to_string().into());
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_family_has_its_gateway_and_nothing_else_changes() {
        let result = json!({
            "ips": [
                { "address": "10.1.7.2/24", "gateway": "10.1.7.1", "interface": 2 },
                { "address": "fd00::2/64", "gateway": "fd00::1" }
            ],
            "routes": [
                { "dst": "10.1.0.0/16" },
                { "dst": "0.0.0.0/0", "gw": "10.1.7.254" },
                { "dst": "fd00::/48" },
                { "dst": "10.2.0.0/16", "scope": 253 }
            ],
            "dns": {}
        });
        let mut expected = result.clone();
        expected["routes"][0]["gw"] = json!("10.1.7.1");
        expected["routes"][2]["gw"] = json!("fd00::1");
        assert_eq!(with_explicit_gateways(result), expected);
    }

    #[test]
    fn what_is_no_result_stays_as_it_is() {
        for value in [
            json!({}),
            json!(null),
            json!([1]),
            json!({ "ips": 1, "routes": [{ "dst": 1 }, 2] }),
        ] {
            assert_eq!(with_explicit_gateways(value.clone()), value);
        }
    }
}
