#!/bin/busybox sh
# The first process of a kernel under test: files of the machine below an overlay, and on them the
# run of tests that lies next to this file. The second serial port leads to xtask.

/bin/busybox --install -s /bin
mkdir -p /dev /machine /proc /root /sys /writable
mount -t devtmpfs devtmpfs /dev
output="/dev/$(cat /output.device)"
stty -F "$output" raw -echo

fail() {
    echo "init: $*" >"$output"
    poweroff -f
}

for module in /modules/*; do
    insmod "$module" || fail "cannot load $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro machine /machine ||
    fail "cannot mount the machine's files"
mount -t tmpfs -o size=75% tmpfs /writable
mkdir /writable/data /writable/work
layers="lowerdir=/machine$(cat /userland.directory),upperdir=/writable/data,workdir=/writable/work"
mount -t overlay -o "$layers" overlay /root ||
    fail "cannot mount an overlay"
# Programs of another architecture lie on a file system without this project. What they lack,
# busybox has.
project=$(cat /project.directory)
if [ ! -d "/root$project" ]; then
    mkdir -p "/root$project" /root/dev /root/proc /root/run /root/sys /root/tmp
    mount -o bind "/machine$project" "/root$project" || fail "cannot find the project"
    for name in $(/bin/busybox --list); do
        found=$(find /root/bin /root/sbin /root/usr/bin /root/usr/sbin -name "$name" | head -n 1)
        [ -n "$found" ] || ln -s busybox "/root/bin/$name"
    done
fi
mkdir -p "/root/lib/modules/$(uname -r)"
mount -o bind "/machine$(cat /modules.directory)" "/root/lib/modules/$(uname -r)" ||
    fail "cannot find the kernel's modules"
mount -t tmpfs tmpfs /root/run
cp /run.sh /root/run/run.sh
exec switch_root /root /bin/sh /run/run.sh
