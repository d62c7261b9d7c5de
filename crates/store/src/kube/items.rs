//! The items of a list, one by one, while its text arrives. Pure.

/// Splits the text of a list into its items and the rest.
#[derive(Debug, Default)]
pub(super) struct ListText {
    /// The text with a zero in the place of each item.
    frame: Vec<u8>,
    item: Vec<u8>,
    depth: usize,
    in_text: bool,
    is_escaped: bool,
}

/// The depth of the objects in a list of the outermost object.
const ITEM: usize = 3;

impl ListText {
    /// Adds a piece, and passes each item that is complete.
    pub(super) fn push<E>(
        &mut self,
        piece: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for &byte in piece {
            let was_in_item = self.depth >= ITEM;
            self.read(byte);
            if self.depth < ITEM && !was_in_item {
                self.frame.push(byte);
                continue;
            }
            self.item.push(byte);
            if self.depth < ITEM {
                take(&self.item)?;
                self.item.clear();
                self.frame.push(b'0');
            }
        }
        Ok(())
    }

    /// Returns the text without the items.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    fn read(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_text => self.is_escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn split(text: &str, piece: usize) -> (Vec<String>, String) {
        let (mut list, mut items) = (ListText::default(), Vec::new());
        for piece in text.as_bytes().chunks(piece) {
            let result = list.push(piece, |item| {
                items.push(String::from_utf8_lossy(item).into_owned());
                Ok::<(), Infallible>(())
            });
            assert!(result.is_ok());
        }
        (items, String::from_utf8_lossy(list.frame()).into_owned())
    }

    #[test]
    fn items_are_passed_one_by_one() {
        let text = r#"{"metadata":{"a":"]}"},"items":[{"x":[1,{"y":"}\""}]}, {"z":{}}],"b":1}"#;
        for piece in [1, 5, 1000] {
            let (items, frame) = split(text, piece);
            assert_eq!(items, [r#"{"x":[1,{"y":"}\""}]}"#, r#"{"z":{}}"#]);
            assert_eq!(frame, r#"{"metadata":{"a":"]}"},"items":[0, 0],"b":1}"#);
        }
    }

    #[test]
    fn a_list_without_items_has_a_frame_alone() {
        let text = r#"{"metadata":{},"items":null}"#;
        assert_eq!(split(text, 4), (Vec::new(), text.to_owned()));
    }
}
