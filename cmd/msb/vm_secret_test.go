//go:build vmtest

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// violating is a policy whose secret may stand in one field of a request, and what happens when it stands
// elsewhere.
func violating(t *testing.T, onViolation string) (policyFile string) {
	t.Helper()
	t.Setenv("VM_TEST_TOKEN", "the-real-value-of-the-token-5150")
	return write(t, "policy.toml", `version = 1
[[egress.allow]]
hosts = ["echo.msb.internal"]
protocol = "https"
[hosts]
"echo.msb.internal" = "builtin:echo"
[secrets.TOKEN]
from = "env:VM_TEST_TOKEN"
hosts = ["echo.msb.internal"]
in = ["header:Authorization"]
on_violation = "`+onViolation+`"
`)
}

func TestI9_VMViolationsCanStopSandboxes(t *testing.T) {
	const script = `msb-tour get "https://echo.msb.internal/?elsewhere=$TOKEN" 2>&1 | grep -o secret_place; sleep 1; echo still here`
	got := vmRun(t, "--timeout", "1m", "--policy", violating(t, "terminate"), "--", "sh", "-c", strings.Replace(script, "sleep 1", "sleep 1000", 1))
	got.says(t, exitSecret, "the policy ends the sandbox", "TOKEN")
	if strings.Contains(got.out, "still here") || strings.Contains(got.err, "the-real-value") {
		t.Errorf("terminate: printed %q and said %q", got.out, got.err)
	}
	vmRun(t, "--policy", violating(t, "block"), "--", "sh", "-c", script).want(t, 0, "secret_place\nstill here\n")
}

func TestVMProxyVariablesAreOptional(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:9") // of the host's own, which is none of the guest's business
	}
	const script = "env | grep -i proxy | sort"
	vmRun(t, "--", "sh", "-c", script).want(t, 0, "")
	const proxy, none = "http://192.168.127.1:3128", "localhost,127.0.0.1,::1"
	vmRun(t, "--http-proxy", "--", "sh", "-c", script).want(t, 0,
		"HTTPS_PROXY="+proxy+"\nHTTP_PROXY="+proxy+"\nNO_PROXY="+none+"\nhttp_proxy="+proxy+"\nhttps_proxy="+proxy+"\nno_proxy="+none+"\n")
}

// coresOn turns core files on: they must be for msb to turn them off.
func coresOn(t *testing.T) {
	t.Helper()
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
		t.Fatalf("core files can't be turned on for the test (it needs root): %v", err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &own) })
}

// TestI8_VMNoProcessWritesACoreFile looks at the supervisor and all that it started, from outside.
func TestI8_VMNoProcessWritesACoreFile(t *testing.T) {
	coresOn(t)
	r := background(t, "--policy", violating(t, "block"), "--", "sh", "-c", "echo up; sleep 1000")
	r.out.await(t, "up")
	below := processesBelow(r.Process.Pid)
	if !slices.ContainsFunc(below, func(p process) bool { return strings.HasPrefix(p.name, "qemu") }) || len(below) < 2 {
		t.Fatalf("processes %v, want a supervisor and its machine", below)
	}
	for _, p := range below {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(limits)) {
			if rest, ok := strings.CutPrefix(line, "Max core file size"); ok && !slices.Equal(strings.Fields(rest)[:2], []string{"0", "0"}) {
				t.Errorf("%v: core files up to %s", p, strings.TrimSpace(rest))
			}
		}
	}
	t.Logf("looked at %v", below)
}
