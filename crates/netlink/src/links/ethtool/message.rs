//! The question for the features of a device, its answer, and the change of one feature. Pure.
//!
//! Constants and layout: [include/uapi/linux/ethtool_netlink.h, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/ethtool_netlink.h), and
//! [the kernel's page on ethtool's netlink
//! interface](https://docs.kernel.org/networking/ethtool-netlink.html). Bits have names in the
//! answer, because their numbers differ between kernels.

use std::collections::BTreeSet;

use netlink_packet_core::{
    DecodeError, Emitable, NLA_F_NESTED, NlaBuffer, NlasIterator, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader};

use super::features::DeviceFeatures;
use crate::attribute::attribute;

/// `ETHTOOL_MSG_FEATURES_GET`, and the answer's `ETHTOOL_MSG_FEATURES_GET_REPLY`.
const FEATURES_GET: u8 = 11;
/// `ETHTOOL_MSG_FEATURES_SET`.
const FEATURES_SET: u8 = 12;
/// `ETHTOOL_GENL_VERSION`.
const VERSION: u8 = 1;
/// `ETHTOOL_A_FEATURES_HEADER`.
const HEADER: u16 = 1;
/// `ETHTOOL_A_HEADER_DEV_INDEX`.
const DEVICE_INDEX: u16 = 1;
/// `ETHTOOL_A_HEADER_FLAGS`.
const FLAGS: u16 = 3;
/// `ETHTOOL_FLAG_OMIT_REPLY`: the acknowledgement suffices.
const OMIT_REPLY: u32 = 2;
/// `ETHTOOL_A_FEATURES_HW`: the features that can be switched.
const CHANGEABLE: u16 = 2;
/// `ETHTOOL_A_FEATURES_WANTED`: those that are asked for.
const WANTED: u16 = 3;
/// `ETHTOOL_A_BITSET_NOMASK`: the set lists only bits that are on.
const NO_MASK: u16 = 1;
/// `ETHTOOL_A_BITSET_BITS`.
const BITS: u16 = 3;
/// `ETHTOOL_A_BITSET_BITS_BIT`.
const BIT: u16 = 1;
/// `ETHTOOL_A_BITSET_BIT_NAME`.
const NAME: u16 = 2;
/// `ETHTOOL_A_BITSET_BIT_VALUE`: the bit is on.
const VALUE: u16 = 3;

/// A question about one device, an answer, or a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeaturesMessage {
    command: u8,
    attributes: Vec<u8>,
}

impl FeaturesMessage {
    /// The question about the device of this interface index.
    pub(super) fn question(ifindex: u32) -> Self {
        let device = attribute(DEVICE_INDEX, &ifindex.to_ne_bytes());
        Self {
            command: FEATURES_GET,
            attributes: nested(HEADER, &[device]),
        }
    }

    /// Switches one feature of a device, by its name. The set has a mask: other features stay as
    /// they are.
    pub(super) fn change(ifindex: u32, feature: &str, is_on: bool) -> Self {
        let device = attribute(DEVICE_INDEX, &ifindex.to_ne_bytes());
        let header = nested(
            HEADER,
            &[device, attribute(FLAGS, &OMIT_REPLY.to_ne_bytes())],
        );
        let name = attribute(NAME, &[feature.as_bytes(), b"\0"].concat());
        let bit: Vec<_> = [name]
            .into_iter()
            .chain(is_on.then(|| attribute(VALUE, &[])))
            .collect();
        let wanted = nested(WANTED, &[nested(BITS, &[nested(BIT, &bit)])]);
        Self {
            command: FEATURES_SET,
            attributes: [header, wanted].concat(),
        }
    }

    /// The features in an answer.
    pub(super) fn features(&self) -> Result<DeviceFeatures, DecodeError> {
        let mut features = DeviceFeatures::default();
        for attribute in NlasIterator::new(self.attributes.as_slice()) {
            let attribute = attribute?;
            match attribute.kind() {
                CHANGEABLE => features.changeable = bits_on(attribute.value())?,
                WANTED => features.wanted = bits_on(attribute.value())?,
                _ => {}
            }
        }
        Ok(features)
    }
}

fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, &attributes.concat())
}

/// The names of the bits of a set that are on.
fn bits_on(set: &[u8]) -> Result<BTreeSet<String>, DecodeError> {
    let attributes = NlasIterator::new(set).collect::<Result<Vec<_>, _>>()?;
    let lists_only_on = attributes
        .iter()
        .any(|attribute| attribute.kind() == NO_MASK);
    let mut names = BTreeSet::new();
    for bits in attributes
        .iter()
        .filter(|attribute| attribute.kind() == BITS)
    {
        for bit in NlasIterator::new(bits.value()) {
            let (name, is_on) = name_and_value(&bit?)?;
            names.extend(name.filter(|_| is_on || lists_only_on));
        }
    }
    Ok(names)
}

fn name_and_value(bit: &NlaBuffer<&[u8]>) -> Result<(Option<String>, bool), DecodeError> {
    let (mut name, mut is_on) = (None, false);
    for attribute in NlasIterator::new(bit.value()) {
        let attribute = attribute?;
        match attribute.kind() {
            NAME => {
                name = Some(
                    String::from_utf8_lossy(attribute.value())
                        .trim_end_matches('\0')
                        .to_owned(),
                );
            }
            VALUE => is_on = true,
            _ => {}
        }
    }
    Ok((name, is_on))
}

impl GenlFamily for FeaturesMessage {
    fn family_name() -> &'static str {
        "ethtool"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for FeaturesMessage {
    fn buffer_len(&self) -> usize {
        self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer[..self.attributes.len()].copy_from_slice(&self.attributes);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for FeaturesMessage {
    fn parse_with_param(attributes: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self {
            command: header.cmd,
            attributes: attributes.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(attributes: Vec<u8>) -> FeaturesMessage {
        FeaturesMessage {
            command: FEATURES_GET,
            attributes,
        }
    }

    fn bit(name: &str, is_on: bool) -> Vec<u8> {
        let name = attribute(NAME, &[name.as_bytes(), b"\0"].concat());
        let value = is_on.then(|| attribute(VALUE, &[]));
        nested(BIT, &[name].into_iter().chain(value).collect::<Vec<_>>())
    }

    #[test]
    fn of_a_set_with_a_mask_the_bits_with_a_value_are_on() {
        let changeable = nested(
            CHANGEABLE,
            &[nested(BITS, &[bit("rx-gro", true), bit("highdma", false)])],
        );
        let no_mask = attribute(NO_MASK, &[]);
        let wanted = nested(
            WANTED,
            &[no_mask, nested(BITS, &[bit("tx-scatter-gather", false)])],
        );
        let features = answer([changeable, wanted].concat())
            .features()
            .expect("a whole answer");
        assert_eq!(features.changeable, BTreeSet::from(["rx-gro".to_owned()]));
        assert_eq!(
            features.wanted,
            BTreeSet::from(["tx-scatter-gather".to_owned()])
        );
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        let mut bytes = nested(CHANGEABLE, &[nested(BITS, &[bit("rx-gro", true)])]);
        bytes.truncate(bytes.len() - 4);
        assert!(answer(bytes).features().is_err());
        assert_eq!(
            answer(Vec::new()).features().expect("no attributes"),
            DeviceFeatures::default()
        );
    }

    #[test]
    fn a_change_reads_back_as_the_one_feature_that_it_names() {
        for is_on in [false, true] {
            let change = FeaturesMessage::change(7, "tx-checksum-ip-generic", is_on);
            assert_eq!(change.command(), FEATURES_SET);
            let expected = BTreeSet::from_iter(is_on.then(|| "tx-checksum-ip-generic".to_owned()));
            assert_eq!(change.features().expect("whole").wanted, expected);
        }
    }
}
