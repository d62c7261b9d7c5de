//! Tunnels over IPv6.

use anyhow::Result;

use super::{IPV6, Wire};

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    Wire::new("v6frames", &IPV6)?.expect_equal_kinds()
}

/// Flow labels are not copied out either.
#[test]
fn the_outer_traffic_class_equals_the_kernels_for_every_inner_one() -> Result<()> {
    for (class, outer, ours) in Wire::new("v6class", &IPV6)?.expect_equal_classes()? {
        assert_eq!(ours[14..18], [0x60, outer << 4, 0, 0], "inner {class:#x}");
    }
    Ok(())
}
