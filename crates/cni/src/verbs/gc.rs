//! GC: DEL for what is on disk and not in use, then the delegate's own GC. One failure stops no
//! other.

use super::{
    delete::{delete, without_state},
    note::note,
};
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill,
    lock::{self, Lock},
    netconf::{Attachment, NetConf, VALID_ATTACHMENTS},
    state::{Key, StateDir},
    subnet_file,
};

/// The interface of a state file that names none: the one runtimes give a pod.
const USUAL_IFNAME: &str = "eth0";

pub(super) fn gc(environment: &Environment, conf: &NetConf) -> Result<Vec<u8>, Error> {
    let missing = || Error::Config(format!("missing {VALID_ATTACHMENTS}"));
    let valid = conf.valid_attachments.as_ref().ok_or_else(missing)?;
    let mut failed = None;
    if let Some(state) = StateDir::find(&conf.data_dir) {
        for key in state.keys()?.iter().filter(|key| !is_valid(key, valid)) {
            if let Err(error) = collect(environment, conf, &state, key) {
                note(&format!("GC of {key}: {error}"));
                failed.get_or_insert(error);
            }
        }
    }
    let output = delegate_gc(environment, conf, valid)?;
    failed.map_or(Ok(output), Err)
}

fn is_valid(key: &Key, valid: &[Attachment]) -> bool {
    valid.iter().any(|attachment| {
        key.container_id == attachment.container_id
            && key
                .ifname
                .as_ref()
                .is_none_or(|ifname| *ifname == attachment.ifname)
    })
}

/// Files of other networks may be in the same directory.
fn collect(
    environment: &Environment,
    conf: &NetConf,
    state: &StateDir,
    key: &Key,
) -> Result<(), Error> {
    let target = Environment {
        container_id: key.container_id.clone(),
        ifname: key
            .ifname
            .clone()
            .unwrap_or_else(|| USUAL_IFNAME.to_owned()),
        netns: None,
        ..environment.clone()
    };
    let _lock = Lock::acquire(state, &Key::new(&target), lock::PATIENCE)?;
    match state.read(key) {
        Ok(Some(saved)) if saved.get("name").and_then(|name| name.as_str()) != Some(&conf.name) => {
            return Ok(());
        }
        Ok(Some(saved)) => {
            let delegate = Delegate::find(&environment.path, saved)?;
            let delegate = delegate.for_absent(&target.container_id, &target.ifname);
            delete(&target, &delegate, &[&conf.cni_version])?;
        }
        Ok(None) => {}
        Err(error @ Error::State { .. }) => {
            note(&format!("DEL by the present configuration: {error}"));
            without_state(&target, conf)?;
        }
        Err(error) => return Err(error),
    }
    state.remove(key)
}

fn delegate_gc(
    environment: &Environment,
    conf: &NetConf,
    valid: &[Attachment],
) -> Result<Vec<u8>, Error> {
    let file = subnet_file::read(&conf.subnet_file)?;
    let valid = serde_json::to_value(valid).map_err(Error::Decode)?;
    Delegate::find(&environment.path, fill::delegate(conf, &file)?)?
        .with(VALID_ATTACHMENTS, valid)
        .call(Verb::Gc)
}
