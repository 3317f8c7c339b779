package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// describe lists machine and versions, a line each: figures mean little without them.
func describe(ctx context.Context, root string) []string {
	read := func(path string) string {
		text, _ := os.ReadFile(path) // what can't be read is left out
		return string(text)
	}
	match := func(text, pattern string) string {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
			return strings.TrimSpace(m[1])
		}
		return "unknown"
	}
	said := func(argv ...string) string {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	memory := match(read("/proc/meminfo"), `MemTotal:\s+(\d+) kB`)
	lines := []string{
		"msb " + said("git", "describe", "--tags", "--always"),
		fmt.Sprintf("%d CPUs, %s; memory %s kB; load at the end %s", runtime.NumCPU(), match(read("/proc/cpuinfo"), `model name\s*:\s*(.*)`), memory, load()),
		fmt.Sprintf("Linux %s, %s", strings.TrimSpace(read("/proc/sys/kernel/osrelease")), runtime.Version()),
		"gvproxy " + match(read(filepath.Join(root, "bench", "peers", "go.mod")), `gvisor-tap-vsock (\S+)`) + ", microsandbox 0.7.2 (scripts/npm), microsandbox-mcp (bench/mcp/npm)",
	}
	for _, name := range []string{"qemu-system-x86", "slirp4netns", "dnsmasq-base", "dnsperf", "nghttp2-client", "wrk", "mitmproxy", "squid-openssl", "tshark"} {
		if v := said("dpkg-query", "-W", "-f", "${Version}", name); v != "unknown" {
			lines = append(lines, name+" "+v)
		}
	}
	return lines
}
