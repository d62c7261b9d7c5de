#!/bin/sh
# Writes the options of the Docker daemon that flannel's subnet.env asks for. The same as `flannel-agent docker-opts`,
# for hosts where only a shell is at hand.

usage() {
	cat >&2 <<EOF
usage: $0 [-f FILE] [-d FILE] [-i] [-c] [-m] [-k NAME]
  -f  the file to read (/run/flannel/subnet.env)
  -d  the file to write (/run/docker_opts.env)
  -i  write a variable for each option; without -i and -c, both forms
  -c  write one variable with all options
  -m  leave --ip-masq to others
  -k  name of the variable with all options (DOCKER_OPTS); what it holds already stays in front
EOF
	exit 1
}

fail() {
	echo "error: $*" >&2
	exit 1
}

# For the inside of double quotes, in a shell and in systemd's EnvironmentFile= alike.
quoted() {
	printf '%s\n' "$1" | sed 's/[\\"$`]/\\&/g'
}

env_file=/run/flannel/subnet.env
output=/run/docker_opts.env
individual=
combined=
ip_masq=1
key=DOCKER_OPTS
while getopts f:d:icmk:h option; do
	case $option in
	f) env_file=$OPTARG ;;
	d) output=$OPTARG ;;
	i) individual=1 ;;
	c) combined=1 ;;
	m) ip_masq= ;;
	k) key=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 0 ] || usage
[ "$individual$combined" ] || individual=1 combined=1
case $key in
'' | [0-9]* | *[!A-Za-z0-9_]*) fail "$key: not the name of a variable" ;;
esac
eval "existing=\${$key-}"

unset FLANNEL_SUBNET FLANNEL_MTU FLANNEL_IPMASQ
[ -r "$env_file" ] || fail "cannot read $env_file"
# Without a slash the shell would look for it elsewhere.
case $env_file in
*/*) . "$env_file" ;;
*) . "./$env_file" ;;
esac

bip=${FLANNEL_SUBNET:+--bip=$FLANNEL_SUBNET}
mtu=${FLANNEL_MTU:+--mtu=$FLANNEL_MTU}
masq=
if [ "$ip_masq" ] && [ "$FLANNEL_IPMASQ" ]; then
	# One of the two masquerades.
	case $FLANNEL_IPMASQ in
	true) masq=--ip-masq=false ;;
	false) masq=--ip-masq=true ;;
	*) fail "$env_file: FLANNEL_IPMASQ=$FLANNEL_IPMASQ is neither true nor false" ;;
	esac
fi

write() {
	if [ "$individual" ]; then
		[ -z "$bip" ] || echo "DOCKER_OPT_BIP=\"$(quoted "$bip")\""
		[ -z "$masq" ] || echo "DOCKER_OPT_IPMASQ=\"$(quoted "$masq")\""
		[ -z "$mtu" ] || echo "DOCKER_OPT_MTU=\"$(quoted "$mtu")\""
	fi
	if [ "$combined" ]; then
		all=
		for option in "$bip" "$masq" "$mtu"; do
			[ -z "$option" ] || all="$all $option"
		done
		printf '%s="%s%s"\n' "$key" "$(quoted "$existing")" "$(quoted "${all:- }")"
	fi
}
write >"$output" || fail "cannot write $output"

# A route that another node's lease left over our subnet would be preferred to the bridge.
if [ "$FLANNEL_SUBNET" ]; then
	routes=$(ip -4 route show exact "$FLANNEL_SUBNET") || fail "cannot read the routes"
	case $routes in
	*' via '*) fail "a route sends our own subnet $FLANNEL_SUBNET to another node" ;;
	esac
fi
