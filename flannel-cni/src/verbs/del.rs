//! DEL: by what ADD left. Without that there is nothing to do, and the pod must be able to go.

use super::{note, present};
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    lock::{self, Lock},
    netconf::{NetConf, Object},
    state::{Key, StateDir},
    version::Version,
};

pub(super) fn del(environment: &Environment, conf: NetConf) -> Result<Vec<u8>, Error> {
    let Some(state) = StateDir::find(&conf.data_dir) else { return Ok(Vec::new()) };
    let _lock = match Lock::acquire(&state, &Key::new(environment), lock::PATIENCE) {
        Ok(lock) => Some(lock),
        // The pod has to go, and the call that holds the lock may never end.
        Err(error @ Error::Busy { .. }) => {
            note(&format!("DEL all the same: {error}"));
            None
        }
        // On a file system that is full or read-only. Without a file of an ADD there is nothing to
        // wait for.
        Err(error @ Error::Io { .. }) if present(&state, environment).is_none() => {
            note(&format!("DEL of what was never added: {error}"));
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let Some(key) = present(&state, environment) else { return Ok(Vec::new()) };
    let output = match state.read(&key) {
        Ok(Some(saved)) => call(environment, conf, saved)?,
        Ok(None) => Vec::new(),
        Err(error @ Error::State { .. }) => {
            note(&format!("removed without the delegate's DEL: {error}"));
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    state.remove(&key)?;
    Ok(output)
}

/// `prevResult` is in the version the configuration has now; the delegate reads it in the saved
/// one.
fn call(environment: &Environment, conf: NetConf, saved: Object) -> Result<Vec<u8>, Error> {
    let same = saved.get("cniVersion").and_then(|version| version.as_str()) == Some(&conf.cni_version);
    let prev_result = conf.prev_result.filter(|_| same && conf.version >= Version::WITH_CHECK);
    Delegate::find(&environment.path, saved)?.with_prev_result(prev_result).call(Verb::Del)
}
