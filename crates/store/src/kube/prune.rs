//! Leaves out of the text of Nodes what the agent does not read, while it arrives. Pure.
//!
//! A Node may have 1.5 MiB in etcd, and six times as much on a watch, because Go's JSON writes `<`
//! as six bytes (`encoding/json`, `HTMLEscape`). Nearly all of that is in objects and lists that
//! the agent does not use. They become `null`, and texts that are longer than any annotation of
//! flannel are cut, so that a page, or a line of a watch, stays small whatever a Node has.

/// Members whose objects and lists are left out. Where the value is a plain one, as in the `status`
/// of an error, it stays.
const UNUSED: [&[u8]; 5] = [
    b"status",
    b"managedFields",
    b"labels",
    b"taints",
    b"ownerReferences",
];
/// Bytes of a text that are kept. An annotation of flannel has 16 KiB at most.
const LONGEST_TEXT: usize = 64 << 10;
/// Bytes of a member name, or of a Node's name, that are compared or kept.
const LONGEST_NAME: usize = 253;
/// Bytes from which on what is left out is worth a word.
const LARGE: usize = 1 << 20;

/// The state between two pieces of a text.
#[derive(Debug, Default)]
pub(super) struct Pruner {
    text: Option<Text>,
    /// The last text that ended: a member's name, if a colon follows.
    last: Vec<u8>,
    member: Member,
    /// The next object is the metadata of a Node, whose name is looked for.
    wants_name: bool,
    /// The name of the Node that is being read.
    name: Vec<u8>,
    /// The depth of objects and lists that are left out; zero outside of them.
    depth: usize,
    left_out: usize,
    /// A Node of which much was left out, and the number of bytes.
    large: Option<(String, usize)>,
}

/// The member whose value comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Member {
    #[default]
    Other,
    Unused,
    Metadata,
    Name,
}

/// A text in quotation marks that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    length: usize,
    is_cut: bool,
    escape: Escape,
    /// The last escape is the first half of a character, which has to keep its second.
    is_half: bool,
}

/// The place in an escape sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Begun,
    /// The number of digits that are missing, and the value so far.
    Digits(u8, u16),
}

impl Text {
    /// Takes the next byte of the text. Returns true if it ends the text.
    fn take(&mut self, byte: u8) -> bool {
        self.length += 1;
        match (self.escape, byte) {
            (Escape::Begun, b'u') => self.escape = Escape::Digits(4, 0),
            (Escape::Begun, _) => self.escape = Escape::None,
            (Escape::Digits(left, value), digit) => {
                let digit = char::from(digit)
                    .to_digit(16)
                    .and_then(|digit| u16::try_from(digit).ok());
                let value = value << 4 | digit.unwrap_or_default();
                self.escape = if left == 1 {
                    Escape::None
                } else {
                    Escape::Digits(left - 1, value)
                };
                self.is_half = left == 1 && (0xd800..0xdc00).contains(&value);
            }
            (Escape::None, b'"') => return true,
            (Escape::None, b'\\') => self.escape = Escape::Begun,
            (Escape::None, _) => self.is_half = false,
        }
        false
    }

    /// Returns true if the text may end in front of this byte.
    fn is_boundary(self, byte: u8) -> bool {
        let continues = byte & 0xc0 == 0x80;
        self.escape == Escape::None && !self.is_half && !continues
    }
}

impl Pruner {
    /// Adds what is left of the next piece to `kept`.
    pub(super) fn prune(&mut self, piece: &[u8], kept: &mut Vec<u8>) {
        kept.reserve(piece.len().min(LONGEST_TEXT));
        for &byte in piece {
            if self.depth > 0 {
                self.leave_out(byte);
            } else if self.text.is_some() {
                self.read_text(byte, kept);
            } else {
                self.read_structure(byte, kept);
            }
        }
    }

    /// Takes the name of a Node of which much was left out, and the number of those bytes.
    pub(super) fn take_large(&mut self) -> Option<(String, usize)> {
        self.large.take()
    }

    fn leave_out(&mut self, byte: u8) {
        self.left_out += 1;
        match &mut self.text {
            Some(text) => {
                if text.take(byte) {
                    self.text = None;
                }
            }
            None => match byte {
                b'"' => self.text = Some(Text::default()),
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            },
        }
        if self.depth == 0 && self.left_out > LARGE {
            self.large = Some((
                String::from_utf8_lossy(&self.name).into_owned(),
                self.left_out,
            ));
        }
    }

