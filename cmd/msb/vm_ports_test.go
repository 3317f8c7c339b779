//go:build vmtest

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestVMPortsArePublished serves a file from a guest, and stops it.
func TestVMPortsArePublished(t *testing.T) {
	const name = "ports"
	dir, env := otherHome(t)
	msb := func(args ...string) result { return finish(t, command(t, env, args...)) }
	msb("run", "--vm", "qemu", "-q", "-d", "--name", name, "-p", "80", "--", "httpd", "-f", "-h", "/etc").want(t, 0, name+"\n")
	guest, address, _ := strings.Cut(strings.SplitN(msb("port", name).out, "\n", 2)[0], " -> ")
	if guest != "80/tcp" {
		t.Fatalf("the first port is %q", guest)
	}
	var body string
	eventually(t, "an answer of the guest's server", func() bool {
		resp, err := http.Get("http://" + address + "/hostname")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		body = strings.TrimSpace(string(raw))
		return err == nil && resp.StatusCode == http.StatusOK
	})
	if body != name {
		t.Errorf("the guest's host name is %q", body)
	}
	msb("stop", name).want(t, 0, name+"\n")
	if resp, err := http.Get("http://" + address + "/hostname"); err == nil {
		_ = resp.Body.Close()
		t.Error("the port is open though the sandbox was stopped")
	}
	msb("rm", name).want(t, 0, name+"\n")
	nothingLeft(t, dir)
}
