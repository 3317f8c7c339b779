package runner

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var refusedOnThisArch = []uint32{unix.SYS_KEXEC_FILE_LOAD}
