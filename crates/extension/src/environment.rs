//! The variables of a command, and their replacement in its arguments. Pure.

use std::{env, net::IpAddr};

use flannel_host::family::Family;
use flannel_store::{
    Peer,
    config::{CommandForm, CommandLine, NetworkConfig},
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Variables of the agent that commands do not get: some are secrets, and the socket of the service
/// manager is the agent's.
const WITHHELD: [&str; 3] = ["FLANNELD_", "NOTIFY_SOCKET", "WATCHDOG_"];

/// The pod networks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// Of IPv4; `None` where the family is off.
    pub v4: Option<IpNet>,
    /// Of IPv6.
    pub v6: Option<IpNet>,
}

impl From<&NetworkConfig> for Networks {
    fn from(config: &NetworkConfig) -> Self {
        Self {
            v4: config.ipv4.map(|family| family.network.into()),
            v6: config.ipv6.map(|family| family.network.into()),
        }
    }
}

/// A node as commands know it. What it has not, or what is not known yet, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    subnet: Option<IpNet>,
    subnet_v6: Option<IpNet>,
    public_ip: Option<IpAddr>,
    public_ipv6: Option<IpAddr>,
}

impl NodeFacts {
    /// The address at which the node is reached.
    pub fn set_address(&mut self, address: IpAddr) {
        match Family::of(address) {
            Family::V4 => self.public_ip = Some(address),
            Family::V6 => self.public_ipv6 = Some(address),
        }
    }

    /// The subnet of the node's pods.
    pub fn set_subnet(&mut self, subnet: IpNet) {
        match Family::of(subnet.addr()) {
            Family::V4 => self.subnet = Some(subnet),
            Family::V6 => self.subnet_v6 = Some(subnet),
        }
    }

    /// One family of a lease.
    pub(super) fn add(&mut self, peer: &Peer) {
        self.set_address(peer.public_ip);
        self.set_subnet(peer.subnet);
    }

    /// The node's subnets, for messages.
    pub(super) fn subnets(&self) -> String {
        let all: Vec<_> = self
            .subnet
            .iter()
            .chain(&self.subnet_v6)
            .map(ToString::to_string)
            .collect();
        all.join(" and ")
    }
}

/// The variables of one command: name and value, which is empty where there is none.
pub(super) type Variables = [(&'static str, String); 6];

pub(super) fn variables(networks: &Networks, node: &NodeFacts) -> Variables {
    fn text(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    [
        ("NETWORK", text(networks.v4)),
        ("IPV6NETWORK", text(networks.v6)),
        ("SUBNET", text(node.subnet)),
        ("IPV6SUBNET", text(node.subnet_v6)),
        ("PUBLIC_IP", text(node.public_ip)),
        ("PUBLIC_IPV6", text(node.public_ipv6)),
    ]
}

/// Returns true for a variable of the agent's own environment that a command gets.
pub(super) fn is_inherited(name: &str) -> bool {
    !WITHHELD.iter().any(|prefix| name.starts_with(prefix))
}

/// The program and its arguments, with values in the place of variables.
pub(super) fn expanded(command: &CommandLine, variables: &Variables) -> Vec<String> {
    let ours = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    };
    let value = |name: &str| match command.form {
        CommandForm::Array => ours(name),
        CommandForm::Text => {
            let inherited = || {
                Some(name)
                    .filter(|name| is_inherited(name))
                    .and_then(|name| env::var(name).ok())
            };
            Some(ours(name).or_else(inherited).unwrap_or_default())
        }
    };
    std::iter::once(&command.program)
        .chain(&command.args)
        .map(|word| expand(word, value))
        .collect()
}

/// Replaces `$NAME` and `${NAME}`; what has no value stays as it is.
fn expand(word: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let known = reference(from).and_then(|(name, length)| Some((value(name)?, length)));
        let (value, length) = known.unwrap_or_else(|| ("$".to_owned(), 1));
        text.push_str(&value);
        rest = &from[length..];
    }
    text + rest
}

/// The name that a text beginning with `$` refers to, and the length of the reference in bytes.
fn reference(text: &str) -> Option<(&str, usize)> {
    let rest = &text[1..];
    let (name, length) = if let Some(inside) = rest.strip_prefix('{') {
        let name = inside.split_once('}')?.0;
        (name, name.len() + "${}".len())
    } else {
        let end = rest
            .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        (&rest[..end], end + "$".len())
    };
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    };
    (!name.is_empty() && is_name(name)).then_some((name, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFacts {
        let mut node = NodeFacts::default();
        node.set_subnet("10.5.9.0/24".parse().expect("a subnet"));
        node.set_address("192.0.2.9".parse().expect("an address"));
        node.set_address("2001:db8::9".parse().expect("an address"));
        node
    }

    fn words(form: CommandForm, words: &[&str]) -> Vec<String> {
        let mut words = words.iter().map(ToString::to_string);
        let command = CommandLine {
            program: words.next().expect("a program"),
            args: words.collect(),
            form,
        };
        let networks = Networks {
            v4: "10.5.0.0/16".parse().ok(),
            v6: None,
        };
        expanded(&command, &variables(&networks, &node()))
    }

    #[test]
    fn variables_are_replaced_and_a_value_stays_one_argument() {
        let text = words(
            CommandForm::Text,
            &[
                "ip",
                "$SUBNET",
                "${PUBLIC_IP}x$PUBLIC_IPV6",
                "$IPV6SUBNET|",
                "$NETWORK$",
            ],
        );
        assert_eq!(
            text,
            [
                "ip",
                "10.5.9.0/24",
                "192.0.2.9x2001:db8::9",
                "|",
                "10.5.0.0/16$"
            ]
        );
    }

    #[test]
    fn only_in_a_text_other_variables_are_replaced() {
        assert!(env::var("PATH").is_ok(), "as in every process of a test");
        let asked = ["sh", "$NO_SUCH_VARIABLE-", "$PATH", "$1 $$ ${ ${a-b} $(x)"];
        let text = words(CommandForm::Text, &asked);
        assert_eq!(text[1], "-");
        assert_eq!(text[2], env::var("PATH").expect("set"));
        assert_eq!(text[3], asked[3]);
        assert_eq!(words(CommandForm::Array, &asked), asked);
    }

    #[test]
    fn secrets_and_the_service_managers_socket_are_the_agents() {
        for (name, inherited) in [
            ("PATH", true),
            ("FLANNELD_ETCD_PASSWORD", false),
            ("NOTIFY_SOCKET", false),
            ("WATCHDOG_USEC", false),
        ] {
            assert_eq!(is_inherited(name), inherited, "{name}");
        }
    }
}
