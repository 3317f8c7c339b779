//go:build !linux

package hypervisors

func run([]string) (int, bool) { return 0, false }
