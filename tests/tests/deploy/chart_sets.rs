//! The changes that each value set of the chart makes.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{deploy, documents::Documents, helm};

/// The flags every set has that does not choose others.
const FLAGS: [&str; 6] = [
    "--ip-masq",
    "--kube-subnet-mgr",
    "--healthz-ip=127.0.0.1",
    "--healthz-port=8081",
    "--metrics-ip=$(POD_IP)",
    "--metrics-port=8082",
];

fn vxlan_in_full() -> Value {
    json!({
        "Type": "vxlan",
        "Port": 4789,
        "MTU": 1450,
        "VNI": 16_777_215,
        "DirectRouting": true,
        "MacPrefix": "0E-2B",
    })
}

/// Value sets, and the network configuration of each.
fn network_configurations() -> Vec<(&'static str, Value)> {
    let vxlan = json!({"Type": "vxlan"});
    let plain = |network: &str| json!({"Network": network, "Backend": vxlan});
    let v4 = |backend: Value| {
        let network = "10.244.0.0/16";
        json!({"Network": network, "EnableNFTables": false, "Backend": backend})
    };
    let v6 = json!({
        "EnableIPv6": true,
        "IPv6Network": "fd00:10:244::/48",
        "EnableNFTables": false,
        "Backend": vxlan,
    });
    let with = |mut config: Value, key: &str, value: Value| {
        config[key] = value;
        config
    };
    let extension = json!({
        "Type": "extension",
        "SubnetAddCommand": ["/opt/bin/add-peer", "--once"],
        "SubnetAddInterval": 60,
    });
    let tencent = json!({"Type": "tencent-vpc", "AccessKeyID": "id", "AccessKeySecret": "secret"});
    let nftables = v4(json!({"Type": "vxlan", "Port": 4789, "DirectRouting": true}));
    vec![
        ("default", v4(vxlan.clone())),
        (
            "dual-stack",
            with(v6.clone(), "Network", json!("10.244.0.0/16")),
        ),
        ("ipv6", with(v6, "EnableIPv4", json!(false))),
        ("host-gw", v4(json!({"Type": "host-gw"}))),
        ("alloc", v4(json!({"Type": "alloc"}))),
        ("ipip", v4(json!({"Type": "ipip", "DirectRouting": true}))),
        (
            "ipsec",
            v4(json!({"Type": "ipsec", "PSK": "0123456789abcdef".repeat(6), "UDPEncap": true})),
        ),
        ("udp", v4(json!({"Type": "udp", "Port": 8286, "MTU": 1400}))),
        (
            "aws-vpc",
            v4(json!({"Type": "aws-vpc", "RouteTableID": ["rtb-1", "rtb-2"]})),
        ),
        ("gce", v4(json!({"Type": "gce"}))),
        ("tencent-vpc", v4(tencent)),
        ("extension", v4(extension)),
        ("engine-auto", plain("10.244.0.0/16")),
        ("nftables", with(nftables, "EnableNFTables", json!(true))),
        ("fast", v4(json!({"Type": "vxlan", "Datapath": "fast"}))),
        ("preset-k3s", plain("10.42.0.0/16")),
        ("preset-rke2", plain("10.42.0.0/16")),
        ("preset-kubeadm", plain("10.244.0.0/16")),
        ("preset-talos", plain("10.244.0.0/16")),
        ("preset-kind", v4(json!({"Type": "vxlan"}))),
        (
            "upstream",
            with(v4(vxlan_in_full()), "Network", json!("10.42.0.0/16")),
        ),
    ]
}

#[test]
fn networks_and_backends_reach_the_network_configuration() -> Result<()> {
    for (set, expected) in network_configurations() {
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let config: Value = serde_json::from_str(documents.net_conf()?)?;
        ensure!(config == expected, "{set}: {config:#}, not {expected:#}");
    }
    Ok(())
}

#[test]
fn another_configuration_is_another_pod() -> Result<()> {
    let checksum = |set: &str| -> Result<Option<String>> {
        let Some(documents) = helm::set(set)? else {
            return Ok(None);
        };
        let annotations = documents.at("DaemonSet", "/spec/template/metadata/annotations")?;
        Ok(Some(
            annotations["checksum/config"]
                .as_str()
                .context("a checksum")?
                .to_owned(),
        ))
    };
    let (Some(default), Some(fast)) = (checksum("default")?, checksum("fast")?) else {
        return Ok(());
    };
    ensure!(
        default.len() == 64 && default != fast,
        "{default} and {fast}"
    );
    ensure!(
        checksum("metrics")? == Some(default),
        "other values are in the pods themselves"
    );
    Ok(())
}

