# firewalld's table with one zone, which rejects what it does not allow.
nft -f - <<RULES
table inet firewalld {
  chain filter_INPUT {
    type filter hook input priority filter + 10; policy accept;
    ct state { established, related } accept
    iifname "lo" accept
    ct state invalid drop
    tcp dport 22 accept
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD {
    type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    iifname "lo" accept
    ct state invalid drop
    reject with icmpx admin-prohibited
  }
}
RULES
