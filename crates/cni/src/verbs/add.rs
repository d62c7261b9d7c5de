//! ADD: state first, then the delegate. If that fails, its DEL, and the state goes.
//!
//! An ADD that is repeated, or that finds an interface of another network, undoes nothing: what is
//! there belongs to a pod that runs.

use super::{delete::delete, note::note};
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill,
    lock::{self, Lock},
    netconf::{NetConf, Object},
    netns::{self, Interface},
    state::{Key, StateDir},
    subnet_file,
};

pub(super) fn add(environment: &Environment, conf: NetConf) -> Result<Vec<u8>, Error> {
    let file = subnet_file::wait(&conf.subnet_file, conf.subnet_file_wait)?;
    let netconf = fill::delegate(&conf, &file)?;
    // A plugin before this one may have made the interface.
    let is_chained = conf.prev_result.is_some();
    let delegate =
        Delegate::find(&environment.path, netconf.clone())?.with_prev_result(conf.prev_result);
    let state = StateDir::create(&conf.data_dir)?;
    let key = Key::new(environment);
    let _lock = Lock::acquire(&state, &key, lock::PATIENCE)?;
    let is_there = matches!(
        netns::look(environment.netns.as_deref(), &environment.ifname),
        Interface::Present { .. }
    );
    match owner(&state, &key, &conf.name, is_there)? {
        Owner::Unknown => first(environment, &delegate, &netconf, &state, &key, is_there),
        owner => {
            let other = (owner == Owner::OtherNetwork).then(|| key.of_network(&conf.name));
            if let Some(key) = &other {
                // For DEL, which then knows that the interface is not this network's.
                state.write(key, &netconf)?;
            }
            if is_there && !is_chained {
                return Err(exists(environment));
            }
            let output = delegate.call(Verb::Add)?;
            other.map_or_else(|| state.write(&key, &netconf), |_| Ok(()))?;
            Ok(output)
        }
    }
}

/// The network that added the interface before, by the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Unknown,
    ThisNetwork,
    OtherNetwork,
}

fn owner(state: &StateDir, key: &Key, network: &str, is_there: bool) -> Result<Owner, Error> {
    let is_ours = |saved: &Object| saved.get("name").is_none_or(|name| name == network);
    match state.read(key) {
        Ok(Some(saved)) => Ok(if is_ours(&saved) {
            Owner::ThisNetwork
        } else {
            Owner::OtherNetwork
        }),
        // A file of stock flannel's does not say for which interface it is.
        Ok(None) if is_there && state.has(&key.stock()) => Ok(Owner::ThisNetwork),
        Ok(None) | Err(Error::State { .. }) => Ok(Owner::Unknown),
        Err(error) => Err(error),
    }
}

fn exists(environment: &Environment) -> Error {
    Error::Exists {
        container_id: environment.container_id.clone(),
        ifname: environment.ifname.clone(),
    }
}

fn first(
    environment: &Environment,
    delegate: &Delegate,
    netconf: &Object,
    state: &StateDir,
    key: &Key,
    is_there: bool,
) -> Result<Vec<u8>, Error> {
    // The interface is no longer another network's.
    if let Some(network) = netconf.get("name").and_then(|name| name.as_str()) {
        state.remove(&key.of_network(network))?;
    }
    state.write(key, netconf)?;
    delegate.call(Verb::Add).inspect_err(|failure| {
        let undone = match failure {
            // The delegate's DEL would delete the interface that was there before.
            _ if is_there => Ok(()),
            Error::NotStarted { .. } => Ok(()),
            _ if failure.refuses_version() => Ok(()),
            _ => delete(environment, delegate, &[]).map(drop),
        };
        let undone = match undone {
            Err(error) if failure.is_missing_plugin() => {
                note(&format!(
                    "ADD of {key} made nothing that its DEL could find: {error}"
                ));
                Ok(())
            }
            other => other,
        };
        if let Err(error) = undone.and_then(|()| state.remove(key)) {
            // The state stays for the runtime's DEL or a later GC.
            note(&format!("after a failed ADD of {key}: {error}"));
        }
    })
}
