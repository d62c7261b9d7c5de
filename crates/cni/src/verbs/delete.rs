//! The delegate's DEL, for all verbs that delete: it must succeed after whatever an ADD left.

use super::note::note;
use crate::{
    delegate::Delegate,
    environment::{Environment, Verb},
    error::Error,
    fill, host_local,
    netconf::{NetConf, Object},
    netns::{self, Interface},
    subnet_file,
    version::SUPPORTED,
};

/// Calls the delegate's DEL.
///
/// If it refuses the version of its configuration, which an older plugin may, it gets each of
/// `versions` and then every other one, the newest first. If CNI_NETNS is not a network namespace,
/// it gets none, which lets it free the address.
pub(super) fn delete(
    environment: &Environment,
    delegate: &Delegate,
    versions: &[&str],
) -> Result<Vec<u8>, Error> {
    let result = in_any_version(delegate, versions);
    if result.is_err() && look(environment) == Interface::NotANamespace {
        note(&format!(
            "DEL without CNI_NETNS, which is not a network namespace: {}",
            environment.container_id
        ));
        let absent = delegate
            .clone()
            .for_absent(&environment.container_id, &environment.ifname);
        return in_any_version(&absent, versions);
    }
    result
}

fn look(environment: &Environment) -> Interface {
    netns::look(environment.netns.as_deref(), &environment.ifname)
}

fn in_any_version(delegate: &Delegate, versions: &[&str]) -> Result<Vec<u8>, Error> {
    let refusal = match delegate.call(Verb::Del) {
        Err(error) if error.refuses_version() => error,
        result => return result,
    };
    let tried = delegate.version().unwrap_or_default();
    let others = versions.iter().copied().chain(SUPPORTED.into_iter().rev());
    for version in others.filter(|version| *version != tried && SUPPORTED.contains(version)) {
        match delegate.clone().in_version(version).call(Verb::Del) {
            Err(error) if error.refuses_version() => {}
            result => {
                note(&format!(
                    "DEL in version {version}: the delegate does not accept {tried:?}"
                ));
                return result;
            }
        }
    }
    Err(refusal)
}

/// DEL where the state is missing: by the configuration and subnet.env, so that the address is
/// freed.
///
/// If host-local has no address for the interface, there is nothing to free, and the delegate is
/// not called: the pod must be able to go on a node whose plugins are gone, or whose disk is full.
/// An interface that another network or plugin made is left alone.
pub(super) fn without_state(environment: &Environment, conf: &NetConf) -> Result<Vec<u8>, Error> {
    let config = match Config::new(conf) {
        Ok(config) => config,
        Err(error) => {
            note(&format!(
                "DEL of {} without the delegate's: {error}",
                environment.container_id
            ));
            return Ok(Vec::new());
        }
    };
    let left = config.left(environment);
    if left.address == Some(false) {
        return Ok(Vec::new());
    }
    let result = Delegate::find(&environment.path, config.netconf).and_then(|delegate| {
        let delegate = delegate.with_prev_result(
            conf.prev_result
                .clone()
                .filter(|_| conf.passes_prev_result()),
        );
        let delegate = if left.is_foreign || environment.netns.is_none() {
            delegate.for_absent(&environment.container_id, &environment.ifname)
        } else {
            delegate
        };
        delete(environment, &delegate, &[])
    });
    match result {
        Err(error) if left.address.is_none() && error.did_not_run() => {
            note(&format!(
                "DEL of {}, of which there is no state: {error}",
                environment.container_id
            ));
            Ok(Vec::new())
        }
        result => result,
    }
}

/// A delegate's configuration that was not saved.
struct Config {
    netconf: Object,
    /// `None` if subnet.env is missing: the ranges are a stand-in.
    file: Option<flannel_subnet_env::SubnetFile>,
}

/// The remains of an ADD.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// `None` if that is not known.
    address: Option<bool>,
    /// The interface is there, and not this network's.
    is_foreign: bool,
}

impl Config {
    fn new(conf: &NetConf) -> Result<Self, Error> {
        match subnet_file::read(&conf.subnet_file) {
            Ok(file) => Ok(Self {
                netconf: fill::delegate(conf, &file)?,
                file: Some(file),
            }),
            Err(error) => {
                let netconf = fill::delegate(conf, &fill::stand_in())?;
                if host_local::is_used_by(&netconf) {
                    Ok(Self {
                        netconf,
                        file: None,
                    })
                } else {
                    Err(error)
                }
            }
        }
    }

    fn left(&self, environment: &Environment) -> Left {
        let Environment {
            container_id,
            ifname,
            ..
        } = environment;
        let allocated = host_local::is_used_by(&self.netconf)
            .then(|| host_local::has_address(&self.netconf, container_id, ifname));
        let Interface::Present(addresses) = look(environment) else {
            return Left {
                address: allocated,
                is_foreign: false,
            };
        };
        let in_network = addresses.is_empty()
            || addresses
                .iter()
                .any(|address| self.has_network_of(*address));
        let is_ours = allocated.unwrap_or(!addresses.is_empty()) && in_network;
        Left {
            address: allocated.or(is_ours.then_some(true)),
            is_foreign: !is_ours,
        }
    }

    fn has_network_of(&self, address: std::net::IpAddr) -> bool {
        let Some(file) = &self.file else { return true };
        match address {
            std::net::IpAddr::V4(v4) => {
                file.v4.networks.iter().any(|network| network.contains(&v4))
            }
            std::net::IpAddr::V6(v6) => {
                file.v6.networks.iter().any(|network| network.contains(&v6))
            }
        }
    }
}
