//! The pod network of one address family and how it is cut into node subnets.
//!
//! Written once for both families; a family contributes its keys and limits ([`Limits`]).

use ipnet::{Ipv4Net, Ipv6Net};

use super::{
    error::{ConfigMistake, Result},
    findings::Findings,
    gojson::Fields,
    prefix::Prefix,
};

/// The party that cuts the pod network into the subnets of the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cutting {
    /// The agents, according to the `Subnet*` keys.
    Ours,
    /// An external allocator: the `Subnet*` keys are ignored, and any network is accepted.
    Assigned,
}

/// A pod network, and the node subnets that may be leased from it.
///
/// `subnet_min` and `subnet_max` are the first addresses of the first and the last subnet: aligned
/// to `subnet_len`, inside `network`, and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyConfig<P: Prefix> {
    /// The whole pod network, host bits cleared.
    pub network: P,
    /// The prefix length of a node's subnet.
    pub subnet_len: u8,
    /// The first subnet that may be leased.
    pub subnet_min: P::Address,
    /// The last subnet that may be leased.
    pub subnet_max: P::Address,
}

/// The keys and limits that the validation of a family needs in addition to [`Prefix`].
pub(super) trait Limits: Prefix {
    /// The key that turns the family on and off.
    const SWITCH: &str;
    const NETWORK: &str;
    const SUBNET_LEN: &str;
    const SUBNET_MIN: &str;
    const SUBNET_MAX: &str;
    /// The longest network that is cut without a `SubnetLen`: four subnets of a useful size still
    /// fit.
    const LONGEST_NETWORK: u8;
    /// The subnet length taken where the network leaves room for it.
    const USUAL_SUBNET_LEN: u8;
    const EXAMPLE: &str;
    const EXPECTED: &str;

    /// Every key of the family but its switch.
    fn keys() -> [&'static str; 4] {
        [
            Self::NETWORK,
            Self::SUBNET_LEN,
            Self::SUBNET_MIN,
            Self::SUBNET_MAX,
        ]
    }
}

impl Limits for Ipv4Net {
    const SWITCH: &str = "EnableIPv4";
    const NETWORK: &str = "Network";
    const SUBNET_LEN: &str = "SubnetLen";
    const SUBNET_MIN: &str = "SubnetMin";
    const SUBNET_MAX: &str = "SubnetMax";
    const LONGEST_NETWORK: u8 = 28;
    const USUAL_SUBNET_LEN: u8 = 24;
    const EXAMPLE: &str = "10.244.0.0/16";
    const EXPECTED: &str = "a CIDR such as 10.244.0.0/16";
}

impl Limits for Ipv6Net {
    const SWITCH: &str = "EnableIPv6";
    const NETWORK: &str = "IPv6Network";
    const SUBNET_LEN: &str = "IPv6SubnetLen";
    const SUBNET_MIN: &str = "IPv6SubnetMin";
    const SUBNET_MAX: &str = "IPv6SubnetMax";
    const LONGEST_NETWORK: u8 = 124;
    const USUAL_SUBNET_LEN: u8 = 64;
    const EXAMPLE: &str = "fd00:10:244::/48";
    const EXPECTED: &str = "a CIDR such as fd00:10:244::/48";
}

impl<P: Prefix> FamilyConfig<P> {
    /// Returns true if a node of this configuration may hold `subnet`: exactly `subnet_len` long,
    /// host bits clear, within `subnet_min..=subnet_max`.
    pub fn allows(&self, subnet: P) -> bool {
        let range = P::to_bits(self.subnet_min)..=P::to_bits(self.subnet_max);
        subnet.length() == self.subnet_len
            && subnet == subnet.masked()
            && range.contains(&subnet.first())
    }

    /// Every subnet that may be leased, in order.
    pub fn subnets(&self) -> impl Iterator<Item = P> + use<P> {
        let (last, len) = (P::to_bits(self.subnet_max), self.subnet_len);
        let after = move |at: &u128| at.checked_add(P::size(len)).filter(|next| *next <= last);
        std::iter::successors(Some(P::to_bits(self.subnet_min)), after)
            .map(move |at| P::from_bits(at, len))
    }
}

impl<P: Prefix> FamilyConfig<P> {
    /// Returns a network that an external allocator cuts into subnets of this length. A
    /// `subnet_len` below the network's length is raised to it.
    #[must_use]
    pub fn assigned(network: P, subnet_len: u8) -> Self {
        let subnet_len = subnet_len.max(network.length());
        let last = P::from_bits(network.last(), subnet_len).address();
        Self {
            network,
            subnet_len,
            subnet_min: P::to_address(network.first()),
            subnet_max: last,
        }
    }
}

#[expect(
    private_bounds,
    reason = "only the two families of this module can be parsed"
)]
impl<P: Limits> FamilyConfig<P> {
    /// Reads the keys of the family and applies flannel's defaults and checks. `None` only after a
    /// mistake.
    pub(super) fn read(fields: &Fields, cutting: Cutting, findings: &mut Findings) -> Option<Self> {
        let network = findings.keep(parse_network::<P>(fields));
        match cutting {
            // The length of a subnet is the usual one until an assigned subnet shows it.
            Cutting::Assigned => Some(Self::assigned(network?, P::USUAL_SUBNET_LEN)),
            Cutting::Ours => Self::cut(fields, network, findings),
        }
    }

