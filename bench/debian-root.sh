#!/bin/sh
# Unpacks a suite of Debian with the servers that have HTTP/3 into a folder, for `--http3 --root FOLDER`.
#
# usage: debian-root.sh FOLDER [SUITE [MIRROR]]; as root, with debootstrap installed
set -eu
folder=${1:?usage: debian-root.sh FOLDER [SUITE [MIRROR]]}
suite=${2:-testing}
mirror=${3:-http://deb.debian.org/debian}
packages="nginx haproxy caddy curl ca-certificates"

debootstrap --variant=minbase "$suite" "$folder" "$mirror"
# Services of packages must not start.
printf '#!/bin/sh\nexit 101\n' > "$folder/usr/sbin/policy-rc.d"
chmod +x "$folder/usr/sbin/policy-rc.d"
chroot "$folder" apt-get update
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive chroot "$folder" apt-get install -y --no-install-recommends $packages
chroot "$folder" nginx -v
chroot "$folder" haproxy -v | head -n 1
chroot "$folder" caddy version
chroot "$folder" curl --version | head -n 1
