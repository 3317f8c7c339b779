//go:build !linux

package main

import (
	"context"

	"golang.org/x/sys/unix"
)

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func confinement(context.Context) []finding {
	const why, remedy = "Linux only", "run msb on Linux"
	return []finding{
		{Name: "landlock", Detail: why, Remedy: remedy}, {Name: "cgroup", Detail: why, Remedy: remedy},
		{Name: "confinement", Detail: why, Remedy: remedy},
	}
}
