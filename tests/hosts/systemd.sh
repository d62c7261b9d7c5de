# What systemd mounts at boot.
mount -t bpf bpf /sys/fs/bpf
mkdir -p /sys/fs/bpf/other
mountpoint -q /sys/fs/cgroup && umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