/// `helm test` has the rights that the guide lists for it, and no more.
#[test]
fn the_chart_tests_the_network_with_the_rights_of_the_guide() -> Result<()> {
    let Some(output) =
        flannel_tests::kubernetes::helm::template(flannel_tests::kubernetes::helm::chart(), None)?
    else {
        return Ok(());
    };
    let all: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    let hooks: Vec<&Value> = all
        .iter()
        .filter(|document| document["metadata"]["annotations"]["helm.sh/hook"] == "test")
        .collect();
    let of_kind = |kind: &str| {
        hooks
            .iter()
            .find(|document| document["kind"] == kind)
            .context(kind.to_owned())
    };
    let pod = &of_kind("Pod")?["spec"];
    ensure!(
        pod["containers"][0]["args"] == json!(["connectivity", "test", "--namespace=kube-flannel"]),
        "{pod:#}"
    );
    ensure!(
        pod["serviceAccountName"] == of_kind("ServiceAccount")?["metadata"]["name"],
        "{pod:#}"
    );
    let page = fs::read_to_string(deploy("../docs/guides/cluster.md"))?;
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("```")?.0));
    let mut wanted = std::collections::BTreeSet::new();
    for block in blocks {
        for document in serde_saphyr::from_multiple::<Value>(block)? {
            wanted.extend(rights(&document));
        }
    }
    // `cluster explain` gets the pods that it is asked about; the test gets none.
    ensure!(wanted.remove(r#""get" "pods""#), "{wanted:?}");
    let found: std::collections::BTreeSet<_> = rights(of_kind("ClusterRole")?).collect();
    ensure!(found == wanted, "{found:?}, not {wanted:?}");
    Ok(())
}

/// Verb and resource of each rule of a role.
fn rights(role: &Value) -> impl Iterator<Item = String> + '_ {
    let texts = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    role["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(move |rule| {
            let (verbs, resources) = (texts(&rule["verbs"]), texts(&rule["resources"]));
            verbs.into_iter().flat_map(move |verb| {
                resources
                    .clone()
                    .into_iter()
                    .map(move |what| format!("{verb} {what}"))
            })
        })
}

#[test]
fn values_become_flags() -> Result<()> {
    let chosen = [
        "--flow-table-size=100000",
        "--fast-scope=cluster",
        "--guard-inner=off",
        "--guard-outer=audit",
        "--log-format=json",
        "--xdp-guard=auto",
        "--conntrack-liberal=false",
        "--strict-rules=true",
    ];
    let [_, kube, ip, port, metrics_ip, metrics] = FLAGS;
    let upstream = [
        "--ip-masq",
        kube,
        "--iface",
        "eth1",
        ip,
        "--healthz-port=9081",
        metrics_ip,
        metrics,
    ];
    let addresses = [
        "--healthz-ip=0.0.0.0",
        "--healthz-port=9081",
        "--metrics-ip=192.0.2.7",
        "--metrics-port=9082",
    ];
    for (set, expected) in [
        ("default", FLAGS.to_vec()),
        (
            "dual-stack",
            [&FLAGS[..], &["--ip-masq-exclude=10.0.0.0/8,fd00::/8"]].concat(),
        ),
        ("fast", [&FLAGS[..], &chosen].concat()),
        ("strict", [&FLAGS[..], &["--pod-opt-out"]].concat()),
        ("alloc", vec![kube, ip, port, metrics_ip, metrics]),
        ("metrics", [&FLAGS[..2], &addresses].concat()),
        ("upstream", upstream.to_vec()),
        ("bare", Vec::new()),
    ] {
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let flags = documents.flags()?;
        ensure!(flags == expected, "{set}: {flags:?}, not {expected:?}");
    }
    Ok(())
}

#[test]
fn containers_come_and_go() -> Result<()> {
    let usual = [
        "install-cni-plugin",
        "install-cni",
        "prepare-node",
        "kube-flannel",
    ];
    for (set, expected) in [
        ("default", usual.to_vec()),
        (
            "own-cni",
            vec!["install-cni-plugin", "prepare-node", "kube-flannel"],
        ),
        ("netpol", [&usual[..], &["kube-network-policies"]].concat()),
    ] {
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let containers = documents.containers()?;
        ensure!(containers == expected, "{set}: {containers:?}");
    }
    Ok(())
}

