# Hierarchies of version 1, as systemd's hybrid mode has them.
mountpoint -q /sys/fs/cgroup && umount --recursive --lazy /sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs /sys/fs/cgroup
for controller in cpu cpuacct memory pids freezer devices; do
  grep -q "^$controller" /proc/cgroups || continue
  mkdir "/sys/fs/cgroup/$controller"
  # A controller that version 2 uses cannot be mounted.
  mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" 2>/dev/null || rmdir "/sys/fs/cgroup/$controller"
done
