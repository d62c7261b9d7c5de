//! The CNI part of a container runtime: it calls the plugins of a list in order, as the
//! specification requires.
//!
//! The node has its own `/var/lib` besides its own `/run`, so that nothing a plugin keeps there
//! outlives the lab.

mod list;
mod pod;
mod recorder;

use std::{env, fs, path::PathBuf, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

pub use self::{
    list::{List, addresses, shipped},
    pod::KubePod,
    recorder::{Call, Recorder},
};
use crate::{ChildGuard, Host, Lab, Node, Output, host::HostCommand};

/// The directory of the distribution's plugins.
pub const PLUGINS: &str = "/usr/lib/cni";
/// The directory of the plugin's state.
pub const STATE: &str = "/var/lib/cni/flannel";
/// The directory in which host-local keeps the addresses of the list that the manifest installs.
const LEASES: &str = "/var/lib/cni/networks/cbr0";
/// The `subnet.env` that the agent of a node with both families writes.
pub const DUAL: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/24\n\
    FLANNEL_IPV6_NETWORK=fd00:10:244::/56\n\
    FLANNEL_IPV6_SUBNET=fd00:10:244:7::1/64\nFLANNEL_MTU=1400\n\
    FLANNEL_IPMASQ=true\n";
/// The `subnet.env` that the agent of a node with IPv4 writes.
pub const V4: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/24\n\
    FLANNEL_MTU=1400\nFLANNEL_IPMASQ=true\n";

/// A plugin of an earlier version.
const OLDER: &str = r#"#!/bin/sh
conf=$(cat)
version=$(printf %s "$conf" | sed -n 's/.*"cniVersion":"\([^"]*\)".*/\1/p')
case $version in
REFUSED) printf '{"cniVersion":"%s","code":1,"msg":"incompatible CNI versions"}' "$version"; exit 1 ;;
esac
printf %s "$conf" | exec /usr/lib/cni/PLUGIN
"#;

/// A node with a runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    node: Node,
    plugin: PathBuf,
}

/// The target of a plugin call: a network namespace with a name, and the interface in it.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// CNI_CONTAINERID, and the name of the network namespace.
    pub id: String,
    /// CNI_IFNAME.
    pub ifname: String,
}

/// The path of the plugin, `FLANNEL_CNI`.
pub fn plugin() -> Result<PathBuf> {
    let plugin =
        env::var_os("FLANNEL_CNI").context("FLANNEL_CNI must be the path of the CNI plugin")?;
    PathBuf::from(plugin).canonicalize().context("FLANNEL_CNI")
}

impl Runtime {
    /// A new node, with the given subnet.env if there is one. The plugin is `FLANNEL_CNI`.
    pub fn new(lab: &Lab, name: &str, subnet_env: Option<&str>) -> Result<Self> {
        let runtime = Self::on(&lab.node(name)?)?;
        subnet_env.map_or(Ok(()), |text| {
            runtime.write("/run/flannel/subnet.env", text)
        })?;
        Ok(runtime)
    }

    /// Returns a runtime on an existing node, whose agent writes `subnet.env`.
    pub fn on(node: &Node) -> Result<Self> {
        let plugin = plugin()?;
        node.sh("mount -t tmpfs -o mode=0755 tmpfs /var/lib")?;
        Ok(Self {
            node: node.clone(),
            plugin,
        })
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// A sandbox with a new network namespace and an interface `eth0` to be.
    pub fn sandbox(&self, id: &str) -> Result<Sandbox> {
        self.node.sh(&format!("ip netns add {id}"))?;
        Ok(Sandbox {
            id: id.to_owned(),
            ifname: "eth0".to_owned(),
        })
    }

    /// A sandbox that is the network namespace of a host.
    fn sandbox_of(&self, host: &Host, id: &str) -> Result<Sandbox> {
        self.node
            .sh(&format!("ip netns attach {id} {}", host.pid()))?;
        Ok(Sandbox {
            id: id.to_owned(),
            ifname: "eth0".to_owned(),
        })
    }

    /// Runs a command, without blanks in its arguments, in a sandbox.
    pub fn inside(&self, sandbox: &Sandbox, line: &str) -> Result<Output> {
        self.node
            .sh(&format!("ip netns exec {} {line}", sandbox.id))
    }

    /// Writes a file of the node, with the directories to it.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let outside = self.node.outside_path(path);
        fs::create_dir_all(outside.parent().context("a file's directory")?)?;
        fs::write(outside, text).with_context(|| path.to_owned())
    }

