//! NameTable of hosts outside, from a file of the operator in the format of
//! [hosts(5)](https://man7.org/linux/man-pages/man5/hosts.5.html).

use std::{
    fs,
    io::{self, Read as _},
    net::IpAddr,
    path::Path,
};

use super::cache::NameTable;

/// The most bytes that are read.
const FILE: u64 = 1 << 20;

/// Reads the file.
pub(super) fn read(path: &Path) -> io::Result<NameTable> {
    let mut text = String::new();
    fs::File::open(path)?.take(FILE).read_to_string(&mut text)?;
    Ok(parse(&text))
}

/// The first name of each address. Lines that are not understood are left out.
fn parse(text: &str) -> NameTable {
    let mut names = NameTable::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        if let Some((address, name)) = address.zip(words.next()) {
            names.entry(address).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_an_address_counts() {
        let names = parse(
            "192.0.2.1 build build.example.org # the builder\n\n# x\nfd00::1 db\n192.0.2.1 \
             other\nbad x\n",
        );
        let found: Vec<_> = names
            .iter()
            .map(|(address, name)| format!("{address} {name}"))
            .collect();
        assert_eq!(found, ["192.0.2.1 build", "fd00::1 db"]);
    }
}
