//! The topics of findings, for the schema of the report.

flannel_json_schema::topics! {
    /// The topic of a finding.
    Topic in "check" of "Finding":
    "addresses" "agent" "attach" "br_netfilter" "btf" "cni" "conntrack" "fast" "firewall" "flows"
    "forwarding" "guard" "ingress" "interface" "kernel" "mtu" "nexthops" "offload" "pins" "port"
    "privileges" "programs" "rp_filter" "rules" "sysctls" "tools" "udp6zerocsumrx" "vxlan"
}
