//! From a Node to what the lease set takes in. Pure.
//!
//! Each family is independent: a node with pod CIDRs of both families that publishes only IPv4 is
//! an IPv4 peer, and an annotation that cannot be read invalidates only its family. A family that
//! is off is ignored. An entry's age is its Node's, because the version of a Node changes with
//! every heartbeat.

use std::{net::IpAddr, str::FromStr};

use flannel_host::{excerpt::excerpt, family::Family};
use ipnet::{Ipv4Net, Ipv6Net};

use super::{
    prefix::AnnotationPrefix,
    record::{
        BACKEND_DATA, BACKEND_TYPE, BACKEND_V6_DATA, MANAGED, NodeRecord, OVERWRITE_IP,
        OVERWRITE_IPV6, PUBLIC_IP, PUBLIC_IPV6,
    },
};
use crate::{
    attrs::backend_type,
    config::{NetworkConfig, Prefix},
    {BadAttrs, BadLease, BadPodCidr, Entry, Lease, LeaseAttrs, LeaseKey, RawJson, Remarks},
};

/// The families of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    pub(super) fn of(config: &NetworkConfig) -> Self {
        Self {
            v4: config.ipv4.is_some(),
            v6: config.ipv6.is_some(),
        }
    }
}

/// The lease a Node publishes; `None` for nodes that take no part.
pub(super) fn entry_of(
    node: &NodeRecord,
    prefix: &AnnotationPrefix,
    families: Families,
) -> Option<Entry> {
    if node.annotation(prefix, MANAGED) != Some("true") {
        return None;
    }
    let lease = lease_of(&Annotations { node, prefix }, families);
    Some(Entry {
        name: node.name.as_str().into(),
        created: node.created,
        modified: node.created,
        lease,
    })
}

fn lease_of(annotations: &Annotations<'_>, families: Families) -> Result<Lease, BadLease> {
    let key = assigned(annotations.node, families).map_err(BadLease::PodCidr)?;
    if key == LeaseKey::default() {
        return Err(BadLease::PodCidr(BadPodCidr::Missing));
    }
    let mut lease = annotations.lease(key, families);
    let LeaseAttrs {
        public_ip,
        backend_data,
        public_ipv6,
        backend_v6_data,
        ..
    } = &lease.attrs;
    let v4 =
        public_ip.is_some() || backend_data.is_some() || lease.malformed_in(Family::V4).is_some();
    let v6 = public_ipv6.is_some()
        || backend_v6_data.is_some()
        || lease.malformed_in(Family::V6).is_some();
    // A family the node does not publish is off there. With neither, the lease set has something to
    // say.
    if v4 != v6 {
        lease.key = LeaseKey {
            v4: lease.key.v4.filter(|_| v4),
            v6: lease.key.v6.filter(|_| v6),
        };
    }
    Ok(lease)
}

/// The subnets assigned to a node, of the families that are on; empty while there are none.
pub(super) fn assigned(node: &NodeRecord, families: Families) -> Result<LeaseKey, BadPodCidr> {
    if node.pod_cidrs.len() > 2 {
        return Err(BadPodCidr::TooMany(node.pod_cidrs.len()));
    }
    let mut key = LeaseKey::default();
    for text in &node.pod_cidrs {
        match (subnet::<Ipv4Net>(text), subnet::<Ipv6Net>(text)) {
            (Some(v4), _) => key.v4 = key.v4.or(Some(v4).filter(|_| families.v4)),
            (_, Some(v6)) => key.v6 = key.v6.or(Some(v6).filter(|_| families.v6)),
            (None, None) => return Err(BadPodCidr::Malformed(text.clone())),
        }
    }
    Ok(key)
}

fn subnet<P: Prefix>(text: &str) -> Option<P> {
    text.parse::<P>().ok().map(P::masked)
}

/// One Node's annotations of one prefix.
pub(super) struct Annotations<'a> {
    pub(super) node: &'a NodeRecord,
    pub(super) prefix: &'a AnnotationPrefix,
}

