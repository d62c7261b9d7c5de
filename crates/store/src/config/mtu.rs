//! `Backend.MTU`, which several backends have.

use super::{error::Result, gojson::Fields};

/// `Backend.MTU`, with the least that the backend can serve; zero is as if it were absent.
pub(super) fn mtu_of(fields: &Fields, least: u16, expected: &'static str) -> Result<Option<u16>> {
    let mtu = fields
        .expect::<u16>("MTU", expected)?
        .filter(|mtu| *mtu != 0);
    if mtu.is_some_and(|mtu| mtu < least) {
        Err(fields.bad_value("MTU", expected))
    } else {
        Ok(mtu)
    }
}
