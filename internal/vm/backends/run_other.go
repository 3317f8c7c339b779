//go:build !linux

package backends

func run([]string) (int, bool) { return 0, false }
