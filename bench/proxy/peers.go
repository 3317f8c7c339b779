package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startMitmproxy starts mitmdump as a reverse proxy that sets the header.
func startMitmproxy(ctx context.Context, dir, upstream string) (*contestant, error) {
	bin, err := exec.LookPath("mitmdump")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "-q", "--mode", "reverse:https://"+upstream, "--listen-host", "127.0.0.1", "--listen-port", port,
		"--ssl-insecure", "--certs", "*="+filepath.Join(dir, "both.pem"), "--set", "confdir="+dir,
		"--modify-headers", "/~q/Authorization/Bearer "+value, "--set", "keep_host_header=true")
	return peer("mitmproxy", cmd, port, true)
}

// startSquid starts squid with TLS on both sides: what its ssl-bump does once a
// connection is bumped. It replaces nothing, since it treats Authorization in a
// way of its own, so its figures flatter it a little.
func startSquid(ctx context.Context, dir, upstream string) (*contestant, error) {
	bin, err := exec.LookPath("squid")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	_, upstreamPort, _ := strings.Cut(upstream, ":")
	conf := fmt.Sprintf(`
https_port 127.0.0.1:%s accel defaultsite=%s tls-cert=%s/both.pem
cache_peer localhost parent %s 0 no-query originserver tls tls-cafile=%s/ca.pem sslflags=DONT_VERIFY_PEER,DONT_VERIFY_DOMAIN login=PASSTHRU
http_access allow all
never_direct allow all
cache deny all
access_log none
cache_log /dev/null
pid_filename none
workers 1
coredump_dir %s
shutdown_lifetime 0 seconds
`, port, host, dir, upstreamPort, dir, dir)
	file := filepath.Join(dir, "squid.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	c, err := peer("squid", exec.CommandContext(ctx, bin, "-N", "-f", file), port, false)
	if err == nil {
		c.token = value
	}
	return c, err
}

// peer starts cmd and waits until it takes connections.
func peer(name string, cmd *exec.Cmd, port string, http2 bool) (*contestant, error) {
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &contestant{name: name, addr: net.JoinHostPort(host, port), token: placeholder, cmd: cmd, http2: http2}
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			return c, conn.Close()
		}
	}
	c.stop()
	return nil, fmt.Errorf("%s did not listen within %v", name, patience)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
