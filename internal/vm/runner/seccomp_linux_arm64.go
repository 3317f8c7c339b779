package runner

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var callsOfArch = []call{
	{nr: unix.SYS_FSTATAT, why: "the dynamic linker"},
}
