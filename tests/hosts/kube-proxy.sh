# 300 Services of kube-proxy, in both of its modes.
{
  echo '*nat'
  echo ':KUBE-SERVICES - [0:0]'
  echo ':KUBE-MARK-MASQ - [0:0]'
  for number in $(seq 300); do
    echo ":KUBE-SVC-$number - [0:0]"
    echo ":KUBE-SEP-$number - [0:0]"
  done
  echo '-A PREROUTING -j KUBE-SERVICES'
  echo '-A OUTPUT -j KUBE-SERVICES'
  echo '-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000'
  for number in $(seq 300); do
    at="10.96.$((number / 250)).$((number % 250 + 1))"
    echo "-A KUBE-SERVICES -d $at/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-$number"
    echo "-A KUBE-SVC-$number -j KUBE-SEP-$number"
    echo "-A KUBE-SEP-$number -p tcp -j DNAT --to-destination 10.244.9.$((number % 250 + 1)):80"
  done
  echo 'COMMIT'
} | iptables-restore --noflush
nft -f - <<RULES
table ip kube-proxy {
  map service-ips {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.9.1 . tcp . 80 : goto service-a }
  }
  chain service-a { meta l4proto tcp dnat to 10.244.9.1:80; }
  chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
  chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
  chain nat-output { type nat hook output priority -100; jump services; }
}
RULES
