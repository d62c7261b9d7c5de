//! Netlink attributes of netfilter: big-endian numbers, NUL-terminated text, nested lists.

use netlink_packet_core::NlasIterator;

use super::Expression;

/// `NFTA_LIST_ELEM`.
const LIST_ELEMENT: u16 = 1;

/// The attributes of a message, or of an attribute that nests others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Reads `bytes` as attributes. A damaged attribute ends them.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn all(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let attributes = NlasIterator::new(self.0).map_while(Result::ok);
        attributes.map(|attribute| {
            let length = usize::from(attribute.length());
            (
                attribute.kind(),
                attribute.into_inner().get(4..length).unwrap_or_default(),
            )
        })
    }

    /// Returns the value of the first attribute with this number.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.all()
            .find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// Returns a number of 8, 32 or 64 bits.
    pub fn number(self, kind: u16) -> Option<u64> {
        let value = self.get(kind)?;
        (value.len() <= 8).then(|| {
            value
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        })
    }

    /// Returns a number of up to 32 bits; `None` if it is larger.
    pub fn number32(self, kind: u16) -> Option<u32> {
        self.number(kind)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// Returns a text; bytes that are not UTF-8 are replaced.
    pub fn text(self, kind: u16) -> Option<String> {
        Some(text(self.get(kind)?))
    }

    /// Returns the attributes nested in an attribute.
    pub fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }

    /// Returns the elements of a list that an attribute nests.
    pub fn list(self, kind: u16) -> impl Iterator<Item = Self> {
        let elements = self.nested(kind).unwrap_or_default();
        elements
            .all()
            .filter(|(kind, _)| *kind == LIST_ELEMENT)
            .map(|(_, value)| Self(value))
    }
}

impl<'a> Attributes<'a> {
    /// Returns the expressions of an attribute for one, followed by those of an attribute for many.
    pub fn expressions(self, one: u16, many: u16) -> impl Iterator<Item = Expression<'a>> {
        self.nested(one)
            .into_iter()
            .chain(self.list(many))
            .map(Expression::new)
    }

    /// Returns the texts of a list that an attribute nests, such as names of devices.
    pub fn names(self, kind: u16) -> impl Iterator<Item = String> + use<'a> {
        let elements = self.nested(kind).unwrap_or_default();
        elements
            .all()
            .filter(|(kind, _)| *kind == LIST_ELEMENT)
            .map(|(_, value)| text(value))
    }
}

/// A text without its terminating NUL.
fn text(value: &[u8]) -> String {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_texts_and_lists_are_read() {
        let bytes = [
            &[8, 0, 1, 0, 0, 0, 1, 2][..],
            &[7, 0, 2, 0, b'a', b'b', 0, 0],
            &[12, 0, 3, 0x80, 8, 0, 1, 0, 0, 0, 0, 9],
        ]
        .concat();
        let attributes = Attributes::new(&bytes);
        assert_eq!(attributes.number(1), Some(0x102));
        assert_eq!(attributes.text(2).as_deref(), Some("ab"));
        let list: Vec<_> = attributes
            .list(3)
            .map(|element| element.0.to_vec())
            .collect();
        assert_eq!(list, [[0, 0, 0, 9]]);
        assert_eq!(attributes.get(4), None);
    }

    #[test]
    fn damaged_attributes_end_the_list() {
        for bytes in [&[][..], &[3, 0, 1, 0], &[200, 0, 1, 0, 5], &[8, 0, 1]] {
            assert_eq!(Attributes::new(bytes).get(1), None);
        }
    }
}
