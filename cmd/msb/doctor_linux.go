package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// landlock reports the kernel's Landlock ABI version, by which the VMM's file access is confined.
func landlock() finding {
	const version = 1 // LANDLOCK_CREATE_RULESET_VERSION
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if errno != 0 {
		return finding{
			Name: "landlock", Detail: "not in this kernel (" + errno.Error() + ")",
			Remedy: "a kernel from 5.13 with lsm=landlock confines the VMM's files as well; msb runs without",
		}
	}
	return finding{Name: "landlock", OK: true, Detail: fmt.Sprintf("ABI %d", abi)}
}
