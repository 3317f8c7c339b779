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
	if got := msb("port", name, "80"); !strings.HasPrefix(got.out, address+"\n") {
		t.Errorf("%+v, want %s", got, address)
	}
	msb("port", name, "81").want(t, exitOther, "")
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
	second := strings.TrimSpace(msb("port", "add", name, "80").out)
	host, _, _ := strings.Cut(second, ":")
	resp, err := http.Get("http://127.0.0.1:" + host + "/hostname")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if list := msb("ls").out; !strings.Contains(list, host+"->80/tcp") {
		t.Errorf("msb ls does not show port %s:\n%s", host, list)
	}
	if got := msb("port", "ls", name); got.code != 0 || !strings.Contains(got.out, host) {
		t.Errorf("port ls: %+v, want port %s in it", got, host)
	}
	msb("port", "rm", name, second).want(t, 0, second+"\n")
	if resp, err := http.Get("http://127.0.0.1:" + host + "/hostname"); err == nil {
		_ = resp.Body.Close()
		t.Error("the port is open though it was removed")
	}
	msb("exec", "-d", name, "--", "httpd", "-f", "-p", "127.0.0.1:81", "-h", "/etc").want(t, 0, "job-1\n")
	inside, _, _ := strings.Cut(msb("port", "add", name, "81").out, ":")
	eventually(t, "an answer of a server on the guest's 127.0.0.1", func() bool {
		resp, err := http.Get("http://127.0.0.1:" + inside + "/hostname")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	msb("stop", name).want(t, 0, name+"\n")
	if resp, err := http.Get("http://" + address + "/hostname"); err == nil {
		_ = resp.Body.Close()
		t.Error("the port is open though the sandbox was stopped")
	}
	msb("start", name).want(t, 0, name+"\n")
	if again := msb("port", name).out; !strings.HasPrefix(again, "80/tcp -> "+address+"\n") {
		t.Errorf("after a restart the ports are %q, want %s", again, address)
	}
	msb("stop", name).want(t, 0, name+"\n")
	msb("rm", name).want(t, 0, name+"\n")
	nothingLeft(t, dir)
}
