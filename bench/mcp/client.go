//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxAnswer bounds what a server answers, in bytes.
const maxAnswer = 16 << 20

// client is a server's process and its lines.
type client struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	last int
}

func startServer(ctx context.Context, env, argv []string) (*client, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &client{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	c.out.Buffer(nil, maxAnswer)
	return c, nil
}

// ask sends a request and returns its result.
func (c *client) ask(method, params string) (json.RawMessage, error) {
	c.last++
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.last, method, params); err != nil {
		return nil, err
	}
	for c.out.Scan() {
		var r struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(c.out.Bytes(), &r); err != nil {
			return nil, err
		}
		if r.ID == c.last && r.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, r.Error)
		}
		if r.ID == c.last {
			return r.Result, nil
		}
	}
	return nil, fmt.Errorf("%s: the server ended: %w", method, errors.Join(c.out.Err(), io.ErrUnexpectedEOF))
}

// open begins the session.
func (c *client) open() error {
	if _, err := c.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return err
	}
	_, err := io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return err
}

// call calls a tool that must succeed.
func (c *client) call(tool string, args map[string]any) error {
	text, err := json.Marshal(map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return err
	}
	result, err := c.ask("tools/call", string(text))
	if err != nil {
		return err
	}
	var r struct {
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.IsError {
		return fmt.Errorf("%s: %.300s: %w", tool, result, errors.Join(err, errFailed))
	}
	return nil
}

var errFailed = errors.New("the tool failed")

// stopWait is how long a server may take to end with its input.
const stopWait = 10 * time.Second

func (c *client) close() error {
	stop := time.AfterFunc(stopWait, func() { _ = c.cmd.Process.Signal(syscall.SIGKILL) })
	defer stop.Stop()
	return errors.Join(c.in.Close(), c.cmd.Wait())
}

// memory is the process's proportional and resident memory, in bytes.
func (c *client) memory() (pss, rss float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", c.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64) // the kernel's own number
		switch f[0] {
		case "Pss:":
			pss = n * 1024
		case "Rss:":
			rss = n * 1024
		}
	}
	return pss, rss, err
}
