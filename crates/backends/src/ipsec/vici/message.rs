//! Messages of VICI: sections of values, lists and further sections, as bytes and back. Pure.
//!
//! The format is that of `src/libcharon/plugins/vici/README.md` in strongSwan.

use std::{fmt, io};

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;
/// Sections within sections; charon's have four levels at most.
const DEPTH: usize = 16;

/// A section, or a whole message. Its `Debug` form has no values: one may be the secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Section(Vec<(String, Element)>);

#[derive(Clone, PartialEq, Eq)]
enum Element {
    Value(String),
    List(Vec<String>),
    Section(Section),
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Section {
    /// With a value.
    pub(super) fn value(self, name: &str, value: impl Into<String>) -> Self {
        self.element(name, Element::Value(value.into()))
    }

    /// With a list of one item.
    pub(super) fn item(self, name: &str, item: impl Into<String>) -> Self {
        self.element(name, Element::List(vec![item.into()]))
    }

    /// With a section.
    pub(super) fn section(self, name: &str, section: Self) -> Self {
        self.element(name, Element::Section(section))
    }

    fn element(mut self, name: &str, element: Element) -> Self {
        self.0.push((name.to_owned(), element));
        self
    }

    fn get(&self, name: &str) -> Option<&Element> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, element)| element)
    }

    /// Returns the value of this name.
    pub(super) fn value_of(&self, name: &str) -> Option<&str> {
        let Some(Element::Value(value)) = self.get(name) else {
            return None;
        };
        Some(value)
    }

    /// Returns the items of the list of this name; none if the list does not exist.
    pub(super) fn list_of(&self, name: &str) -> &[String] {
        let Some(Element::List(items)) = self.get(name) else {
            return &[];
        };
        items
    }

    /// Returns the section of this name.
    pub(super) fn section_of(&self, name: &str) -> Option<&Self> {
        let Some(Element::Section(section)) = self.get(name) else {
            return None;
        };
        Some(section)
    }

    /// Returns the sections in this one, by name.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|(name, element)| match element {
            Element::Section(section) => Some((name.as_str(), section)),
            Element::Value(_) | Element::List(_) => None,
        })
    }

    /// Appends it as bytes. Fails if a name or value is longer than the format allows.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        for (name, element) in &self.0 {
            match element {
                Element::Value(value) => {
                    bytes.push(KEY_VALUE);
                    write_name(name, bytes)?;
                    write_value(value, bytes)?;
                }
                Element::List(items) => {
                    bytes.push(LIST_START);
                    write_name(name, bytes)?;
                    for item in items {
                        bytes.push(LIST_ITEM);
                        write_value(item, bytes)?;
                    }
                    bytes.push(LIST_END);
                }
                Element::Section(section) => {
                    bytes.push(SECTION_START);
                    write_name(name, bytes)?;
                    section.write(bytes)?;
                    bytes.push(SECTION_END);
                }
            }
        }
        Ok(())
    }

    /// Reads a whole message; `None` if it is malformed.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes;
        let message = read_section(&mut bytes, 0)?;
        bytes.is_empty().then_some(message)
    }
}

/// Writes a name, with its length.
pub(super) fn write_name(name: &str, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.push(u8::try_from(name.len()).map_err(|_cause| too_long())?);
    bytes.extend(name.as_bytes());
    Ok(())
}

fn write_value(value: &str, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.extend(
        u16::try_from(value.len())
            .map_err(|_cause| too_long())?
            .to_be_bytes(),
    );
    bytes.extend(value.as_bytes());
    Ok(())
}

fn too_long() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "a name or value is longer than VICI allows",
    )
}

/// Reads up to the end of the section; the outermost ends with the message.
fn read_section(bytes: &mut &[u8], depth: usize) -> Option<Section> {
    let mut section = Section::default();
    loop {
        let element = match take(bytes, 1) {
            Some([SECTION_END]) if depth > 0 => return Some(section),
            None if depth == 0 => return Some(section),
            Some([kind]) => *kind,
            _ => return None,
        };
        let name = read_name(bytes)?;
        let element = match element {
            KEY_VALUE => Element::Value(read_value(bytes)?),
            LIST_START => Element::List(read_list(bytes)?),
            SECTION_START if depth < DEPTH => Element::Section(read_section(bytes, depth + 1)?),
            _ => return None,
        };
        section.0.push((name, element));
    }
}

fn read_list(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let mut items = Vec::new();
    loop {
        match take(bytes, 1)? {
            [LIST_ITEM] => items.push(read_value(bytes)?),
            [LIST_END] => return Some(items),
            _ => return None,
        }
    }
}

/// Reads a name, with its length.
pub(super) fn read_name(bytes: &mut &[u8]) -> Option<String> {
    let length = *take(bytes, 1)?.first()?;
    Some(String::from_utf8_lossy(take(bytes, length.into())?).into_owned())
}

fn read_value(bytes: &mut &[u8]) -> Option<String> {
    let length = u16::from_be_bytes(take(bytes, 2)?.try_into().ok()?);
    Some(String::from_utf8_lossy(take(bytes, length.into())?).into_owned())
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the format's description.
    #[test]
    fn a_message_is_written_as_described_and_read_again() {
        let inner = Section::default().value("key2", "value2");
        let mut section = Section::default()
            .section("sub-section", inner)
            .item("list1", "item1");
        if let Some((_, Element::List(items))) = section.0.last_mut() {
            items.push("item2".to_owned());
        }
        let message = Section::default()
            .value("key1", "value1")
            .section("section1", section);
        let mut bytes = Vec::new();
        message.write(&mut bytes).expect("short names");
        let expected: &[&[u8]] = &[
            b"\x03\x04key1\x00\x06value1",
            b"\x01\x08section1",
            b"\x01\x0bsub-section\x03\x04key2\x00\x06value2\x02",
            b"\x04\x05list1\x05\x00\x05item1\x05\x00\x05item2\x06",
            b"\x02",
        ];
        assert_eq!(bytes, expected.concat());
        let read = Section::read(&bytes).expect("a message");
        assert_eq!((&read, read.value_of("key1")), (&message, Some("value1")));
        let section = read.section_of("section1").expect("a section");
        assert_eq!(
            (section.list_of("list1").len(), section.sections().count()),
            (2, 1)
        );
        assert_eq!(format!("{read:?}"), r#"["key1", "section1"]"#);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let whole = b"\x01\x01s\x03\x01k\x00\x01v\x04\x01l\x05\x00\x01i\x06\x02";
        assert!(Section::read(whole).is_some());
        for length in 1..whole.len() {
            assert_eq!(
                Section::read(&whole[..length]),
                None,
                "the first {length} bytes"
            );
        }
        assert_eq!(Section::read(b"\x02"), None, "an end without a start");
        assert_eq!(Section::read(b"\x07\x01k"), None, "an unknown element");
        assert_eq!(Section::read(&b"\x01\x01s".repeat(40)), None, "too deep");
    }
}
