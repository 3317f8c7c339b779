package sshd

import (
	"errors"
	"fmt"
	"strings"
)

// Client is what OpenSSH's client has to know of a sandbox.
type Client struct {
	Keys *Keys
	// Proxy is the command line, word by word, that speaks SSH for the sandbox on its standard input and output.
	Proxy []string
}

// errPath refuses characters that ssh_config(5) and shells read in ways that differ from version to version.
var errPath = errors.New("a path that ssh's configuration can't hold: it has a quote, a backslash, a $ or a control character; move msb, or set MSB_HOME to another directory")

// Options are the client's, as in ssh_config(5): nothing of the user's own configuration has to change for them.
func (c *Client) Options() ([]string, error) {
	for _, path := range append([]string{c.Keys.clientFile, c.Keys.knownHostsFile}, c.Proxy...) {
		if strings.ContainsAny(path, "\"'`\\$\x7f") || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' }) {
			return nil, fmt.Errorf("%w: %q", errPath, path)
		}
	}
	proxy := make([]string, 0, len(c.Proxy))
	for _, word := range c.Proxy {
		proxy = append(proxy, "'"+word+"'")
	}
	whole := func(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }
	return []string{
		"User " + anyUser,
		"ProxyCommand " + strings.ReplaceAll(strings.Join(proxy, " "), "%", "%%"),
		"IdentityFile " + whole(c.Keys.clientFile),
		"IdentitiesOnly yes",
		"PreferredAuthentications publickey",
		"UserKnownHostsFile " + whole(c.Keys.knownHostsFile),
		"GlobalKnownHostsFile none",
		"StrictHostKeyChecking yes",
		"HostKeyAlgorithms ssh-ed25519",
		"UpdateHostKeys no",
		"CanonicalizeHostname no",
		"ForwardAgent no",
		"ForwardX11 no",
	}, nil
}

// HostName is what a client calls the sandbox of that name.
func HostName(name string) string { return name + ".msb" }

// Host is the sandbox's part of an ssh configuration.
func (c *Client) Host(name string) (string, error) {
	options, err := c.Options()
	if err != nil {
		return "", err
	}
	return "Host " + HostName(name) + "\n  " + strings.Join(options, "\n  ") + "\n", nil
}