const NODE_TERMS: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// Value sets, JSON pointers in the pods' specification, and the values there; null for an absent
/// one.
const PLACES: &str = r#"
upstream /containers/0/image "registry.example/net/flannel-agent:v1"
upstream /initContainers/0/image "registry.example/net/flannel-agent:v1"
upstream /volumes/1/hostPath/path "/usr/libexec/cni"
upstream /volumes/2/hostPath/path "/etc/containers/net.d"
upstream /containers/0/ports/0/containerPort 9081
upstream /containers/0/ports/1/containerPort 8082
upstream /containers/0/livenessProbe/httpGet/host "127.0.0.1"
metrics /containers/0/livenessProbe/httpGet/host "127.0.0.1"
metrics /containers/0/readinessProbe/httpGet/host "127.0.0.1"
metrics /containers/0/ports/1 {"name": "metrics", "containerPort": 9082}
upstream /containers/0/livenessProbe/initialDelaySeconds 1
upstream /containers/0/readinessProbe/periodSeconds 2
upstream /containers/0/resources/requests/memory "100Mi"
upstream /nodeSelector {"example.com/network": "flannel"}
upstream /tolerations [{"operator": "Exists"}]
udp /volumes/0/hostPath {"path": "/dev/net/tun", "type": "CharDevice"}
udp /containers/0/volumeMounts/3 {"name": "tun", "mountPath": "/dev/net/tun"}
ipsec /volumes/0/emptyDir {"medium": "Memory", "sizeLimit": "1Mi"}
ipsec /containers/0/volumeMounts/3 {"name": "charon", "mountPath": "/run"}
ipsec /containers/0/securityContext/capabilities/add/4 "NET_BIND_SERVICE"
default /containers/0/securityContext/capabilities/add/4 null
own-cni /containers/0/imagePullPolicy "Always"
own-cni /containers/0/image "flannel-agent@sha256:0000000000000000000000000000000000000000000000000000000000000001"
own-cni $NODE_TERMS/0/matchExpressions/0/key "example.com/ebpf"
own-cni $NODE_TERMS/0/matchExpressions/1 null
default $NODE_TERMS/0/matchExpressions/0/key "kubernetes.io/os"
default /initContainers/2/args/2 null
fast /initContainers/2/args/2 "--conntrack-liberal=false"
default /securityContext/seLinuxOptions/type "spc_t"
bare /securityContext null
labels /containers/0/env/3 {"name": "SSL_CERT_DIR", "value": "/etc/ssl/certs"}
alloc /containers/0/env/3 {"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.10"}
alloc /containers/0/env/4 {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}
default /containers/0/env/3 null
default /initContainers/0/args/1 "/opt/cni/flannel"
own-cni /initContainers/0/args/1 "--cni-plugins"
own-cni /initContainers/0/args/2 "/opt/cni/flannel"
default /initContainers/1/args/1 "--bandwidth-from=/opt/cni/bin"
default /initContainers/1/volumeMounts/1/mountPath "/opt/cni/bin"
bare /initContainers/1/volumeMounts/2 null
bare /initContainers/1/args/1 "/etc/kube-flannel/cni-conf.json"
labels /imagePullSecrets [{"name": "pull"}]
labels /priorityClassName "1000"
bare /containers/0/livenessProbe null
bare /containers/0/ports null
bare /containers/0/resources null
bare /priorityClassName null
bare /tolerations null
"#;

#[test]
fn values_reach_their_place() -> Result<()> {
    for line in PLACES.trim().lines() {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().context(line);
        let (set, pointer, expected) = (word()?, word()?, word()?);
        let pointer = pointer.replace("$NODE_TERMS", NODE_TERMS);
        let expected: Value = serde_json::from_str(expected).context(line)?;
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let found = documents.pod(&pointer).cloned().unwrap_or_default();
        ensure!(
            found == expected,
            "{set} {pointer}: {found}, not {expected}"
        );
    }
    Ok(())
}

#[test]
fn annotations_name_the_metrics_port() -> Result<()> {
    for (set, expected) in [
        ("default", Some("8082")),
        ("upstream", Some("8082")),
        ("metrics", Some("9082")),
        ("bare", None),
    ] {
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let template = documents.at("DaemonSet", "/spec/template/metadata")?;
        let port = template
            .pointer("/annotations/prometheus.io~1port")
            .and_then(Value::as_str);
        ensure!(port == expected, "{set}: {template:#}");
    }
    Ok(())
}

#[test]
fn the_nearest_label_counts() -> Result<()> {
    for (kind, pointer, expected) in [
        ("DaemonSet", "/metadata/labels/team", json!("daemons")),
        (
            "DaemonSet",
            "/metadata/annotations/example.com~1where",
            json!("daemonset"),
        ),
        (
            "DaemonSet",
            "/metadata/annotations/example.com~1owner",
            json!("network"),
        ),
        (
            "DaemonSet",
            "/spec/template/metadata/labels/team",
            json!("pods"),
        ),
        (
            "DaemonSet",
            "/spec/template/metadata/labels/app",
            json!("flannel"),
        ),
        (
            "DaemonSet",
            "/spec/template/metadata/annotations/prometheus.io~1scrape",
            json!("false"),
        ),
        (
            "DaemonSet",
            "/spec/updateStrategy/rollingUpdate/maxUnavailable",
            json!("10%"),
        ),
        ("ConfigMap", "/metadata/labels/team", json!("network")),
        (
            "ConfigMap",
            "/metadata/annotations/example.com~1where",
            json!("configmap"),
        ),
        ("ClusterRole", "/metadata/labels/team", json!("role")),
        ("ClusterRoleBinding", "/metadata/labels/team", json!("rbac")),
        ("ServiceAccount", "/metadata/labels/team", json!("network")),
    ] {
        let Some(documents) = helm::set("labels")? else {
            return Ok(());
        };
        let found = documents.at(kind, pointer)?;
        ensure!(
            *found == expected,
            "{kind} {pointer}: {found}, not {expected}"
        );
    }
    Ok(())
}

