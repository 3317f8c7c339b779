package supervisor

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// environment is the image's, then msb's own, then the caller's.
func (s *supervisor) environment() []string {
	env := slices.Clone(s.plan.Image.Env)
	env = append(env, "MSB_SANDBOX="+s.plan.ID, "MSB_BACKEND="+s.backend.Name())
	if s.gateway != nil {
		for name, placeholder := range s.gateway.Placeholders() {
			env = append(env, name+"="+placeholder)
		}
	}
	if s.gateway != nil && s.plan.HTTPProxy {
		env = append(env, proxyEnvironment(s.gateway.Link())...)
	}
	return s.children.addPath(append(env, s.plan.Env...))
}

// proxyEnvironment names the gateway's explicit proxy in the variables that clients read, in both
// spellings that they read them in.
func proxyEnvironment(l netstack.Config) []string {
	url := "http://" + netip.AddrPortFrom(l.Gateway4, gateway.ProxyPort).String()
	none := "localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "NO_PROXY=" + none,
		"http_proxy=" + url, "https_proxy=" + url, "no_proxy=" + none,
	}
}

// clearEnvironment takes the variables out of this process that lead into a directory that the guest may write to
// (PYTHONPATH, LD_LIBRARY_PATH): a secret's command would run what the guest puts there.
func (s *supervisor) clearEnvironment() error {
	var writable []string
	for _, d := range s.plan.Directories {
		if d.Writable || d.CopyOnWrite { // which is written to by what is applied
			writable = append(writable, d.Host)
		}
	}
	if len(writable) == 0 {
		return nil
	}
	secrets := s.policy.Secrets
	if s.floor != nil {
		secrets = slices.Concat(secrets, s.floor.Secrets)
	}
	kept := grants.Environ(os.Environ(), writable)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		isSecret := func(o policies.Secret) bool { return o.From.Kind == policies.FromEnv && o.From.Value == name }
		if name == "PATH" || slices.Contains(kept, v) || slices.ContainsFunc(secrets, isSecret) {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			return err
		}
	}
	return nil
}
