# The first process of a host that is a whole machine, in namespaces of its own. HOST is its name, STATE a
# directory for its files, CGROUPS the lines `<mount point> <options>` of its hierarchies of version 1, or empty;
# KEEPER is a command that ends when the machine is to end.
set -eu
exec 3<&0
echo "$HOST" > /proc/sys/kernel/hostname
mount --make-rprivate /
mount -t proc proc /proc
! mountpoint -q /sys || umount --recursive --lazy /sys
mount -t sysfs sysfs /sys
if [ -n "$CGROUPS" ]; then
  mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
  echo "$CGROUPS" | while read -r point options; do
    mkdir -p "$point"
    mount -t cgroup -o "$options" cgroup "$point"
  done
else
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/lock /run/netns
# What is written to these directories stays the machine's own.
for dir in etc opt var/lib var/log; do
  mkdir -p "$STATE/upper/$dir" "$STATE/work/$dir"
  mount -t overlay -o "lowerdir=/$dir,upperdir=$STATE/upper/$dir,workdir=$STATE/work/$dir" overlay "/$dir"
done
# Overlays do not go on overlays, and containers have them.
for dir in containerd kubelet; do
  mkdir -p "$STATE/$dir" "/var/lib/$dir"
  mount --bind "$STATE/$dir" "/var/lib/$dir"
done
# Kubelet's wishes for the whole kernel, and what names a machine, end here.
mkdir -p "$STATE/files"
own() {
  echo "$2" > "$STATE/files/$(basename "$1")"
  mount --bind "$STATE/files/$(basename "$1")" "$1"
}
own /proc/sys/vm/overcommit_memory 1
own /proc/sys/vm/panic_on_oom 0
own /proc/sys/kernel/panic 10
own /proc/sys/kernel/panic_on_oops 1
own /proc/sys/kernel/keys/root_maxkeys 1000000
own /proc/sys/kernel/keys/root_maxbytes 25000000
own /proc/sys/kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)"
echo "$HOST" | md5sum | cut -c1-32 > /etc/machine-id
mount --make-rshared /
ip link set lo up
echo ready
# Until then this process takes up whatever child lost its parent.
$KEEPER <&3 >/dev/null 3<&- &
keeper=$!
exec 3<&-
while kill -0 "$keeper" 2>/dev/null; do wait "$keeper" || true; done