impl Annotations<'_> {
    /// The value; `None` when absent or empty.
    pub(super) fn get(&self, suffix: &str) -> Option<&str> {
        self.node
            .annotation(self.prefix, suffix)
            .filter(|value| !value.is_empty())
    }

    /// An address; the unspecified one is none.
    pub(super) fn address<A: FromStr + Copy + Into<IpAddr>>(
        &self,
        key: &'static str,
    ) -> Result<Option<A>, BadAttrs> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let bad = || BadAttrs::Field {
            key,
            value: format!("{:?}", excerpt(text)),
            expected: "an IP address of its family",
        };
        let address: A = text.parse().ok().ok_or_else(bad)?;
        Ok(Some(address).filter(|address| !Into::<IpAddr>::into(*address).is_unspecified()))
    }

    /// Backend data; backends without any publish `null`.
    pub(super) fn data(&self, key: &'static str) -> Result<Option<RawJson>, BadAttrs> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let data = RawJson::parse(key, text)?;
        Ok(Some(data).filter(|data| data.text() != "null"))
    }

    fn lease(&self, key: LeaseKey, families: Families) -> Lease {
        let backend_type = backend_type(self.get(BACKEND_TYPE).unwrap_or_default().to_owned());
        let mut attrs = LeaseAttrs {
            backend_type,
            ..LeaseAttrs::default()
        };
        let mut remarks = Remarks {
            malformed: Vec::new(),
            overwritten: self.overwritten(),
        };
        if families.v4 {
            match self.group(PUBLIC_IP, BACKEND_DATA) {
                Ok(group) => (attrs.public_ip, attrs.backend_data) = group,
                Err(bad) => remarks.malformed.push((Family::V4, bad)),
            }
        }
        if families.v6 {
            match self.group(PUBLIC_IPV6, BACKEND_V6_DATA) {
                Ok(group) => (attrs.public_ipv6, attrs.backend_v6_data) = group,
                Err(bad) => remarks.malformed.push((Family::V6, bad)),
            }
        }
        Lease {
            key,
            attrs,
            remarks: remarks.kept(),
        }
    }

    /// The families whose public address an operator wrote.
    fn overwritten(&self) -> Vec<Family> {
        let written = |suffix| self.get(suffix).is_some();
        let families = [(Family::V4, OVERWRITE_IP), (Family::V6, OVERWRITE_IPV6)];
        families
            .into_iter()
            .filter(|(_, suffix)| written(suffix))
            .map(|(family, _)| family)
            .collect()
    }

    /// Returns the address and the backend data that a node publishes for one family.
    fn group<A: FromStr + Copy + Into<IpAddr>>(
        &self,
        address: &'static str,
        data: &'static str,
    ) -> Result<(Option<A>, Option<RawJson>), BadAttrs> {
        Ok((self.address(address)?, self.data(data)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Families = Families { v4: true, v6: true };
    const V4: Families = Families {
        v4: true,
        v6: false,
    };

    fn node(annotations: &str, cidrs: &str) -> NodeRecord {
        let text = format!(
            r#"{{"metadata":{{"name":"a","creationTimestamp":"1970-01-01T00:00:09Z","annotations":{{{annotations}}}}},"spec":{{"podCIDRs":[{cidrs}]}}}}"#
        );
        serde_json::from_str(&text.replace("p/", "flannel.alpha.coreos.com/")).expect("a node")
    }

    fn read(annotations: &str, cidrs: &str, families: Families) -> String {
        match entry_of(
            &node(annotations, cidrs),
            &AnnotationPrefix::default(),
            families,
        ) {
            None => "nothing".to_owned(),
            Some(entry) => match entry.lease {
                Ok(Lease {
                    key,
                    attrs,
                    remarks,
                }) => {
                    let malformed = remarks.unwrap_or_default().malformed;
                    malformed.iter().fold(
                        format!("{key} {}", attrs.to_json()),
                        |text, (family, bad)| format!("{text} {family}: {bad}"),
                    )
                }
                Err(bad) => bad.to_string(),
            },
        }
    }

    const V4_GROUP: &str = r#""p/kube-subnet-manager":"true","p/backend-type":"vxlan","p/public-ip":"192.0.2.1","p/backend-data":"{\"VtepMAC\":\"02:00:00:00:00:01\"}""#;
    const V6_GROUP: &str = r#""p/public-ipv6":"2001:db8::1","p/backend-v6-data":"{\"VtepMAC\":\"02:00:00:00:00:06\"}""#;
    const CIDRS: &str = r#""10.5.1.0/24","fd00:5:1::/64""#;
    const V4_JSON: &str = r#""PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VtepMAC":"02:00:00:00:00:01"}}"#;

    #[test]
    fn each_family_stands_for_itself() {
        assert_eq!(
            read(V4_GROUP, CIDRS, V4),
            format!("10.5.1.0-24 {{{V4_JSON}")
        );
        assert_eq!(
            read(V4_GROUP, CIDRS, BOTH),
            format!("10.5.1.0-24 {{{V4_JSON}"),
            "an IPv4-only peer"
        );
        let both = format!("{V4_GROUP},{V6_GROUP}");
        assert!(
            read(&both, CIDRS, BOTH).starts_with("10.5.1.0-24&fd00:5:1::-64 {"),
            "{}",
            read(&both, CIDRS, BOTH)
        );
        assert_eq!(
            read(&both, CIDRS, V4),
            format!("10.5.1.0-24 {{{V4_JSON}"),
            "IPv6 is off here"
        );
        let broken_v6 = both.replace("2001:db8::1", "nonsense");
        assert_eq!(
            read(&broken_v6, CIDRS, V4),
            format!("10.5.1.0-24 {{{V4_JSON}")
        );
        let broken = read(&broken_v6, CIDRS, BOTH);
        assert!(
            broken.starts_with(&format!(
                "10.5.1.0-24&fd00:5:1::-64 {{{V4_JSON} IPv6: public-ipv6 is"
            )),
            "{broken}"
        );
        let broken = read(&both.replace("192.0.2.1", "nonsense"), CIDRS, BOTH);
        assert!(
            broken.contains("\"PublicIPv6\":\"2001:db8::1\"")
                && broken.contains(" IPv4: public-ip is"),
            "{broken}"
        );
        assert_eq!(
            read(
                &format!("{V4_GROUP},\"p/public-ipv6\":\"x\""),
                r#""10.5.1.0/24""#,
                BOTH
            )
            .find("-64"),
            None
        );
    }

    #[test]
    fn an_overwritten_address_is_reported_with_its_family() {
        let overwritten = |more: &str| {
            let node = node(&format!("{V4_GROUP},{V6_GROUP}{more}"), CIDRS);
            let entry = entry_of(&node, &AnnotationPrefix::default(), BOTH).expect("an entry");
            entry
                .lease
                .expect("a lease")
                .remarks
                .unwrap_or_default()
                .overwritten
        };
        assert_eq!(overwritten(""), []);
        assert_eq!(
            overwritten(r#","p/public-ip-overwrite":"192.0.2.1""#),
            [Family::V4]
        );
        assert_eq!(
            overwritten(r#","p/public-ip-overwrite":"","p/public-ipv6-overwrite":"2001:db8::1""#),
            [Family::V6]
        );
    }

    #[test]
    fn a_node_without_ipv4_is_an_ipv6_peer() {
        let v6_only = r#""p/kube-subnet-manager":"true","p/backend-type":"host-gw","p/public-ip":"0.0.0.0","p/backend-data":"null","p/public-ipv6":"2001:db8::1","p/backend-v6-data":"null""#;
        let expected = r#"0.0.0.0-0&fd00:5:1::-64 {"PublicIP":"0.0.0.0","PublicIPv6":"2001:db8::1","BackendType":"host-gw"}"#;
        assert_eq!(read(v6_only, CIDRS, BOTH), expected);
        assert_eq!(
            read(
                v6_only,
                CIDRS,
                Families {
                    v4: false,
                    v6: true
                }
            ),
            expected
        );
    }

    #[test]
    fn only_nodes_that_say_so_take_part() {
        for annotations in [
            "",
            r#""p/kube-subnet-manager":"True""#,
            r#""other.com/kube-subnet-manager":"true""#,
        ] {
            assert_eq!(read(annotations, CIDRS, BOTH), "nothing");
        }
    }

    #[test]
    fn what_is_missing_or_malformed_is_reported() {
        for (annotations, cidrs, expected) in [
            (V4_GROUP.to_owned(), "", "no pod CIDR"),
            (
                V4_GROUP.to_owned(),
                r#""10.5.1.0""#,
                "its pod CIDR \"10.5.1.0\" is no network",
            ),
            (
                V4_GROUP.to_owned(),
                r#""10.5.1.0/24","fd00::/64","fd01::/64""#,
                "it has 3 pod CIDRs",
            ),
            (
                V4_GROUP.replace("192.0.2.1", "fd00::1"),
                CIDRS,
                "public-ip is \"fd00::1\"",
            ),
            (
                V4_GROUP.replace('{', "["),
                CIDRS,
                "backend-data is not JSON",
            ),
        ] {
            let read = read(&annotations, cidrs, BOTH);
            assert!(read.contains(expected), "{read}");
        }
        // Left to the lease set, which knows the backend.
        assert_eq!(
            read(
                r#""p/kube-subnet-manager":"true","p/backend-data":"null","p/public-ip":"0.0.0.0""#,
                CIDRS,
                V4
            ),
            r#"10.5.1.0-24 {"PublicIP":"0.0.0.0","PublicIPv6":null}"#
        );
    }

    #[test]
    fn the_age_is_the_nodes_and_not_that_of_its_last_heartbeat() {
        let entry =
            entry_of(&node(V4_GROUP, CIDRS), &AnnotationPrefix::default(), V4).expect("an entry");
        assert_eq!((entry.created, entry.modified), (9, 9));
    }
}
