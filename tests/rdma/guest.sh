#!/bin/busybox sh
# The first program of a guest: modules, the host's files (read-only), two interfaces, soft-RoCE on the first, then the
# command. Its words on the kernel's command line: machine=N mtu=N command=FILE. Results lie in /run/out.
box=/bin/busybox
$box mkdir -p /proc /sys /dev /host
$box mount -t proc proc /proc
$box mount -t sysfs sysfs /sys
$box mount -t devtmpfs devtmpfs /dev
word() { $box sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline; }
while read -r module; do
  $box insmod "/modules/$module" || echo "guest: no module $module"
done </modules/order

files=trans=virtio,version=9p2000.L,msize=1048576
$box mount -t 9p -o $files,cache=loose,ro root /host || $box poweroff -f
for system in proc sysfs devtmpfs; do
  place=$system
  [ $system = sysfs ] && place=sys
  [ $system = devtmpfs ] && place=dev
  $box mount -t $system $system /host/$place
done
$box mkdir -p /host/dev/shm
for place in dev/shm run var/tmp; do $box mount -t tmpfs tmpfs /host/$place; done
$box mkdir -p /host/run/out
$box mount -t 9p -o $files,cache=none out /host/run/out

inside() {
  $box env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/var/tmp TMPDIR=/var/tmp LC_ALL=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 $box chroot /host "$@"
}
inside /bin/sh -e -c "
  hostname machine$(word machine)
  ip link set lo up
  for wire in 0 1; do ip addr add 10.7\$wire.0.$(($(word machine) + 1))/24 brd + dev eth\$wire; done
  ip link set eth0 mtu $(word mtu) up
  ip link set eth1 up
  rdma link add rxe0 type rxe netdev eth0
"
# GID 0 is the link-local address, which is there once the kernel has seen that nobody else has it.
until inside /bin/sh -c 'ip -6 addr show dev eth0 scope link | grep fe80 | grep -qv tentative'; do $box usleep 50000; done
echo "guest: ready after $($box cut -d' ' -f1 /proc/uptime) s, Linux $($box uname -r)"
inside /bin/sh "$(word command)"
echo "guest: ended with $? after $($box cut -d' ' -f1 /proc/uptime) s"
$box sync
$box poweroff -f