#[test]
fn the_chart_gives_the_operator_what_the_monitor_by_hand_gives_it() -> Result<()> {
    let Some(documents) = helm::set("metrics")? else {
        return Ok(());
    };
    ensure!(
        documents.at("PodMonitor", "/metadata/labels/release")? == "prometheus",
        "the operator's label"
    );
    let by_hand = Documents::parse(&fs::read_to_string(deploy("monitoring/podmonitor.yml"))?)?;
    let (ours, by_hand) = (
        documents.at("PodMonitor", "/spec")?,
        by_hand.at("PodMonitor", "/spec")?,
    );
    ensure!(
        ours == by_hand,
        "the chart has {ours:#}\nwhere deploy/monitoring has {by_hand:#}"
    );
    Ok(())
}

#[test]
fn the_chart_brings_the_alerts_and_the_dashboard() -> Result<()> {
    let Some(documents) = helm::set("metrics")? else {
        return Ok(());
    };
    let by_hand: Value =
        serde_saphyr::from_str(&fs::read_to_string(deploy("monitoring/alerts.yml"))?)?;
    let ours = documents.at("PrometheusRule", "/spec")?;
    ensure!(
        *ours == by_hand,
        "the chart has {ours:#}\nwhere deploy/monitoring has {by_hand:#}"
    );
    ensure!(
        documents.at("PrometheusRule", "/metadata/labels/release")? == "prometheus",
        "the operator's label"
    );
    let dashboard = documents.at("ConfigMap/kube-flannel-dashboard", "/data/flannel.json")?;
    let ours: Value = serde_json::from_str(dashboard.as_str().context("a text")?)?;
    let by_hand: Value =
        serde_json::from_str(&fs::read_to_string(deploy("monitoring/dashboard.json"))?)?;
    ensure!(ours == by_hand, "another dashboard");
    let label = documents.at(
        "ConfigMap/kube-flannel-dashboard",
        "/metadata/labels/grafana_dashboard",
    )?;
    ensure!(
        label == "1",
        "the label that Grafana's sidecar looks for: {label}"
    );
    Ok(())
}

/// The token of each node is good for what the role allows: no more than the agent asks for.
#[test]
fn the_role_allows_what_the_agent_asks_for_and_no_more() -> Result<()> {
    let nodes =
        json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] });
    let status = json!({ "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] });
    let events = json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["create"] });
    let pods = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"] });
    let names = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] });
    for (set, expected) in [
        ("default", json!([nodes, status, events])),
        ("strict", json!([pods, nodes, status, events])),
        ("fast", json!([names, nodes, status, events])),
    ] {
        let Some(documents) = helm::set(set)? else {
            return Ok(());
        };
        let rules = documents.at("ClusterRole", "/rules")?;
        ensure!(*rules == expected, "{set}: {rules:#}");
        let name = documents.pod("/containers/0/env/0")?;
        let field = json!({ "fieldRef": { "fieldPath": "spec.nodeName" } });
        let by_field = json!({ "name": "NODE_NAME", "valueFrom": field });
        ensure!(*name == by_field, "{set}: {name:#}");
    }
    Ok(())
}

#[test]
fn the_policy_container_may_see_what_it_needs() -> Result<()> {
    let Some(documents) = helm::set("netpol")? else {
        return Ok(());
    };
    let rules = documents.at("ClusterRole", "/rules")?;
    let may = |resource: &str| {
        rules
            .as_array()
            .is_some_and(|rules| rules.iter().any(|rule| lists(rule, resource)))
    };
    for resource in [
        "pods",
        "namespaces",
        "nodes",
        "networkpolicies",
        "adminnetworkpolicies",
    ] {
        ensure!(may(resource), "{resource}: {rules:#}");
    }
    ensure!(
        documents.pod("/containers/1/volumeMounts/0/mountPath")? == "/lib/modules",
        "modules"
    );
    Ok(())
}

fn lists(rule: &Value, resource: &str) -> bool {
    let has = |key: &str, value: &str| {
        rule[key]
            .as_array()
            .is_some_and(|all| all.iter().any(|each| each == value))
    };
    has("resources", resource) && has("verbs", "list") && has("verbs", "watch")
}