    /// Each key is read whatever is wrong with the others, and compared with what there is of them.
    fn cut(fields: &Fields, network: Option<P>, findings: &mut Findings) -> Option<Self> {
        let len = findings.keep(fields.expect::<u64>(P::SUBNET_LEN, "a prefix length"));
        let min = findings.keep(parse_bound::<P>(fields, P::SUBNET_MIN));
        let max = findings.keep(parse_bound::<P>(fields, P::SUBNET_MAX));
        let network = network?;
        let subnet_len = len.and_then(|len| findings.keep(check_subnet_len(len, network)));
        let mut check = |key, bound: Option<P::Address>| {
            bound.is_none_or(|bound| {
                findings
                    .keep(check_bound(key, bound, network, subnet_len))
                    .is_some()
            })
        };
        let both = [check(P::SUBNET_MIN, min?), check(P::SUBNET_MAX, max?)];
        let (subnet_len, [true, true]) = (subnet_len?, both) else {
            return None;
        };
        let step = P::size(subnet_len);
        let subnet_min = min?.unwrap_or_else(|| P::to_address(network.first() + step));
        let subnet_max = max?.unwrap_or_else(|| P::to_address(network.last() - (step - 1)));
        if P::to_bits(subnet_min) > P::to_bits(subnet_max) {
            let (min_key, max_key) = (P::SUBNET_MIN, P::SUBNET_MAX);
            let (min, max) = (subnet_min.into(), subnet_max.into());
            findings.mistake(ConfigMistake::MinAboveMax {
                min_key,
                min,
                max_key,
                max,
            });
            return None;
        }
        Some(Self {
            network,
            subnet_len,
            subnet_min,
            subnet_max,
        })
    }
}

fn parse_network<P: Limits>(fields: &Fields) -> Result<P> {
    let missing = || ConfigMistake::NoNetwork {
        key: P::NETWORK,
        example: P::EXAMPLE,
        switch: P::SWITCH,
    };
    let Some(raw) = fields.raw(P::NETWORK) else {
        return Err(missing());
    };
    let bad = || fields.bad_value(P::NETWORK, P::EXPECTED);
    let text: String = serde_json::from_str(raw.get()).map_err(|_not_a_string| bad())?;
    let network = parse_cidr::<P>(&text).ok_or_else(bad)?;
    if network.length() == 0 && network.first() == 0 {
        Err(missing())
    } else {
        Ok(network)
    }
}

/// The address's own parser, because that of networks takes leading zeros.
fn parse_cidr<P: Prefix>(text: &str) -> Option<P> {
    let (address, length) = text.split_once('/')?;
    let is_decimal = length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length
        .parse()
        .ok()
        .filter(|length| *length <= P::BITS && is_decimal)?;
    address
        .parse()
        .ok()
        .map(|address| P::new(address, length).masked())
}

/// `SubnetLen`, or its default where it is unset.
fn check_subnet_len<P: Limits>(len: Option<u64>, network: P) -> Result<u8> {
    // Two bits: at least four subnets must fit.
    let shortest = network.length() + 2;
    let longest = P::BITS - 2;
    match len {
        None | Some(0) if network.length() > P::LONGEST_NETWORK => {
            Err(ConfigMistake::NetworkTooSmall {
                key: P::NETWORK,
                network: network.into(),
                longest: P::LONGEST_NETWORK,
            })
        }
        None | Some(0) => Ok(shortest.max(P::USUAL_SUBNET_LEN)),
        Some(len) => match u8::try_from(len)
            .ok()
            .filter(|len| (shortest..=longest).contains(len))
        {
            Some(len) => Ok(len),
            None => Err(ConfigMistake::SubnetLen {
                key: P::SUBNET_LEN,
                len,
                network: network.into(),
                shortest,
                longest,
            }),
        },
    }
}

/// `SubnetMin` or `SubnetMax`; `None` when unset, which the unspecified address means as well.
fn parse_bound<P: Limits>(fields: &Fields, key: &'static str) -> Result<Option<P::Address>> {
    let expected = "an IP address of the network's family";
    let Some(text) = fields.expect::<String>(key, expected)? else {
        return Ok(None);
    };
    let address = text
        .parse::<P::Address>()
        .map_err(|_not_an_address| fields.bad_value(key, expected))?;
    Ok(Some(address).filter(|address| P::to_bits(*address) != 0))
}

/// Checks that a bound is in the network and, if the subnet length is known, the first address of a
/// subnet.
fn check_bound<P: Limits>(
    key: &'static str,
    bound: P::Address,
    network: P,
    subnet_len: Option<u8>,
) -> Result<()> {
    let bits = P::to_bits(bound);
    if !(network.first()..=network.last()).contains(&bits) {
        return Err(ConfigMistake::OutsideNetwork {
            key,
            address: bound.into(),
            network: network.into(),
        });
    }
    match subnet_len {
        Some(subnet_len) if bits != P::from_bits(bits, subnet_len).first() => {
            Err(ConfigMistake::Misaligned {
                key,
                address: bound.into(),
                subnet_len,
            })
        }
        _ => Ok(()),
    }
}
