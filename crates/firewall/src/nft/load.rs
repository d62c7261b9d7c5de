//! The contents of a register: what an expression loaded, and the bits that are left of it. Pure.

use super::fields::{Covered, Headers, Span};

/// A load that no expression has used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// The first register, counted in words of 32 bits.
    pub(super) register: u32,
    pub(super) source: Source,
    /// The bits that a bitwise operation left.
    pub(super) mask: Option<Vec<u8>>,
    /// The bits that it toggled.
    pub(super) toggled: Vec<u8>,
}

/// The origin of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Bytes of a packet with these headers.
    Packet(Span, Headers),
    /// A value with a name, such as `meta mark`.
    Named(String),
}

/// A field in a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) name: String,
    /// The bits of the field that are looked at; `None` for all.
    pub(super) mask: Option<u64>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// First bit and number of bits, in network byte order.
    Bits(u32, u32),
    /// The whole value, in the byte order of the machine.
    Native,
}

impl Load {
    pub(super) const fn new(register: u32, source: Source) -> Self {
        Self {
            register,
            source,
            mask: None,
            toggled: Vec::new(),
        }
    }

    /// Returns the fields of the load that are looked at.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let mask = self.mask.as_deref();
        match &self.source {
            Source::Named(name) => {
                // The field's own number of bits is not known, so that of its mask counts.
                let mask = mask
                    .and_then(native)
                    .filter(|bits| *bits != u64::from(u32::MAX));
                let place = if name == "meta protocol" {
                    Place::Bits(0, 16)
                } else {
                    Place::Native
                };
                vec![Piece {
                    name: name.clone(),
                    mask,
                    place,
                }]
            }
            Source::Packet(span, headers) => {
                let covered =
                    headers.fields(*span, |place| mask.is_none_or(|mask| is_set(mask, place)));
                covered
                    .into_iter()
                    .map(|covered| Piece::of_packet(covered, mask))
                    .collect()
            }
        }
    }

    /// Returns the fields that a write of this load to `span` changes.
    pub(super) fn written(&self, span: Span) -> Vec<Covered> {
        match (&self.source, &self.mask) {
            (Source::Packet(own, headers), Some(mask)) if *own == span => headers
                .fields(span, |place| {
                    !is_set(mask, place) || is_set(&self.toggled, place)
                }),
            _ => Vec::new(),
        }
    }
}

impl Piece {
    fn of_packet(covered: Covered, mask: Option<&[u8]>) -> Self {
        let Covered { name, first, bits } = covered;
        let all = if bits < 64 { (1 << bits) - 1 } else { u64::MAX };
        let mask = mask
            .and_then(|mask| number(mask, first, bits))
            .filter(|bits| *bits != all);
        Self {
            name,
            mask,
            place: Place::Bits(first, bits),
        }
    }

    /// Returns the value that data of a comparison has for this field.
    pub(super) fn value(&self, data: &[u8]) -> Option<u64> {
        match self.place {
            Place::Bits(first, bits) => number(data, first, bits),
            Place::Native => native(data),
        }
    }
}

fn is_set(bytes: &[u8], place: u32) -> bool {
    let byte = usize::try_from(place / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0)
}

/// Bits of data in network byte order; `None` if they are more than 64, or are not there.
fn number(bytes: &[u8], first: u32, bits: u32) -> Option<u64> {
    let end = usize::try_from((first + bits).div_ceil(8)).ok()?;
    if bits > 64 || end > bytes.len() {
        return None;
    }
    Some((first..first + bits).fold(0, |number, place| {
        number << 1 | u64::from(is_set(bytes, place))
    }))
}

/// A number in the byte order of the machine.
fn native(data: &[u8]) -> Option<u64> {
    match data {
        [byte] => Some(u64::from(*byte)),
        [_, _] => Some(u64::from(u16::from_ne_bytes(data.try_into().ok()?))),
        [_, _, _, _] => Some(u64::from(u32::from_ne_bytes(data.try_into().ok()?))),
        _ => Some(u64::from_ne_bytes(data.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Span = Span {
        base: 2,
        offset: 0,
        length: 4,
    };

    #[test]
    fn values_are_those_of_each_field() {
        let load = Load::new(0, Source::Packet(PORTS, Headers::default()));
        let pieces = load.pieces();
        let data = [0x9c, 0x40, 0x21, 0x18];
        let values: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.name.as_str(), piece.value(&data)))
            .collect();
        assert_eq!(
            values,
            [("th sport", Some(40000)), ("th dport", Some(8472))]
        );
    }

    #[test]
    fn a_mask_of_all_bits_is_none() {
        let span = Span {
            base: 2,
            offset: 2,
            length: 2,
        };
        let masked = |mask: [u8; 2]| {
            let load = Load {
                mask: Some(mask.to_vec()),
                ..Load::new(0, Source::Packet(span, Headers::default()))
            };
            load.pieces().first().and_then(|piece| piece.mask)
        };
        assert_eq!(
            (masked([0xff, 0xff]), masked([0xff, 0])),
            (None, Some(0xff00))
        );
    }

    #[test]
    fn a_write_changes_the_bits_that_were_not_kept() {
        let span = Span {
            base: 1,
            offset: 0,
            length: 2,
        };
        let source = Source::Packet(span, Headers::of_family(2));
        let load = Load {
            mask: Some(vec![0xff, 0x03]),
            toggled: vec![0, 0x20],
            ..Load::new(0, source)
        };
        let names: Vec<String> = load
            .written(span)
            .into_iter()
            .map(|covered| covered.name)
            .collect();
        assert_eq!(names, ["ip dscp"]);
    }
}
