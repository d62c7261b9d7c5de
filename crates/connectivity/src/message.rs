//! Requests and answers of the echo server. Pure.
//!
//! Over UDP an answer is never longer than its request, so the server amplifies no packets of
//! forged source addresses.

/// Opens every request and answer.
const MAGIC: [u8; 4] = *b"flct";
/// Bytes of a request without padding: magic and number.
pub(super) const REQUEST: usize = 12;
/// Bytes before the name in an answer: magic, number, and the length of the request.
const HEAD: usize = 16;
/// Bytes of a name. Longer ones are cut.
const NAME: usize = 64;
/// Bytes of the longest answer, and so of the shortest request over UDP.
pub(super) const ANSWER: usize = HEAD + NAME;

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// The number of the request.
    pub(super) number: u64,
    /// The length of the request, as it arrived.
    pub(super) length: u32,
    /// The name of the server.
    pub(super) name: String,
}

/// A request of a length in bytes.
pub(super) fn request(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &number.to_be_bytes()].concat();
    bytes.resize(length.max(REQUEST), 0);
    bytes
}

/// The answer to a request; `None` if it is not one.
pub(super) fn answer(request: &[u8], name: &str) -> Option<[u8; ANSWER]> {
    let number = request.strip_prefix(&MAGIC)?.get(..8)?;
    let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
    let mut bytes = [0; ANSWER];
    let kept = name.len().min(NAME);
    let parts = [
        &MAGIC[..],
        number,
        &length.to_be_bytes(),
        &name.as_bytes()[..kept],
    ];
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Some(bytes)
}

/// Reads an answer.
pub(super) fn read(answer: &[u8]) -> Option<Answered> {
    let rest = answer.strip_prefix(&MAGIC)?;
    let (number, rest) = rest.split_first_chunk()?;
    let (length, name) = rest.split_first_chunk()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Answered {
        number: u64::from_be_bytes(*number),
        length: u32::from_be_bytes(*length),
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_request_and_the_server() {
        let answered = read(&answer(&request(7, 1400), "server-1").expect("an answer"))
            .expect("it can be read");
        assert_eq!(
            answered,
            Answered {
                number: 7,
                length: 1400,
                name: "server-1".to_owned()
            }
        );
        let long = "n".repeat(100);
        let cut = read(&answer(&request(u64::MAX, 0), &long).expect("an answer"))
            .expect("it can be read");
        assert_eq!((cut.name.len(), cut.length), (NAME, 12));
    }

    #[test]
    fn other_packets_have_no_answer() {
        for packet in [&b""[..], b"flct", b"flct1234567", b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(answer(packet, "n"), None, "{packet:?}");
            assert_eq!(read(packet), None, "{packet:?}");
        }
    }
}
