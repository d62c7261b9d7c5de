//! `flannel-agent docker-opts`: subnet.env as options of the Docker daemon.
//!
//! The options and the file are those of flannel's `mk-docker-opts.sh`, of which `scripts/` has one
//! for hosts without this program. What subnet.env does not have is left out.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use flannel_host::family::Family;
use flannel_netlink::Netlink;
use flannel_subnet_env::value_of;
use ipnet::Ipv4Net;

/// The file to read, the file to write, and the form of the options in it.
#[derive(Debug, Args)]
pub struct DockerOptions {
    /// The file to read
    #[arg(
        short = 'f',
        value_name = "FILE",
        default_value = "/run/flannel/subnet.env"
    )]
    subnet_file: PathBuf,
    /// The file to write
    #[arg(
        short = 'd',
        value_name = "FILE",
        default_value = "/run/docker_opts.env"
    )]
    output: PathBuf,
    /// Write a variable for each option; without -i and -c, both forms
    #[arg(short = 'i')]
    individual: bool,
    /// Write one variable with all options
    #[arg(short = 'c')]
    combined: bool,
    /// Leave --ip-masq to others
    #[arg(short = 'm')]
    no_ip_masq: bool,
    /// Name of the variable with all options; what it holds already stays in front
    #[arg(
        short = 'k',
        value_name = "NAME",
        default_value = "DOCKER_OPTS",
        value_parser = variable_name,
    )]
    key: String,
}

/// An option of Docker's, as the end of its variable's name, and as given to the daemon.
type DockerOption = (&'static str, String);

/// Writes the file. It prints nothing; a route that another node's lease left over our subnet is an
/// error.
pub async fn run(options: &DockerOptions) -> anyhow::Result<String> {
    let path = options.subnet_file.display();
    let text =
        fs::read_to_string(&options.subnet_file).with_context(|| format!("cannot read {path}"))?;
    let docker = docker_options(&text, options.no_ip_masq).with_context(|| path.to_string())?;
    let existing = env::var(&options.key).unwrap_or_default();
    let output = options.output.display();
    fs::write(&options.output, options.render(&docker, &existing))
        .with_context(|| format!("cannot write {output}"))?;
    if let Some(subnet) = value_of(&text, "FLANNEL_SUBNET").filter(|subnet| !subnet.is_empty()) {
        let subnet: Ipv4Net = subnet
            .parse()
            .with_context(|| format!("{path}: FLANNEL_SUBNET={subnet}"))?;
        refuse_foreign_route(subnet.trunc()).await?;
    }
    Ok(String::new())
}

impl DockerOptions {
    fn render(&self, docker: &[DockerOption], existing: &str) -> String {
        let both = self.individual == self.combined;
        let mut text = String::new();
        // Writing to a string cannot fail.
        if both || self.individual {
            for (name, option) in docker {
                let _ = writeln!(text, "DOCKER_OPT_{name}=\"{}\"", quoted(option));
            }
        }
        if both || self.combined {
            let options: Vec<&str> = docker.iter().map(|(_, option)| option.as_str()).collect();
            let _ = writeln!(
                text,
                "{}=\"{} {}\"",
                self.key,
                quoted(existing),
                quoted(&options.join(" "))
            );
        }
        text
    }
}

/// In alphabetical order.
fn docker_options(text: &str, no_ip_masq: bool) -> anyhow::Result<Vec<DockerOption>> {
    let value = |name| value_of(text, name).filter(|value| !value.is_empty());
    let bip = value("FLANNEL_SUBNET").map(|subnet| ("BIP", format!("--bip={subnet}")));
    let ip_masq = match value("FLANNEL_IPMASQ").filter(|_| !no_ip_masq) {
        None => None,
        Some("true") => Some(("IPMASQ", "--ip-masq=false".to_owned())),
        Some("false") => Some(("IPMASQ", "--ip-masq=true".to_owned())),
        Some(other) => bail!("FLANNEL_IPMASQ={other} is neither true nor false"),
    };
    let mtu = value("FLANNEL_MTU").map(|mtu| ("MTU", format!("--mtu={mtu}")));
    Ok([bip, ip_masq, mtu].into_iter().flatten().collect())
}

/// For the inside of double quotes, in a shell and in systemd's `EnvironmentFile=` alike.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        if matches!(c, '\\' | '"' | '$' | '`') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

fn variable_name(text: &str) -> Result<String, String> {
    let is_name = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit());
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("not the name of a variable".to_owned())
    }
}

async fn refuse_foreign_route(subnet: Ipv4Net) -> anyhow::Result<()> {
    let (netlink, _events) = Netlink::connect()?;
    let routes = netlink.routes(Family::V4).await?;
    let foreign = routes
        .iter()
        .find(|(key, route)| key.dst == subnet.into() && route.gateway.is_some());
    ensure!(
        foreign.is_none(),
        "a route sends our own subnet {subnet} to another node"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\n\
        FLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n";
    const EACH: &str = "DOCKER_OPT_BIP=\"--bip=10.1.74.1/24\"\n\
        DOCKER_OPT_IPMASQ=\"--ip-masq=true\"\nDOCKER_OPT_MTU=\"--mtu=1472\"\n";
    const ALL: &str = "DOCKER_OPTS=\" --bip=10.1.74.1/24 --ip-masq=true --mtu=1472\"\n";

    fn rendered(individual: bool, combined: bool, existing: &str) -> String {
        let (subnet_file, output, key) = (PathBuf::new(), PathBuf::new(), "DOCKER_OPTS".to_owned());
        let options = DockerOptions {
            subnet_file,
            output,
            individual,
            combined,
            no_ip_masq: false,
            key,
        };
        options.render(&docker_options(SAMPLE, false).expect("options"), existing)
    }

    #[test]
    fn neither_form_means_both() {
        for (individual, combined, expected) in [
            (true, false, EACH.to_owned()),
            (false, true, ALL.to_owned()),
            (true, true, format!("{EACH}{ALL}")),
            (false, false, format!("{EACH}{ALL}")),
        ] {
            assert_eq!(rendered(individual, combined, ""), expected);
        }
        assert!(
            rendered(false, true, "--a \"$b\"")
                .starts_with("DOCKER_OPTS=\"--a \\\"\\$b\\\" --bip=")
        );
    }

    #[test]
    fn what_is_not_there_is_left_out_and_a_third_truth_is_refused() {
        assert_eq!(
            docker_options("FLANNEL_MTU=1450\nFLANNEL_SUBNET=", false).expect("options"),
            [("MTU", "--mtu=1450".to_owned())]
        );
        assert_eq!(
            docker_options("FLANNEL_IPMASQ=yes", true).expect("left out"),
            []
        );
        let error = docker_options("FLANNEL_IPMASQ=yes", false).expect_err("neither");
        assert_eq!(
            error.to_string(),
            "FLANNEL_IPMASQ=yes is neither true nor false"
        );
    }

    #[test]
    fn a_key_is_the_name_of_a_variable() {
        for (name, good) in [
            ("DOCKER_OPTS", true),
            ("_a1", true),
            ("1a", false),
            ("", false),
            ("a;b", false),
        ] {
            assert_eq!(variable_name(name).is_ok(), good, "{name}");
        }
    }
}
