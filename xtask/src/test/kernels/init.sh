#!/bin/busybox sh
# The first process of a kernel under test: the machine's own files below an overlay, and on them
# the run of tests that lies next to this file. The second serial port leads to xtask.

/bin/busybox --install -s /bin
mkdir -p /dev /machine /proc /root /sys /writable
mount -t devtmpfs devtmpfs /dev
stty -F /dev/ttyS1 raw -echo

fail() {
    echo "init: $*" >/dev/ttyS1
    poweroff -f
}

for module in /modules/*; do
    insmod "$module" || fail "cannot load $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro machine /machine ||
    fail "cannot mount the machine's files"
mount -t tmpfs -o size=75% tmpfs /writable
mkdir /writable/data /writable/work
mount -t overlay -o lowerdir=/machine,upperdir=/writable/data,workdir=/writable/work overlay /root ||
    fail "cannot mount an overlay"
mkdir -p "/root/lib/modules/$(uname -r)"
mount -o bind "/root$(cat /modules.directory)" "/root/lib/modules/$(uname -r)" ||
    fail "cannot find the kernel's modules"
mount -t tmpfs tmpfs /root/run
cp /run.sh /root/run/run.sh
exec switch_root /root /bin/sh /run/run.sh
