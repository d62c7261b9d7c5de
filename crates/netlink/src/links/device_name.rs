//! Names of devices for messages, by their index.

use std::fmt;

use nix::net::if_::if_indextoname;

/// Displays the name of a device of the thread's network namespace, as it is at that moment. The
/// number of a device that is gone is all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceName(pub u32);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match device_name(self.0) {
            Some(name) => f.write_str(&name),
            None => write!(f, "a device that is gone (index {})", self.0),
        }
    }
}

/// Returns the name of a device of the thread's network namespace; `None` if the device does not
/// exist.
pub fn device_name(ifindex: u32) -> Option<String> {
    let name = if_indextoname(ifindex).ok()?.into_string().ok()?;
    // nix 0.31 takes the null pointer of a failure for an empty name.
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_and_one_that_is_gone_has_a_number() {
        assert_eq!(
            (DeviceName(1).to_string(), device_name(1).as_deref()),
            ("lo".to_owned(), Some("lo"))
        );
        assert_eq!(device_name(u32::MAX >> 1), None);
        assert_eq!(
            DeviceName(u32::MAX >> 1).to_string(),
            "a device that is gone (index 2147483647)"
        );
    }
}
