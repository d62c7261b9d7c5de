//! STATUS: whether an ADD would succeed now.

use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill,
    netconf::NetConf,
    state::StateDir,
    subnet_file,
};

pub(super) fn status(environment: &Environment, conf: &NetConf) -> Result<Vec<u8>, Error> {
    let unavailable = |cause| Error::Unavailable {
        cause: Box::new(cause),
        has_pods: has_pods(conf),
    };
    let file = subnet_file::read(&conf.subnet_file).map_err(unavailable)?;
    let netconf = fill::delegate(conf, &file)?;
    Delegate::find(&environment.path, netconf)
        .map_err(unavailable)?
        .call(Verb::Status)
}

/// Returns true if there is state of this network: its pods may suffer from what keeps new ones
/// away.
fn has_pods(conf: &NetConf) -> bool {
    let Some(state) = StateDir::find(&conf.data_dir) else {
        return false;
    };
    let of_network = |key| {
        state
            .read(&key)
            .ok()
            .flatten()
            .is_some_and(|saved| saved.get("name") == Some(&conf.name.clone().into()))
    };
    state
        .keys()
        .is_ok_and(|keys| keys.into_iter().any(of_network))
}
