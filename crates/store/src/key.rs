//! The last part of a lease's key: `10.5.34.0-24`, or `10.5.34.0-24&fd00:5:34::-64` with both
//! families. Flannel's parser requires an IPv4 part. With only IPv6 flannel writes `0.0.0.0-0`
//! there, which next to an IPv6 part means none.
//!
//! Flannel matches its pattern anywhere before the end of the key; here the text must match as a
//! whole, and host bits are refused, so that no two keys mean one subnet.

use std::{fmt, str::FromStr};

use flannel_host::{excerpt::excerpt, family::Family};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::config::Prefix;

/// The subnets of one lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    /// The IPv4 subnet, host bits clear.
    pub v4: Option<Ipv4Net>,
    /// The IPv6 subnet, host bits clear.
    pub v6: Option<Ipv6Net>,
}

impl LeaseKey {
    /// The subnet of one family.
    pub fn subnet(&self, family: Family) -> Option<IpNet> {
        match family {
            Family::V4 => self.v4.map(IpNet::V4),
            Family::V6 => self.v6.map(IpNet::V6),
        }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = self.v6.is_some().then(Ipv4Net::default);
        if let Some(v4) = self.v4.or(absent) {
            write!(f, "{}-{}", v4.addr(), v4.prefix_len())?;
        }
        if let Some(v6) = self.v6 {
            write!(f, "&{}-{}", v6.addr(), v6.prefix_len())?;
        }
        Ok(())
    }
}

/// A key that names no subnet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The form is wrong.
    #[error("{:?} is not of the form 10.5.34.0-24 or 10.5.34.0-24&fd00:5:34::-64", excerpt(.0))]
    Form(String),
    /// The address is not the first of the subnet.
    #[error("{:?} has host bits set; name the first address of the subnet", excerpt(.0))]
    HostBits(String),
}

impl FromStr for LeaseKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let form = || BadKey::Form(text.to_owned());
        let (v4_text, v6_text) = text
            .split_once('&')
            .map_or((text, None), |(v4, v6)| (v4, Some(v6)));
        let v4 = parse_subnet::<Ipv4Net>(v4_text).ok_or_else(form)?;
        let v6 = v6_text
            .map(|text| parse_subnet::<Ipv6Net>(text).ok_or_else(form))
            .transpose()?;
        if v4.masked() != v4 || v6.is_some_and(|v6| v6.masked() != v6) {
            return Err(BadKey::HostBits(text.to_owned()));
        }
        Ok(Self {
            v4: Some(v4).filter(|v4| v6.is_none() || *v4 != Ipv4Net::default()),
            v6,
        })
    }
}

/// `<address>-<length>`. A length of the full address width does not fit flannel's pattern.
fn parse_subnet<P: Prefix>(text: &str) -> Option<P> {
    let (address, length) = text.split_once('-')?;
    let is_lower = address
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b':' | b'.'));
    let is_decimal = length.bytes().all(|byte| byte.is_ascii_digit());
    // An IPv4-mapped tail would be legal IPv6 text, but flannel's pattern has no dots there.
    let dotted_v6 = P::BITS == 128 && address.contains('.');
    if !is_lower || !is_decimal || dotted_v6 {
        return None;
    }
    let length = length.parse().ok().filter(|length| *length < P::BITS)?;
    // The address's own parser: that of networks takes leading zeros.
    address.parse().ok().map(|address| P::new(address, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_written_as_flannel_writes_them() {
        for text in [
            "10.5.34.0-24",
            "10.12.13.0-24&fd00:12:13::-56",
            "0.0.0.0-0",
            "10.0.0.2-31",
            "10.0.0.0-8&::-0",
        ] {
            let key: LeaseKey = text.parse().expect(text);
            assert_eq!(key.to_string(), text);
        }
        for (text, families) in [
            ("10.5.34.0-24", (true, false)),
            ("10.5.34.0-24&fd00::-56", (true, true)),
            ("0.0.0.0-0&fd00::-56", (false, true)),
            ("0.0.0.0-0", (true, false)),
        ] {
            let key: LeaseKey = text.parse().expect(text);
            assert_eq!(
                (key.v4.is_some(), key.v6.is_some(), key.to_string().as_str()),
                (families.0, families.1, text)
            );
        }
        let spelt_out: LeaseKey = "10.12.13.0-24&fd00:12:13:0::-64".parse().expect("a key");
        assert_eq!(spelt_out.to_string(), "10.12.13.0-24&fd00:12:13::-64");
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        for text in [
            "",
            "10",
            "10.12.13.0",
            "10.12.13-24",
            "10.12.13.300-24",
            "10.12.13.0-24hi",
            "&2001::-56",
            "10.12.13.0-24&:12:13:-56",
            "10.12.13.0-24&20011::-56",
            "10.12.13.0-24&2001-56",
            "10.12.13.0-24&2001::",
            "10.12.13.0-24&2001::-56hi",
            "10.12.13.0-24&2001:DB8::-56",
            "10.12.13.0-24&::ffff:10.0.0.0-112",
            "10.12.13.0-24&",
            "&fd00::-64",
            "10.12.13.0-32",
            "10.12.13.0-24&2001::-128",
            "10.12.13.0-+24",
            "10.12.13.0--24",
            "x10.12.13.0-24",
            "a/10.12.13.0-24",
            "010.12.13.0-24",
        ] {
            assert_eq!(
                text.parse::<LeaseKey>(),
                Err(BadKey::Form(text.to_owned())),
                "{text}"
            );
        }
        for text in ["10.12.13.1-24", "10.12.13.0-24&2001:0:0:1::-56"] {
            assert_eq!(
                text.parse::<LeaseKey>(),
                Err(BadKey::HostBits(text.to_owned())),
                "{text}"
            );
        }
    }
}
