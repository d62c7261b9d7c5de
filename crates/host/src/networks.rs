//! Arithmetic of networks of either family.

use ipnet::IpNet;

/// Returns true if the networks have an address in common.
pub fn overlap(one: impl Into<IpNet>, other: impl Into<IpNet>) -> bool {
    let (one, other) = (one.into(), other.into());
    one.contains(&other) || other.contains(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_overlap_if_one_is_in_the_other() {
        let network = |text: &str| text.parse::<IpNet>().expect("a network");
        let overlap = |one: &str, other: &str| overlap(network(one), network(other));
        assert!(overlap("10.244.0.0/16", "10.0.0.0/8") && overlap("10.0.0.0/8", "10.244.0.0/16"));
        assert!(!overlap("10.244.0.0/16", "10.55.0.0/16") && !overlap("10.244.0.0/16", "fd00::/8"));
    }
}
