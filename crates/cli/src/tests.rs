//! Tables of command lines and environments.

use std::{ffi::OsStr, path::PathBuf, time::Duration};

use flannel_common::abi::mode::Mode;
use flannel_iface::NamePattern;
use flannel_logging::LogFormat;
use flannel_options::{AttachMode, OptionWarning, go_style};
use flannel_store::{
    etcd::{ClientFiles, TlsFiles},
    kube::{AnnotationPrefix, KubeOptions},
};
use flannel_traffic::{MasqueradeFamilies, TrafficOptions};
use ipnet::IpNet;
use tracing::Level;

use super::*;

fn parse_with(args: &[&str], env: &[(&str, &str)]) -> Result<Command, Stop> {
    parse(
        args.iter().map(OsString::from),
        env.iter().map(|(name, value)| (name.into(), value.into())),
    )
}

fn run(args: &[&str], env: &[(&str, &str)]) -> RunOptions {
    let args: Vec<_> = ["/opt/bin/flanneld"].iter().chain(args).copied().collect();
    match parse_with(&args, env) {
        Ok(Command::Run(options)) => *options,
        Ok(Command::Once(other)) => panic!("{args:?}: {other:?}"),
        Err(stop) => panic!("{args:?}: {}", stop.text),
    }
}

fn mistakes(args: &[&str], env: &[(&str, &str)]) -> String {
    let args: Vec<_> = ["flanneld"].iter().chain(args).copied().collect();
    let stop = parse_with(&args, env).expect_err("a mistake");
    assert_eq!((stop.code, stop.to_stderr), (64, true), "{}", stop.text);
    stop.text
}

fn normalised(args: &[&str], env: &[(&str, &str)]) -> Vec<String> {
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    let normalised = go_style::normalise(args.iter().map(OsString::from), env);
    assert_eq!(normalised.mistakes, [], "{args:?}");
    normalised.flags
}

#[test]
fn go_spellings_become_one() {
    for (args, expected) in [
        (&["-etcd-prefix=/a"][..], &["--etcd-prefix=/a"][..]),
        (&["--etcd-prefix", "/a"], &["--etcd-prefix=/a"]),
        (&["--etcd-prefix", "--v"], &["--etcd-prefix=--v"]),
        (&["--etcd-prefix=/a=b"], &["--etcd-prefix=/a=b"]),
        (&["--etcd-prefix="], &["--etcd-prefix="]),
        (&["--ip-masq"], &["--ip-masq=true"]),
        (&["-ip-masq=F", "--v", "0x4"], &["--ip-masq=false", "--v=4"]),
        (&["-ip-masq=ipv6"], &["--ip-masq=ipv6"]),
        (&["--v=1", "--v=2"], &["--v=2"]),
        (&["--iface=a", "-iface", "b"], &["--iface=a", "--iface=b"]),
        (
            &["--vmodule=", "--log_backtrace_at=", "--iptables-resync=0x5"],
            &["--iptables-resync=5"],
        ),
        (&["--v=1", "--"], &["--v=1"]),
        (&["--help", "--nonsense"], &["--help"]),
    ] {
        assert_eq!(normalised(args, &[]), expected, "{args:?}");
    }
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let env = [
        ("FLANNELD_ETCD_PREFIX", "/env"),
        ("FLANNELD_V", "010"),
        ("FLANNELD_IFACE", "a,b"),
        ("FLANNELD_PUBLIC_IP", ""),
        ("FLANNELD_VERSION", "true"),
        ("FLANNELD_PORT", "tcp://10.0.0.1:80"),
        ("FLANNELD_VMODULE", "main=9"),
    ];
    let from_env = normalised(&["--etcd-prefix=/arg", "--vmodule="], &env);
    assert_eq!(from_env, ["--etcd-prefix=/arg", "--iface=a,b", "--v=8"]);
}

