#!/bin/sh
# Builds the parts of the guest that msb carries inside itself, into
# internal/guest/assets/bin: the agent's root disk and the image "builtin"; and the program
# that VMMs start in. Needs Go and busybox (Debian: busybox-static). Does nothing when nothing
# has changed. OUT is another directory to write to.
set -eu
cd "$(dirname "$0")/../.."
arch=$(go env GOARCH)
out=${OUT:-internal/guest/assets/bin}
version=${VERSION:-$(git describe --tags --always 2>/dev/null || echo dev)}
busybox=
for b in /bin/busybox /usr/bin/busybox; do
	if [ -x "$b" ]; then busybox=$b; break; fi
done
if [ -z "$busybox" ]; then
	echo "internal/guest/build.sh: no static busybox; install it: apt-get install busybox-static" >&2
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# With cgo where msb is built with it: it loads libkrun. Not compressed, since each start copies it.
cgo=$(go env CGO_ENABLED)
vmm=vmm-$arch-static
[ "$cgo" = 0 ] || vmm=vmm-$arch-cgo
if [ "$(go env GOOS)" = linux ]; then
	mkdir -p "$out"
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/$vmm" ./internal/vm/vmm
	if ! cmp -s "$work/$vmm" "$out/$vmm"; then
		rm -f "$out"/vmm-*
		cp "$work/$vmm" "$out/$vmm"
	fi
fi

# grpcnotrace leaves gRPC's tracing pages out: 3 MB of the agent.
export CGO_ENABLED=0 GOOS=linux GOARCH="$arch"
go build -trimpath -buildvcs=false -tags grpcnotrace \
	-ldflags "-s -w -X github.com/msb-project/msb/agentd.Version=$version" -o "$work/agentd" ./agentd/guest/agentd
go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags '-s -w' -o "$work/msb-tour" ./agentd/guest/tour
unset GOOS GOARCH
CGO_ENABLED=$cgo go build -trimpath -buildvcs=false -o "$work/mkparts" ./internal/guest/mkparts

stamp=$(cat "$work/agentd" "$work/msb-tour" "$work/mkparts" "$busybox" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/.stamp-$arch" 2>/dev/null)" = "$stamp" ] &&
	[ -s "$out/agentd-$arch.ext4.gz.sha256" ] && [ -s "$out/builtin-$arch.tar.gz.sha256" ]; then
	exit 0
fi
"$work/mkparts" -agentd "$work/agentd" -tour "$work/msb-tour" -busybox "$busybox" -arch "$arch" -out "$out"
echo "$stamp" >"$out/.stamp-$arch"
