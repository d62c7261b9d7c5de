//! The address in use of one family, over time: kept, replaced, or given up for a moment. Pure.
//!
//! Each change costs every peer a change, so an address is kept while it is usable, although a
//! better one may appear. Only a usable one takes the place of one that is virtual, deprecated or
//! in the pod network, and at once.
//!
//! An address that goes away may come back: DHCP clients, network managers and administrators take
//! addresses away and set them again. Those that were there all the time wait for [`GRACE`], and
//! give the place back when the former one returns. One that came with the loss, as by a new DHCP
//! lease, is its successor, and takes its place at once.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::{
    Rejection,
    address::{Ranked, Standing},
};

/// The time for which an address may be away before another one takes its place.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// The time for which a DHCP client may have both the new and the former address.
const OVERLAP: Duration = Duration::from_secs(30);
/// Other addresses of which the first sight is remembered.
const REMEMBERED: usize = 256;

/// The history of the address in use.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownAddress {
    /// The first sight of other addresses; `None` for those that were there before it was
    /// looked at.
    others: Option<BTreeMap<IpAddr, Option<Instant>>>,
    /// Since when it is away.
    gone: Option<Instant>,
    /// The address in whose place it is until that one returns.
    former: Option<IpAddr>,
}

impl KnownAddress {
    /// The address to use from now on. `addresses` are those of the interface, best first.
    pub(super) fn look(
        &mut self,
        known: IpAddr,
        addresses: &[Ranked],
        now: Instant,
    ) -> Result<IpAddr, Option<Rejection>> {
        let find = |addr| addresses.iter().find(|ranked| ranked.addr == addr);
        let is_good = |ranked: &&Ranked| ranked.standing <= Standing::Additional;
        if let Some(former) = self
            .former
            .filter(|former| find(*former).as_ref().is_some_and(is_good))
        {
            return Ok(self.replace_by(former));
        }
        let better = addresses
            .first()
            .filter(|best| is_good(best) && !best.temporary);
        match find(known) {
            // It is tried once more after the link came back: for a moment it is as good as gone.
            Some(own) if own.standing != Standing::Tentative => {
                self.see(addresses, now);
                let is_left = own.standing >= Standing::Virtual;
                Ok(better
                    .filter(|_| is_left)
                    .map_or(known, |best| self.replace_by(best.addr)))
            }
            _ => self.without(known, better, addresses, now),
        }
    }

    /// The address in the place of one that is away.
    fn without(
        &mut self,
        known: IpAddr,
        better: Option<&Ranked>,
        addresses: &[Ranked],
        now: Instant,
    ) -> Result<IpAddr, Option<Rejection>> {
        let since = *self.gone.get_or_insert(now);
        if let Some(successor) = better.filter(|best| self.came_with(since, best.addr)) {
            return Ok(self.replace_by(successor.addr));
        }
        match addresses.iter().find(|ranked| ranked.addr != known) {
            Some(other) if now.duration_since(since) >= GRACE => {
                let former = self.former.unwrap_or(known);
                self.replace_by(other.addr);
                self.former = Some(former);
                Ok(other.addr)
            }
            Some(other) => Err(Some(Rejection::AddressAway(known, other.addr))),
            None => Err(None),
        }
    }

    /// Returns true if an address was first seen about when the one in use went away.
    fn came_with(&self, loss: Instant, addr: IpAddr) -> bool {
        match self.others.as_ref().and_then(|others| others.get(&addr)) {
            Some(Some(first)) => loss.saturating_duration_since(*first) < OVERLAP,
            Some(None) => false,
            None => self.others.is_some(),
        }
    }

    /// Remembers the other addresses, while the one in use is there.
    fn see(&mut self, addresses: &[Ranked], now: Instant) {
        self.gone = None;
        let first = self.others.is_some().then_some(now);
        let others = self.others.get_or_insert_default();
        for ranked in addresses
            .iter()
            .take(REMEMBERED.saturating_sub(others.len()))
        {
            others.entry(ranked.addr).or_insert(first);
        }
    }

    fn replace_by(&mut self, addr: IpAddr) -> IpAddr {
        *self = Self {
            others: self.others.take(),
            ..Self::default()
        };
        addr
    }
}
