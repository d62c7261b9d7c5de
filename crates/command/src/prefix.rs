//! Addresses by which subcommands choose.

use std::net::IpAddr;

use ipnet::IpNet;

/// Parses a prefix, or an address, which stands for the prefix of full length.
pub fn parse(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().ok().map(IpNet::from);
    let prefix = address.or_else(|| text.parse().ok());
    prefix.ok_or_else(|| "neither an address nor a prefix such as 10.244.1.0/24".to_owned())
}
