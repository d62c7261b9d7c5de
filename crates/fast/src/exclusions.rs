//! The pods that stay out of mode `fast` by request. Pure.
//!
//! The operator names addresses (`--fast-exclude`), the cluster pods (an annotation,
//! [`flannel_store::OptOuts`]); both are one set here. All addresses of the pod's end of the veth
//! count. A pod whose addresses are not known may be one of the excluded pods, so it stays out too:
//! the kernel's path is always correct.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;

use super::pods::PodReason;

/// The addresses and pods that stay out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    by_option: Vec<IpNet>,
    /// Names of pods, by their addresses.
    by_annotation: BTreeMap<IpAddr, String>,
}

impl Exclusions {
    /// The operator's.
    pub const fn new(by_option: Vec<IpNet>) -> Self {
        Self {
            by_option,
            by_annotation: BTreeMap::new(),
        }
    }

    /// The cluster's are these now. Returns true if they were others.
    pub(super) fn annotate(&mut self, pods: BTreeMap<IpAddr, String>) -> bool {
        std::mem::replace(&mut self.by_annotation, pods) != self.by_annotation
    }

    /// Returns true if nothing stays out, so that addresses need not be known.
    pub(super) fn is_empty(&self) -> bool {
        self.by_option.is_empty() && self.by_annotation.is_empty()
    }

    /// Returns the reason why the pod with these addresses stays out, if it does. If anything is
    /// excluded, a pod without known addresses stays out too.
    pub(super) fn reason(&self, addresses: &[IpAddr]) -> Option<PodReason> {
        if self.is_empty() {
            return None;
        }
        if addresses.is_empty() {
            return Some(PodReason::NoAddress);
        }
        if let Some(pod) = addresses
            .iter()
            .find_map(|address| self.by_annotation.get(address))
        {
            return Some(PodReason::Annotated(pod.clone()));
        }
        let prefix = |address: &IpAddr| {
            self.by_option
                .iter()
                .find(|prefix| prefix.contains(address))
        };
        addresses
            .iter()
            .find_map(prefix)
            .map(|prefix| PodReason::Excluded(*prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addresses: &[&str]) -> Vec<IpAddr> {
        addresses
            .iter()
            .map(|address| address.parse().expect("an address"))
            .collect()
    }

    fn annotated(address: &str) -> BTreeMap<IpAddr, String> {
        BTreeMap::from([(
            address.parse().expect("an address"),
            "default/db".to_owned(),
        )])
    }

    fn both() -> Exclusions {
        let mut both = Exclusions::new(vec!["10.244.1.16/28".parse().expect("a prefix")]);
        assert!(both.annotate(annotated("fd00:1::7")) && !both.annotate(annotated("fd00:1::7")));
        both
    }

    #[test]
    fn one_address_of_a_pod_is_enough() {
        let reason = |addresses: &[&str]| both().reason(&at(addresses));
        assert_eq!(reason(&["10.244.1.9", "fd00:1::8"]), None);
        let prefix = "10.244.1.16/28".parse().expect("a prefix");
        assert_eq!(
            reason(&["fd00:1::8", "10.244.1.31"]),
            Some(PodReason::Excluded(prefix))
        );
        assert_eq!(
            reason(&["10.244.1.31", "fd00:1::7"]),
            Some(PodReason::Annotated("default/db".to_owned()))
        );
    }

    #[test]
    fn a_pod_that_may_be_one_of_them_stays_out_and_none_where_there_are_none() {
        assert_eq!(both().reason(&[]), Some(PodReason::NoAddress));
        assert_eq!(Exclusions::default().reason(&[]), None);
    }

    #[test]
    fn an_annotation_that_is_gone_counts_no_more() {
        let mut some = Exclusions::default();
        assert!(some.annotate(annotated("10.244.1.7")) && !some.is_empty());
        assert!(some.annotate(BTreeMap::new()) && some.is_empty());
    }
}