    fn read_text(&mut self, byte: u8, kept: &mut Vec<u8>) {
        let Some(text) = &mut self.text else { return };
        text.is_cut |= text.length >= LONGEST_TEXT && byte != b'"' && text.is_boundary(byte);
        let is_cut = text.is_cut;
        if text.take(byte) {
            kept.push(byte);
            self.text = None;
            if self.member == Member::Name && self.wants_name {
                (self.name, self.wants_name) = (self.last.clone(), false);
            }
            self.member = Member::Other;
            return;
        }
        if self.last.len() < LONGEST_NAME {
            self.last.push(byte);
        }
        if !is_cut {
            kept.push(byte);
        }
    }

    fn read_structure(&mut self, byte: u8, kept: &mut Vec<u8>) {
        match byte {
            b'"' => {
                self.text = Some(Text::default());
                self.last.clear();
            }
            b':' => {
                self.member = match self.last.as_slice() {
                    b"metadata" => Member::Metadata,
                    b"name" => Member::Name,
                    name if UNUSED.contains(&name) => Member::Unused,
                    _ => Member::Other,
                };
            }
            b'{' | b'[' => {
                let member = std::mem::take(&mut self.member);
                if member == Member::Unused {
                    kept.extend_from_slice(b"null");
                    (self.depth, self.left_out) = (1, 0);
                    return;
                }
                self.wants_name |= member == Member::Metadata;
            }
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => self.member = Member::Other,
        }
        kept.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pruned(text: &str, piece: usize) -> (String, Pruner) {
        let (mut pruner, mut kept) = (Pruner::default(), Vec::new());
        text.as_bytes()
            .chunks(piece)
            .for_each(|piece| pruner.prune(piece, &mut kept));
        (String::from_utf8(kept).expect("UTF-8"), pruner)
    }

    fn node(message: &str) -> Value {
        json!({
            "kind": "Node",
            "metadata": {
                "name": "n\"1", "labels": {"a": "}"}, "managedFields": [{"f": {"name": "x"}}],
                "annotations": {"status": "as it is", "x": "y"},
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "]"}]},
            "status": {"conditions": [{"message": message}]},
        })
    }

    #[test]
    fn what_is_not_read_becomes_null() {
        let text = node(r#"a "quoted\" text } ]"#).to_string();
        for piece in [1, 3, 10_000] {
            let (kept, _) = pruned(&text, piece);
            let value: Value = serde_json::from_str(&kept).expect("JSON");
            assert_eq!(
                value["metadata"]["annotations"],
                json!({"status": "as it is", "x": "y"})
            );
            assert_eq!(
                (&value["status"], &value["spec"]["taints"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(
                (
                    &value["metadata"]["labels"],
                    &value["metadata"]["managedFields"]
                ),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(value["spec"]["podCIDR"], "10.0.0.0/24");
        }
    }

    #[test]
    fn an_error_of_the_server_stays_whole() {
        let error = r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410}}"#;
        assert_eq!(pruned(error, 7).0, error);
    }

    #[test]
    fn a_node_of_any_size_is_small_and_named() {
        let text = node("x").to_string().replace(
            "\"x\"}]}",
            &format!("\"{}\"}}]}}", "\\u003c".repeat(1_400_000)),
        );
        assert!(text.len() > 8_000_000);
        let (kept, mut pruner) = pruned(&text, 16 << 10);
        assert!(kept.len() < 1000, "{}", kept.len());
        let (name, bytes) = pruner.take_large().expect("a word");
        assert_eq!(name, "n\\\"1");
        assert!(bytes > 8_000_000);
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        for unit in ["a", "é", "\\n", "\\u003c", "\\ud83d\\ude00", "😀", "\\\\"] {
            let text = format!("{{\"k\":\"{}\",\"l\":1}}", unit.repeat(LONGEST_TEXT));
            let (kept, _) = pruned(&text, 1000);
            let value: Value =
                serde_json::from_str(&kept).unwrap_or_else(|error| panic!("{unit}: {error}"));
            assert_eq!(value["l"], 1);
            assert!(
                kept.len() < LONGEST_TEXT + 100 && kept.len() > LONGEST_TEXT - 100,
                "{unit}: {}",
                kept.len()
            );
        }
    }

    proptest! {
        #[test]
        fn text_of_any_kind_ends_and_keeps_what_is_short(text in "[{}\\[\\]\":,a-z\\\\0-9 \
            ]{0,200}", piece in 1_usize..9) {
            let whole = pruned(&text, 10_000).0;
            prop_assert_eq!(pruned(&text, piece).0, whole);
        }
    }
}