#[test]
fn defaults_are_flannels() {
    let options = run(&[], &[]);
    assert_eq!(
        options.etcd.endpoints,
        ["http://127.0.0.1:4001", "http://127.0.0.1:2379"]
    );
    assert_eq!(options.etcd.prefix, "/coreos.com/network");
    assert_eq!(options.etcd.lease_ttl, Duration::from_hours(24));
    assert_eq!(options.etcd.renew_margin, Duration::from_hours(1));
    assert_eq!(options.etcd.credentials, None);
    assert_eq!(
        options.paths.subnet_file,
        PathBuf::from("/run/flannel/subnet.env")
    );
    assert_eq!(options.paths.state_dir, PathBuf::from("/run/flannel"));
    assert_eq!(
        options.paths.bpf_pin_root,
        PathBuf::from("/sys/fs/bpf/flannel")
    );
    assert_eq!(
        (
            options.iface.public_ip,
            options.traffic,
            options.datapath.mode
        ),
        (None, TrafficOptions::default(), None)
    );
    assert_eq!(
        (
            options.log.level,
            options.log.format,
            options.datapath.attach
        ),
        (Level::INFO, LogFormat::Text, AttachMode::Auto)
    );
    assert!(options.etcd.tls.is_empty() && options.iface.patterns.is_empty());
    assert_eq!(options.listeners.metrics, None);
    assert_eq!(
        (
            options.listeners.healthz,
            options.iface.can_reach,
            options.fast.flow_table_size
        ),
        (None, None, None)
    );
    assert_eq!(options.warnings, []);
}

const ARGUMENTS: [&str; 30] = [
    "--etcd-endpoints=127.0.0.1:1, http://[::1]:2/,https://etcd.example:3",
    "--etcd-cafile=/ca",
    "--etcd-certfile=/cert",
    "--etcd-keyfile=/key",
    "--iface-regex=^eth",
    "--iface-regex=",
    "--iface-can-reach=192.0.2.9",
    "--healthz-ip=::1",
    "--healthz-port=0x50",
    "--metrics-ip=192.0.2.7",
    "--metrics-port=9100",
    "--log-format=json",
    "--etcd-username=root",
    "--etcd-password=hunter2",
    "--public-ip=192.0.2.1",
    "--subnet-lease-renew-margin=720",
    "--subnet-lease-ttl=10",
    "--ip-masq",
    "--ip-masq-exclude=10.1.2.3/8, 192.0.2.9",
    "--ip-masq-exclude=fd00::/8,10.0.0.0/8",
    "--ip-masq-fully-random-disable",
    "--iptables-forward-rules=false",
    "--iptables-resync=60",
    "--ip-blackhole-route",
    "--v=6",
    "--datapath=kernel",
    "--attach=clsact",
    "--flow-table-size=1000",
    "--iface=eth0",
    "--iface=",
];

fn typed_traffic() -> TrafficOptions {
    let resync = Duration::from_mins(1);
    let exempt: Vec<IpNet> = ["10.0.0.0/8", "192.0.2.9/32", "fd00::/8"]
        .map(|prefix| prefix.parse().expect("a prefix"))
        .into();
    let masquerade = MasqueradeFamilies::BOTH;
    TrafficOptions {
        masquerade,
        exempt,
        random_fully: false,
        forward: false,
        blackhole: true,
        resync,
    }
}

#[test]
fn every_option_is_typed() {
    let options = run(&ARGUMENTS, &[]);
    assert_eq!(
        options.etcd.endpoints,
        [
            "http://127.0.0.1:1",
            "http://[::1]:2",
            "https://etcd.example:3"
        ]
    );
    let client = ClientFiles {
        certificate: "/cert".into(),
        key: "/key".into(),
    };
    assert_eq!(
        options.etcd.tls,
        TlsFiles {
            ca: Some("/ca".into()),
            client: Some(client)
        }
    );
    assert_eq!(
        options.iface.patterns,
        [NamePattern::new("^eth").expect("a pattern")]
    );
    assert_eq!(options.iface.can_reach, Some([192, 0, 2, 9].into()));
    assert_eq!(
        options.listeners.healthz,
        Some(([0, 0, 0, 0, 0, 0, 0, 1], 80).into())
    );
    assert_eq!(
        options.listeners.metrics,
        Some(([192, 0, 2, 7], 9100).into())
    );
    assert_eq!(options.log.format, LogFormat::Json);
    assert_eq!(options.etcd.renew_margin, Duration::from_secs(5));
    assert_eq!(options.iface.public_ip, Some([192, 0, 2, 1].into()));
    assert_eq!(options.datapath.mode, Some(Mode::Kernel));
    assert_eq!(
        (options.log.level, options.datapath.attach),
        (Level::TRACE, AttachMode::Clsact)
    );
    assert_eq!(options.traffic, typed_traffic());
    assert_eq!(options.fast.flow_table_size, Some(1_000));
    assert_eq!(options.iface.iface, ["eth0"]);
    assert_eq!(options.warnings, [OptionWarning::PlainEndpoints]);
    assert!(!format!("{options:?}").contains("hunter2"));
    assert_eq!(
        options
            .etcd
            .credentials
            .map(|both| both.password.reveal().to_owned()),
        Some("hunter2".to_owned())
    );
}

