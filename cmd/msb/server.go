package main

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/mcp"
	"github.com/msb-project/msb/sandbox"
)

const (
	// tokenFile holds the token of msb server, in the state directory.
	tokenFile = "mcp-token"
	// maxToken bounds it, in bytes.
	maxToken = 256
)

func newServerCommand(ui *ui) *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Let agents use sandboxes over HTTP",
		Long:  "An MCP server that listens, for clients that connect to one instead of starting msb mcp by themselves. docs/mcp.md has the details.",
		Example: `  msb server start --policy floor.toml
  claude mcp add --transport http msb http://127.0.0.1:5555/mcp --header "Authorization: Bearer $(cat ~/.msb/mcp-token)"`,
	}
	c.AddCommand(newServerStart(ui))
	return onlyGroups(c)
}

// serverFlags say where a server listens, and for whom.
type serverFlags struct {
	listen, cert, key string
	dev               bool
	hosts             []string
}

func newServerStart(ui *ui) *cobra.Command {
	var f mcpFlags
	var s serverFlags
	c := &cobra.Command{
		Use:   "start [flags]",
		Short: "Serve MCP over HTTP, until a signal",
		Long: `Serves the Model Context Protocol over Streamable HTTP at /mcp, as msb mcp does on standard input:
the flags that bound agents are the same. Clients send the token of $MSB_HOME/mcp-token, which the
first start makes; --dev asks for none. It listens on this machine alone unless --listen says otherwise.
All clients share the server's sandboxes.`,
		Example: `  msb server start
  msb server start --dev --listen 127.0.0.1:8080 --policy floor.toml
  msb server start --listen 192.0.2.7:5555 --tls-cert cert.pem --tls-key key.pem`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return s.serve(c, ui, o)
		},
	}
	f.add(c)
	flags := c.Flags()
	flags.StringVar(&s.listen, "listen", "127.0.0.1:5555", "listen at this `address`")
	flags.BoolVar(&s.dev, "dev", false, "ask clients for no token: everybody on this machine may use the server")
	flags.StringVar(&s.cert, "tls-cert", "", "serve HTTPS with the certificates of this PEM `file`")
	flags.StringVar(&s.key, "tls-key", "", "the private key of --tls-cert, a PEM `file`")
	flags.StringArrayVar(&s.hosts, "host", nil, "a `name` of this machine that clients call it by (repeatable)")
	return c
}

func (s *serverFlags) serve(c *cobra.Command, ui *ui, o mcp.Options) error {
	usage := func(format string, args ...any) error {
		return &usageError{err: fmt.Errorf(format, args...), help: c.CommandPath() + " --help"}
	}
	at, err := net.ResolveTCPAddr("tcp", s.listen)
	switch {
	case err != nil:
		return usage("--listen %q: write ADDRESS:PORT, such as 127.0.0.1:5555", s.listen)
	case (s.cert == "") != (s.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case s.dev && !at.IP.IsLoopback():
		return usage("--dev --listen %s: without a token a server listens on 127.0.0.1 or ::1 only", s.listen)
	}
	if _, err := o.Check(); err != nil {
		return err
	}
	h, token := mcp.HTTPOptions{Hosts: s.hosts}, ""
	if !s.dev {
		if h.Token, token, err = serverToken(o.Home); err != nil {
			return err
		}
	}
	scheme := "http"
	l, err := net.ListenTCP("tcp", at)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // Serve has
	var from net.Listener = l
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return err
		}
		scheme, from = "https", tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	}
	log := slog.New(slog.NewTextHandler(mcp.NewLog(os.Stderr), nil))
	switch {
	case s.dev:
		log.Warn("no token is asked for: every user and program of this machine may use this server")
	case scheme == "http" && !at.IP.IsLoopback():
		log.Warn("without --tls-cert, who reads the network reads the token and all that agents do")
	}
	note := ""
	if token != "" {
		note = "; clients send the token of " + token
	}
	if err := ui.print(scheme + "://" + l.Addr().String() + mcp.HTTPPath + note + "\n"); err != nil {
		return err
	}
	return mcp.ServeHTTP(c.Context(), o, version, from, h, log)
}

var errToken = errors.New("the token of msb server can't be used")

// serverToken is the token that clients send, and its file. The first start makes it.
func serverToken(home *sandbox.Home) (token, path string, err error) {
	path = filepath.Join(home.Dir(), tokenFile)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		token = rand.Text()
		_, err = io.WriteString(f, token+"\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return "", "", errors.Join(err, os.Remove(path))
		}
		return token, path, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", "", err
	}
	f, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w; remove it", errToken, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", "", fmt.Errorf("%w: %s may be read by others (%s); remove it, and a new one is made", errToken, path, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	token = strings.TrimSpace(string(text))
	if err == nil && (len(token) < len(rand.Text()) || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = fmt.Errorf("%w: %s is cut short or no text; remove it, and a new one is made", errToken, path)
	}
	return token, path, err
}
