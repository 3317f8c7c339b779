package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/mcp"
)

// TestMCPNeedsNoStderrReader: a client may close it, or leave it unread until the pipe is full: calls are
// answered, a server that ends because of an error ends all the same, and the file has what nobody read.
func TestMCPNeedsNoStderrReader(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"closed", "full"} {
		errR, errW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errR.Close() }()
		if how == "full" {
			size, err := unix.FcntlInt(errW.Fd(), unix.F_SETPIPE_SZ, 4096)
			if err == nil {
				_, err = errW.Write(make([]byte, size))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		home := t.TempDir()
		cmd := command(t, []string{"MSB_HOME=" + home}, "mcp")
		cmd.Stderr = errW
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = errW.Close()
		if how == "closed" {
			_ = errR.Close()
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		ask := func(id int, method, params string) {
			t.Helper()
			if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf(`"id":%d,"result"`, id)) {
				t.Fatalf("%s: %q, %v", how, lines.Text(), lines.Err())
			}
		}
		ask(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
		for id := 2; id < 5; id++ { // each is logged
			ask(id, "tools/call", `{"name":"sandbox_list","arguments":{}}`)
		}
		endless := strings.NewReader(strings.Repeat("x", 65<<20))
		_, _ = io.Copy(in, endless) // until the server ends
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitOther {
			t.Errorf("%s: %v", how, err)
		}
		log, err := os.ReadFile(filepath.Join(home, mcp.LogFile))
		for _, line := range []string{"msg=begins", "msg=tool name=sandbox_list", "msg=ends err=\"a message of more than"} {
			if !strings.Contains(string(log), line) {
				t.Errorf("%s: no line %q in the file: %s, %v", how, line, log, err)
			}
		}
	}
}
