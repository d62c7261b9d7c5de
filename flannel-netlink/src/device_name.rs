//! Names of devices for messages, by their index.

use std::fmt;

use nix::net::if_::if_indextoname;

/// Displays the name of a device of the thread's network namespace, as it is at that moment. The
/// number of a device that is gone is all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceName(pub u32);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match if_indextoname(self.0) {
            Ok(name) => f.write_str(&name.to_string_lossy()),
            Err(_) => write!(f, "a device that is gone (index {})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_and_one_that_is_gone_has_a_number() {
        assert_eq!(DeviceName(1).to_string(), "lo");
        assert_eq!(DeviceName(u32::MAX >> 1).to_string(), "a device that is gone (index 2147483647)");
    }
}
