# Another flannel, with its device, bridge, routes, rules and files; and vxlan devices of others.
ip link add flannel.1 type vxlan id 1 dstport 8472 nolearning dev lo
ip address add 10.244.77.0/32 dev flannel.1
ip link set flannel.1 up
ip link add cni0 type bridge
ip address add 10.244.77.1/24 dev cni0
ip link set cni0 up
ip route add 10.244.78.0/24 via 10.244.78.0 dev flannel.1 onlink
ip link add vxlan.calico type vxlan id 4096 dstport 4789 nolearning dev lo
ip link add antrea-tun0 type vxlan id 7 dstport 4790 nolearning dev lo
iptables-restore --noflush <<RULES
*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE
COMMIT
*filter
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
RULES
# Only this mount namespace has them.
mkdir -p /run/flannel
mount -t tmpfs -o mode=0755 tmpfs /run/flannel
printf 'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.77.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n' \
  >/run/flannel/subnet.env
