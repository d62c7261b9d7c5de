//! The names of capabilities. Pure.

use rustix::thread::CapabilitySet;

/// `CAP_NET_ADMIN` and the like; what has no name here by its number.
pub(super) fn names(set: CapabilitySet) -> Vec<String> {
    let number = |bit: &u32| set.bits() >> bit & 1 == 1;
    (0..u64::BITS).filter(number).map(name).collect()
}

fn name(bit: u32) -> String {
    let named = CapabilitySet::from_bits_retain(1 << bit)
        .iter_names()
        .next();
    named.map_or_else(
        || format!("capability {bit}"),
        |(name, _)| format!("CAP_{name}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_the_names_of_the_manual() {
        let set = CapabilitySet::NET_ADMIN
            | CapabilitySet::BPF
            | CapabilitySet::from_bits_retain(1 << 63);
        assert_eq!(names(set), ["CAP_NET_ADMIN", "CAP_BPF", "capability 63"]);
    }
}
