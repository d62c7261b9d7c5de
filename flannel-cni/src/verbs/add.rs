//! ADD: state first, then the delegate. If that fails, its DEL, and the state goes.

use super::note;
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill,
    lock::{self, Lock},
    netconf::NetConf,
    state::{Key, StateDir},
    subnet_file,
};

pub(super) fn add(environment: &Environment, conf: NetConf) -> Result<Vec<u8>, Error> {
    let file = subnet_file::wait(&conf.subnet_file, conf.subnet_file_wait)?;
    let netconf = fill::delegate(&conf, &file)?;
    let delegate = Delegate::find(&environment.path, netconf.clone())?.with_prev_result(conf.prev_result);
    let state = StateDir::create(&conf.data_dir)?;
    let key = Key::new(environment);
    let _lock = Lock::acquire(&state, &key, lock::PATIENCE)?;
    state.write(&key, &netconf)?;
    delegate.call(Verb::Add).inspect_err(|error| undo(error, &delegate, &state, &key))
}

/// Undoes a failed ADD. If this fails too, the state stays for the runtime's DEL or a later GC.
fn undo(failure: &Error, delegate: &Delegate, state: &StateDir, key: &Key) {
    let deleted = match failure {
        Error::NotStarted { .. } => Ok(()),
        _ => delegate.call(Verb::Del).map(drop),
    };
    if let Err(error) = deleted.and_then(|()| state.remove(key)) {
        note(&format!("after a failed ADD of {key}: {error}"));
    }
}
