//! Checks that the store is still the one we know.
//!
//! An etcd that was wiped, refilled or restored under the same address accepts our watch: it has
//! the same cluster id, which is derived from its members' addresses, and a plausible revision.
//! Changes before that revision are then never reported, and entries that are gone are never
//! deleted. Our own key reveals this: only the history we know has it at the revision of our last
//! write, on the etcd lease we were granted, whose number is random.
//!
//! In case of doubt everything is listed, which is correct whatever happened. So a key that another
//! process changed a moment ago costs no more than a listing.

use etcd_client::{GetResponse, KeyValue};

use super::{client::EtcdClient, error::EtcdError, keys::Keys, position::Position};
use crate::etcd::lease::held::Held;

/// Asks whether what we know up to `position` is this store's history.
pub(super) async fn is_known(
    client: &mut EtcdClient,
    keys: &Keys,
    held: Option<&Held>,
    position: Position,
) -> Result<bool, EtcdError> {
    let path = held.map_or(keys.config(), |held| held.path.as_str());
    let answer = client
        .call("looking at our own lease", |mut etcd| async move {
            etcd.get(path, None).await
        })
        .await?;
    Ok(agrees(&answer, held, position))
}

fn agrees(answer: &GetResponse, held: Option<&Held>, position: Position) -> bool {
    let is_ours = |held: &Held| {
        answer.kvs().first().is_some_and(|kv: &KeyValue| {
            (kv.mod_revision(), kv.lease()) == (held.modified, held.etcd_lease)
        })
    };
    answer
        .header()
        .is_none_or(|header| position.is_continued_by(header))
        && held.is_none_or(is_ours)
}
