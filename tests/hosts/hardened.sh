# Settings that guides for hardened hosts name.
for scope in all default; do
  for setting in rp_filter=1 accept_redirects=0 send_redirects=0 accept_source_route=0 log_martians=1 arp_ignore=1 \
    arp_announce=2; do
    sysctl -qw "net.ipv4.conf.$scope.$setting"
  done
  sysctl -qw "net.ipv6.conf.$scope.disable_ipv6=1" "net.ipv6.conf.$scope.accept_ra=0"
done
sysctl -qw net.ipv4.ip_forward=0