#[test]
fn masquerade_is_chosen_for_each_family() {
    let families = |args: &[&str], env: &[(&str, &str)]| {
        let MasqueradeFamilies { v4, v6 } = run(args, env).traffic.masquerade;
        (v4, v6)
    };
    for (args, expected) in [
        (&[][..], (false, false)),
        (&["--ip-masq"], (true, true)),
        (&["--ip-masq=T"], (true, true)),
        (&["--ip-masq=0"], (false, false)),
        (&["--ip-masq=ipv4"], (true, false)),
        (&["--ip-masq", "--ip-masq=ipv6"], (false, true)),
    ] {
        assert_eq!(families(args, &[]), expected, "{args:?}");
    }
    assert_eq!(
        families(&[], &[("FLANNELD_IP_MASQ", "ipv4")]),
        (true, false)
    );
    let exempt = run(
        &["--ip-masq"],
        &[("FLANNELD_IP_MASQ_EXCLUDE", "10.0.0.0/8,fd00::/8")],
    );
    assert_eq!(
        (exempt.traffic.exempt.len(), exempt.warnings),
        (2, Vec::new())
    );
    assert_eq!(
        run(&["--ip-masq-exclude=10.0.0.0/8"], &[]).warnings,
        [OptionWarning::NothingToExempt]
    );
}

