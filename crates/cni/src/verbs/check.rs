//! CHECK: the pod's subnets are still this node's, and the delegate finds everything in place.

use super::present::present;
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill,
    netconf::{NetConf, Object},
    prev_result::with_explicit_gateways,
    state::StateDir,
    subnet_file,
};

pub(super) fn check(environment: &Environment, conf: NetConf) -> Result<Vec<u8>, Error> {
    let missing = || Error::Config("required prevResult missing".to_owned());
    let prev_result = conf
        .prev_result
        .clone()
        .map(with_explicit_gateways)
        .ok_or_else(missing)?;
    let saved = saved(environment, &conf)?.ok_or_else(|| Error::UnknownContainer {
        container_id: environment.container_id.clone(),
        ifname: environment.ifname.clone(),
        dir: conf.data_dir.clone(),
    })?;
    check_subnets(&conf, &saved)?;
    let mut delegate = Delegate::find(&environment.path, saved)?
        .with("cniVersion", conf.cni_version)
        .with("prevResult", prev_result);
    if let Some(runtime_config) = conf.runtime_config {
        delegate = delegate.with("runtimeConfig", runtime_config);
    }
    delegate.call(Verb::Check)
}

fn saved(environment: &Environment, conf: &NetConf) -> Result<Option<Object>, Error> {
    let Some(state) = StateDir::find(&conf.data_dir) else {
        return Ok(None);
    };
    present(&state, environment).map_or(Ok(None), |key| state.read(&key))
}

/// Checks that the pod's ranges are those of this node: other nodes cannot reach a pod outside its
/// subnets. Without a valid subnet.env the check passes, because STATUS reports that.
fn check_subnets(conf: &NetConf, saved: &Object) -> Result<(), Error> {
    let Ok(file) = subnet_file::read(&conf.subnet_file) else {
        return Ok(());
    };
    let node = fill::ranges(&file);
    let pod = saved
        .get("ipam")
        .and_then(|ipam| ipam.get("ranges"))
        .unwrap_or_default();
    if *pod == node {
        Ok(())
    } else {
        Err(Error::SubnetChanged {
            pod: pod.to_string(),
            node: node.to_string(),
        })
    }
}
