//! DEL: by what ADD left, or by the configuration if that is gone. The pod must be able to go.

use super::{
    delete::{delete, without_state},
    note::note,
    present::present,
};
use crate::{
    delegate::Delegate,
    environment::Environment,
    error::Error,
    lock::{self, Lock},
    netconf::{NetConf, Object},
    state::{Key, StateDir},
};

pub(super) fn del(environment: &Environment, conf: &NetConf) -> Result<Vec<u8>, Error> {
    let Some(state) = StateDir::find(&conf.data_dir) else {
        return without_state(environment, conf);
    };
    let own = Key::new(environment).of_network(&conf.name);
    let find = || {
        Some(own.clone())
            .filter(|key| state.has(key))
            .or_else(|| present(&state, environment))
    };
    let _lock = match Lock::acquire(&state, &Key::new(environment), lock::PATIENCE) {
        Ok(lock) => Some(lock),
        // The pod has to go, and the call that holds the lock may never end.
        Err(error @ Error::Busy { .. }) => {
            note(&format!("DEL all the same: {error}"));
            None
        }
        // On a file system that is full or read-only.
        Err(error @ Error::Io { .. }) if find().is_none() => {
            note(&format!("DEL without a lock: {error}"));
            None
        }
        Err(error) => return Err(error),
    };
    let Some(key) = find() else {
        return without_state(environment, conf);
    };
    let output = match state.read(&key) {
        Ok(Some(saved)) => by_state(environment, conf, &key, saved)?,
        Ok(None) => without_state(environment, conf)?,
        Err(error @ Error::State { .. }) => {
            note(&format!("DEL by the present configuration: {error}"));
            without_state(environment, conf)?
        }
        Err(error) => return Err(error),
    };
    forget(&state, environment, &key)?;
    Ok(output)
}

/// Removes the file. That of a network that found the interface taken stays until the interface is
/// deleted: another DEL of that network must find it, too.
fn forget(state: &StateDir, environment: &Environment, key: &Key) -> Result<(), Error> {
    if key.network.is_some() && present(state, environment).is_some() {
        return Ok(());
    }
    state.remove(key)?;
    let (container_id, ifname) = (&environment.container_id, Some(&environment.ifname));
    let of_others = |key: &&Key| key.container_id == *container_id && key.ifname.as_ref() == ifname;
    let keys = state.keys()?;
    keys.iter()
        .filter(of_others)
        .filter(|key| key.network.is_some())
        .try_for_each(|key| state.remove(key))
}

/// `prevResult` is in the version the configuration has now; the delegate reads it in the saved
/// one.
fn by_state(
    environment: &Environment,
    conf: &NetConf,
    key: &Key,
    saved: Object,
) -> Result<Vec<u8>, Error> {
    let same =
        saved.get("cniVersion").and_then(|version| version.as_str()) == Some(&conf.cni_version);
    let prev_result = conf
        .prev_result
        .clone()
        .filter(|_| same && conf.passes_prev_result());
    let delegate = Delegate::find(&environment.path, saved)?.with_prev_result(prev_result);
    let delegate = match key.network {
        // The interface is another network's.
        Some(_) => delegate.for_absent(&environment.container_id, &environment.ifname),
        None => delegate,
    };
    delete(environment, &delegate, &[&conf.cni_version])
}