#[test]
fn kubernetes_is_a_store_when_asked_for() {
    assert_eq!(
        run(
            &["--kubeconfig-file=/a", "--kube-annotation-prefix=Nonsense"],
            &[]
        )
        .kube,
        None
    );
    let kube = run(&["--ip-masq=false", "--kube-subnet-mgr"], &[])
        .kube
        .expect("Kubernetes");
    let defaults = KubeOptions {
        api_url: None,
        kubeconfig: None,
        prefix: AnnotationPrefix::default(),
        net_config: PathBuf::from("/etc/kube-flannel/net-conf.json"),
        set_network_unavailable: true,
        pod_opt_out: false,
    };
    assert_eq!(kube, defaults);
    let args = [
        "--kube-subnet-mgr",
        "--kube-api-url=https://192.0.2.1:6443",
        "--kubeconfig-file=/etc/kubeconfig",
        "--kube-annotation-prefix=example.com/net",
        "--net-config-path=/etc/net-conf.json",
        "--set-node-network-unavailable=false",
        "--pod-opt-out",
    ];
    let set = KubeOptions {
        api_url: Some("https://192.0.2.1:6443".to_owned()),
        kubeconfig: Some(PathBuf::from("/etc/kubeconfig")),
        prefix: "example.com/net-".parse().expect("a prefix"),
        net_config: PathBuf::from("/etc/net-conf.json"),
        set_network_unavailable: false,
        pod_opt_out: true,
    };
    assert_eq!(run(&args, &[]).kube, Some(set));
    let text = mistakes(
        &[
            "--kube-subnet-mgr",
            "--kube-annotation-prefix=org",
            "--kube-api-url=host",
        ],
        &[],
    );
    for expected in [
        "--kube-annotation-prefix: \"org\" is no annotation prefix",
        "--kube-api-url is \"host\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_password_in_a_url_is_refused_and_not_quoted() {
    const SECRET: &str = "S3cr3t";
    let etcd = "--etcd-endpoints has a user name or password in a URL, which is not used and would \
        be shown; use \
                --etcd-username and FLANNELD_ETCD_PASSWORD, or --etcd-password";
    for url in [
        "https://flannel:S3cr3t@192.0.2.1:2379",
        "http://192.0.2.1:2379,http://S3cr3t@192.0.2.2:2379",
        "flannel:S3cr3t@192.0.2.1:2379",
        "ftp://flannel:S3cr3t@192.0.2.1",
        "http://flannel:S3cr3t x@192.0.2.1",
        "http://flannel:S3cr3t ,x@192.0.2.1",
    ] {
        for text in [
            mistakes(&[&format!("--etcd-endpoints={url}")], &[]),
            mistakes(&[], &[("FLANNELD_ETCD_ENDPOINTS", url)]),
        ] {
            assert!(
                text.contains(etcd) && !text.contains(SECRET),
                "{url}: {text}"
            );
        }
    }
    let kube = "--kube-api-url has a user name or password in a URL, which is not used and would \
        be shown; use \
                --kubeconfig-file for credentials";
    for url in [
        "https://flannel:S3cr3t@192.0.2.1:6443",
        "flannel:S3cr3t@192.0.2.1",
        "https://flannel:S3cr3t x@192.0.2.1",
    ] {
        for text in [
            mistakes(
                &["--kube-subnet-mgr", &format!("--kube-api-url={url}")],
                &[],
            ),
            mistakes(&["--kube-subnet-mgr"], &[("FLANNELD_KUBE_API_URL", url)]),
        ] {
            assert!(
                text.contains(kube) && !text.contains(SECRET),
                "{url}: {text}"
            );
        }
    }
    let path = run(
        &[
            "--kube-subnet-mgr",
            "--kube-api-url=https://192.0.2.1/k8s/a@b",
        ],
        &[],
    )
    .kube
    .expect("Kubernetes");
    assert_eq!(path.api_url.as_deref(), Some("https://192.0.2.1/k8s/a@b"));
}

#[test]
fn half_a_client_certificate_is_none() {
    let half = run(
        &["--etcd-endpoints=https://a:1", "--etcd-certfile=/cert"],
        &[],
    );
    assert_eq!(half.etcd.tls.client, None);
    assert_eq!(half.warnings, [OptionWarning::HalfClientCertificate]);
    let ca_alone = run(&["--etcd-endpoints=https://a:1", "--etcd-cafile=/ca"], &[]);
    assert_eq!(ca_alone.etcd.tls.ca, Some("/ca".into()));
    assert_eq!(ca_alone.warnings, []);
}

#[test]
fn a_flow_table_is_neither_tiny_nor_huge() {
    for size in ["-1", "1", "999", "1048577", "4294967296"] {
        let text = mistakes(&[&format!("--flow-table-size={size}")], &[]);
        assert!(
            text.contains(&format!(
                "--flow-table-size is \"{size}\", expected 1000 to 1048576 flows, or 0"
            )),
            "{text}"
        );
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let args = [
        "--nonsense",
        "--ifce=eth0",
        "-v=x",
        "true",
        "---v",
        "--vmodule=main=9",
        "--attach=xdp",
        "--iface",
    ];
    let text = mistakes(
        &args,
        &[
            ("FLANNELD_IP_MASQ", "maybe"),
            ("FLANNELD_LOG_BACKTRACE_AT", "a.go:9"),
        ],
    );
    for expected in [
        "unknown flag --nonsense\n",
        "unknown flag --ifce; did you mean --iface?",
        "--v is \"x\", expected a whole number",
        "unexpected argument \"true\"",
        "bad flag syntax \"---v\"",
        "--vmodule=main=9 is not built yet; leave it out",
        "--iface needs a value",
        "FLANNELD_IP_MASQ is \"maybe\", expected true, false, ipv4 or ipv6",
        "FLANNELD_LOG_BACKTRACE_AT=a.go:9 is not built yet",
        "--attach is \"xdp\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn values_are_checked_at_once_as_well() {
    let args = [
        "--etcd-endpoints=https://a:1,,ftp://b",
        "--public-ip=fd00::1",
        "--subnet-lease-renew-margin=1440",
        "--subnet-lease-ttl=-1",
        "--iptables-resync=0",
        "--datapath=faster",
        "--attach=xdp",
        "--state-dir=run",
        "--iface-regex=(",
        "--iface-can-reach=gateway",
        "--healthz-ip=localhost",
        "--healthz-port=65536",
        "--metrics-ip=eth0",
        "--metrics-port=-1",
        "--log-format=logfmt",
        "--ip-masq-exclude=0.0.0.0/0,everywhere",
        "--fast-exclude=10.244.1.0/33",
    ];
    let text = mistakes(&args, &[]);
    for expected in [
        "--etcd-endpoints is \"\"",
        "--etcd-endpoints is \"ftp://b\"",
        "--public-ip is \"fd00::1\"",
        "--subnet-lease-renew-margin is \"1440\", expected 1 to 1439",
        "--subnet-lease-ttl is \"-1\"",
        "--iptables-resync is \"0\", expected 1 to 4294967295 seconds",
        "--datapath is \"faster\", expected kernel, encap, fast or auto",
        "--attach is \"xdp\"",
        "--state-dir is \"run\", expected an absolute path",
        "--iface-regex=( is no regular expression",
        "--iface-can-reach is \"gateway\", expected an IP address",
        "--healthz-ip is \"localhost\", expected an IP address",
        "--healthz-port is \"65536\", expected 0 to 65535",
        "--metrics-ip is \"eth0\", expected an IP address",
        "--metrics-port is \"-1\", expected 0 to 65535",
        "--log-format is \"logfmt\", expected text, json or klog",
        "--ip-masq-exclude is \"0.0.0.0/0\", expected a longer prefix; --ip-masq=ipv4",
        "--ip-masq-exclude is \"everywhere\", expected an IP address, or a prefix",
        "--fast-exclude is \"10.244.1.0/33\"",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn the_name_decides_what_runs_and_where_help_goes() {
    assert!(matches!(
        parse_with(&["flannel-agent", "run", "-v=1"], &[]),
        Ok(Command::Run(_))
    ));
    for (args, to_stderr) in [
        (&["flanneld", "--version"][..], true),
        (&["flannel-agent", "run", "-version"], false),
        (&["flannel-agent", "--version"], false),
    ] {
        let stop = parse_with(args, &[("FLANNELD_V", "x")]).expect_err("the version");
        assert_eq!((stop.code, stop.to_stderr), (0, to_stderr), "{args:?}");
        assert!(
            stop.text
                .ends_with(concat!(env!("CARGO_PKG_VERSION"), "\n")),
            "{args:?}: {}",
            stop.text
        );
    }
    for (args, to_stderr) in [
        (&["flanneld", "-h"][..], true),
        (&["flannel-agent", "run", "--help"], false),
    ] {
        let stop = parse_with(args, &[]).expect_err("help");
        assert_eq!((stop.code, stop.to_stderr), (0, to_stderr), "{args:?}");
        assert!(stop.text.contains("--etcd-endpoints"), "{}", stop.text);
    }
    assert_eq!(
        parse_with(&["flannel-agent", "walk"], &[])
            .expect_err("usage")
            .code,
        64
    );
}

#[test]
fn names_of_flannels_programs_stand_for_subcommands() {
    let installs = parse_with(&["/opt/bin/install-conf", "/a", "/b"], &[]).expect("a command");
    assert!(
        matches!(installs, Command::Once(Once::Install(_))),
        "{installs:?}"
    );
    let wrong = parse_with(&["/opt/bin/install-conf"], &[]).expect_err("no arguments");
    assert!(
        wrong.code == 64 && wrong.text.contains("<SOURCE>"),
        "{}",
        wrong.text
    );
    let plain = parse_with(&["/opt/bin/flannel-agent", "status"], &[]).expect("a command");
    assert!(matches!(plain, Command::Once(Once::Status(_))), "{plain:?}");
}

#[test]
fn flows_without_a_subcommand_are_listed() {
    let parsed = |line: &str| parse_with(&line.split(' ').collect::<Vec<_>>(), &[]);
    let of = |line: &str| format!("{:?}", parsed(line).expect("a command"));
    assert_eq!(of("flannel-agent flows"), of("flannel-agent flows list"));
    assert_eq!(
        of("flannel-agent flows --port=80 -f"),
        of("flannel-agent flows list --port=80 -f")
    );
    assert!(of("flannel-agent flows flush").contains("Flush"));
    let help = parsed("flannel-agent flows --help").expect_err("help");
    assert!(
        help.code == 0 && help.text.contains("flush"),
        "{}",
        help.text
    );
    assert_eq!(
        parsed("flannel-agent flows lists")
            .expect_err("not a subcommand")
            .code,
        64
    );
}

/// The parser takes an empty variable for a value; for the agent it is an unset one.
#[test]
fn variables_of_the_agent_are_left_to_its_own_reader() {
    use clap::CommandFactory as _;
    let cli = Cli::command();
    let of = |command: &clap::Command| -> Vec<String> {
        let is_of_agent = |env: &OsStr| env.to_string_lossy().starts_with("FLANNELD_");
        let with_variable = command
            .get_arguments()
            .filter(|arg| arg.get_env().is_some_and(is_of_agent));
        with_variable.map(|arg| arg.get_id().to_string()).collect()
    };
    let verbs = cli
        .get_subcommands()
        .filter(|verb| ["run", "lease"].contains(&verb.get_name()));
    let found: Vec<String> = verbs
        .flat_map(|verb| std::iter::once(verb).chain(verb.get_subcommands()))
        .flat_map(of)
        .collect();
    assert_eq!(found, [""; 0]);
}
