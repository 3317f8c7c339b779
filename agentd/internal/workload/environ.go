//go:build linux

package workload

import "strings"

// completeEnv adds what every process expects, and keeps the last of several
// entries with one key: which of them a program sees differs from libc to libc.
func completeEnv(env []string, id identity, tty bool) []string {
	full := []string{"PATH=" + defaultPath, "HOME=" + id.home}
	if tty {
		full = append(full, "TERM=xterm")
	}
	return MergeEnv(full, env)
}

// MergeEnv lays over on base: an entry replaces the one of its key.
func MergeEnv(base, over []string) []string {
	at := make(map[string]int, len(base)+len(over))
	out := make([]string, 0, len(base)+len(over))
	for _, list := range [][]string{base, over} {
		for _, e := range list {
			key, _, _ := strings.Cut(e, "=")
			if i, ok := at[key]; ok {
				out[i] = e
				continue
			}
			at[key] = len(out)
			out = append(out, e)
		}
	}
	return out
}

func envValue(env []string, key string) string {
	for _, e := range env {
		if k, v, _ := strings.Cut(e, "="); k == key {
			return v
		}
	}
	return ""
}