    /// Reads a file of the node.
    pub fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.node.outside_path(path)).with_context(|| path.to_owned())
    }

    /// The names of the files in a directory of the node, sorted; of one that is not there, none.
    pub fn files(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.node.outside_path(dir))
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The plugin's state files, without its lock.
    pub fn state(&self) -> Vec<String> {
        self.files(STATE)
            .into_iter()
            .filter(|name| name != ".lock")
            .collect()
    }

    /// The addresses that host-local has given to pods of the manifest's list, sorted.
    pub fn leases(&self) -> Vec<String> {
        let files = self.files(LEASES).into_iter();
        files
            .filter(|name| !name.starts_with("last_reserved_ip") && name != "lock")
            .collect()
    }

    /// The ports of the pod bridge, if there is one.
    pub fn ports(&self) -> Vec<String> {
        self.files("/sys/class/net/cni0/brif")
    }

    /// Fails if anything of any pod is left: state, an address, a port, or a port mapping.
    pub fn expect_clean(&self) -> Result<()> {
        let (state, leases, ports) = (self.state(), self.leases(), self.ports());
        ensure!(
            state.is_empty() && leases.is_empty() && ports.is_empty(),
            "{state:?} {leases:?} {ports:?}"
        );
        for tool in ["iptables", "ip6tables"] {
            let nat = self.node.sh(&format!("{tool} -t nat -S"))?.stdout;
            ensure!(!nat.contains("-j DNAT"), "{nat}");
        }
        Ok(())
    }

    /// Puts a plugin before the distribution's that refuses versions of the specification after
    /// `newest`, and is that one otherwise; `None` takes it away.
    pub fn limit_version(&self, plugin: &str, newest: Option<&str>) -> Result<()> {
        let path = format!("{}/{plugin}", recorder::DIR);
        let Some(newest) = newest else {
            return Ok(fs::remove_file(self.node.outside_path(path))?);
        };
        let versions = [
            "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
        ];
        let refused: Vec<_> = versions
            .iter()
            .skip_while(|version| **version != newest)
            .skip(1)
            .copied()
            .collect();
        self.write(
            &path,
            &OLDER
                .replace("REFUSED", &refused.join("|"))
                .replace("PLUGIN", plugin),
        )?;
        self.node.sh(&format!("chmod 0755 {path}")).map(drop)
    }

    /// One call of the plugin, however it ends.
    pub fn call(&self, verb: &str, sandbox: Option<&Sandbox>, conf: &Value) -> Result<Output> {
        self.command("flannel", verb, sandbox, conf).run()
    }

    /// Calls the plugin, with its delegate, in an address space of at most `bytes` bytes.
    pub fn limited_to(
        &self,
        bytes: u64,
        verb: &str,
        sandbox: &Sandbox,
        conf: &Value,
    ) -> Result<Output> {
        let program = [
            "prlimit".to_owned(),
            format!("--as={bytes}"),
            self.plugin.display().to_string(),
        ];
        self.prepared(self.node.command(program), verb, Some(sandbox), conf)
            .run()
    }

    /// One call that must fail: its error object.
    pub fn error(&self, verb: &str, sandbox: Option<&Sandbox>, conf: &Value) -> Result<Value> {
        let output = self.call(verb, sandbox, conf)?;
        ensure!(
            output.code == 1,
            "exit status {} of {verb}: {output:?}",
            output.code
        );
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))
    }

    /// One call of a plugin, not yet started. Every exit status is right.
    pub fn command(
        &self,
        plugin: &str,
        verb: &str,
        sandbox: Option<&Sandbox>,
        conf: &Value,
    ) -> HostCommand {
        let program = if plugin == "flannel" {
            self.plugin.display().to_string()
        } else {
            format!("{PLUGINS}/{plugin}")
        };
        self.prepared(self.node.command([program]), verb, sandbox, conf)
    }

    fn prepared(
        &self,
        command: HostCommand,
        verb: &str,
        sandbox: Option<&Sandbox>,
        conf: &Value,
    ) -> HostCommand {
        let mut command = command.any_code().input(&conf.to_string());
        for (name, value) in self.variables(verb, sandbox) {
            command = command.env(name, &value);
        }
        command
    }

    /// Starts a call of the plugin and leaves it running.
    pub fn start(
        &self,
        what: &str,
        verb: &str,
        sandbox: &Sandbox,
        conf: &Value,
    ) -> Result<ChildGuard> {
        let file = format!("/run/{what}.json");
        self.write(&file, &conf.to_string())?;
        let mut argv = vec!["env".to_owned()];
        argv.extend(
            self.variables(verb, Some(sandbox))
                .map(|(name, value)| format!("{name}={value}")),
        );
        argv.extend(["sh", "-c", "exec \"$0\" <\"$1\""].map(str::to_owned));
        argv.extend([self.plugin.display().to_string(), file]);
        self.node.spawn(what, argv)
    }

    fn variables(
        &self,
        verb: &str,
        sandbox: Option<&Sandbox>,
    ) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let dir = self
            .plugin
            .parent()
            .map(|dir| dir.display().to_string())
            .unwrap_or_default();
        let mut variables = vec![
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_PATH", format!("{}:{dir}:{PLUGINS}", recorder::DIR)),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=p".to_owned()),
        ];
        if let Some(Sandbox { id, ifname }) = sandbox {
            variables.push(("CNI_CONTAINERID", id.clone()));
            variables.push(("CNI_IFNAME", ifname.clone()));
            variables.push(("CNI_NETNS", format!("/run/netns/{id}")));
        }
        variables.into_iter()
    }
}

/// Work on many sandboxes at the same time; the first error is the result.
pub fn at_once<S: Sync, T: Send>(
    sandboxes: &[S],
    work: impl Fn(&S) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = sandboxes
            .iter()
            .map(|sandbox| scope.spawn(|| work(sandbox)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}
