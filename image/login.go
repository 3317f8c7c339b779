package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/docker/cli/cli/config/credentials"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Login is a user's name and password at a registry.
type Login struct{ Username, Password string }

const (
	// loginWait bounds a try: a registry that never ends its answer would hold it up for ever.
	loginWait = time.Minute
	// maxLogin bounds a name and a password, in bytes; registries' tokens have a few KiB.
	maxLogin = 64 << 10
	// maxServer is more than a DNS name with a port has, in bytes.
	maxServer = 300
)

// ErrLogin means that a name or a password can't be any registry's.
var ErrLogin = errors.New("unusable credentials")

// Check says what is wrong with the name or the password, without showing either.
func (l Login) Check() error {
	switch {
	case l.Username == "":
		return fmt.Errorf("%w: the user name is empty", ErrLogin)
	case l.Password == "":
		return fmt.Errorf("%w: the password is empty", ErrLogin)
	case strings.Contains(l.Username, ":"):
		return fmt.Errorf("%w: no user name has a colon", ErrLogin)
	case strings.ContainsAny(l.Username+l.Password, "\x00\r\n"):
		return fmt.Errorf("%w: a user name and a password are one line each", ErrLogin)
	case len(l.Username)+len(l.Password) > maxLogin:
		return fmt.Errorf("%w: the user name and the password have more than %d KiB", ErrLogin, maxLogin>>10)
	}
	return nil
}

// Server is a registry to log in to.
type Server struct{ reg name.Registry }

// ParseServer reads HOST[:PORT]; "" is Docker Hub. Scheme and path, with which other tools write a registry, are left out.
func ParseServer(s string) (Server, error) {
	if len(s) > maxServer {
		return Server{}, fmt.Errorf("%w: a registry's name has at most %d bytes", ErrReference, maxServer)
	}
	host := ""
	if s != "" {
		if host = credentials.ConvertToHostname(s); host == "" || strings.HasSuffix(host, ":") {
			return Server{}, fmt.Errorf("%w: %q names no registry; write HOST[:PORT]", ErrReference, s)
		}
	}
	reg, err := name.NewRegistry(host)
	if err != nil {
		return Server{}, fmt.Errorf("%w: %w; write HOST[:PORT]", ErrReference, err)
	}
	return Server{reg}, nil
}

// Name is the registry's host and port.
func (s Server) Name() string { return s.reg.RegistryStr() }

// key is what docker's configuration has for it.
func (s Server) key() string {
	if s.Name() == name.DefaultRegistry {
		return authn.DefaultAuthKey
	}
	return s.Name()
}

// TryLogin asks the registry whether it takes the name and the password: ErrUnauthorized if not. One that lets everybody
// in has not looked at them.
func (s Server) TryLogin(ctx context.Context, l Login, opts StoreOptions) (looked bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, loginWait, fmt.Errorf("%w: %s did not answer to its end within %s", ErrStalled, s.Name(), loginWait))
	defer cancel()
	rt := newRegistryTransport(s.Name(), schemeOf(s.reg), &opts)
	defer rt.close()
	challenge, err := transport.Ping(ctx, s.reg, rt)
	if err != nil {
		return false, registryError(ctx, err)
	}
	looked = challenge.Scheme != ""
	return looked, s.loginError(ctx, s.signedRequest(ctx, rt, l, challenge.Insecure))
}

// signedRequest asks with the name and the password what was asked without: of a registry with tokens, for one first.
func (s Server) signedRequest(ctx context.Context, rt http.RoundTripper, l Login, insecure bool) error {
	auth := authn.FromConfig(authn.AuthConfig{Username: l.Username, Password: l.Password})
	signed, err := transport.NewWithContext(ctx, s.reg, auth, rt, nil)
	if err != nil {
		return err
	}
	scheme := "https"
	if insecure {
		scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.Name()+"/v2/", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: signed}).Do(req)
	if err != nil {
		return err
	}
	return errors.Join(transport.CheckError(resp, http.StatusOK), resp.Body.Close())
}

// loginError is registryError for somebody who is logging in.
func (s Server) loginError(ctx context.Context, err error) error {
	var te *transport.Error
	if errors.As(err, &te) && (te.StatusCode == http.StatusUnauthorized || te.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("%w: %s does not take this user name and password; many registries want a token in place of the password: %w",
			ErrUnauthorized, s.Name(), shortError{err})
	}
	if err != nil {
		return registryError(ctx, err)
	}
	return nil
}
