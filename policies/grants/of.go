package grants

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/msb-project/msb/policies"
)

// maxRoots bounds a file of roots, in bytes: the whole of a system's are 250 KiB.
const maxRoots = 4 << 20

// Options are what Of has to know beside the policy.
type Options struct {
	// State is msb's state directory, which is no content of the policy's
	// directory even where it lies in it.
	State string
}

// Of returns what p takes from the host, and p with its sources held to what was
// found (policies.Hold, ExtraCA.PEM). p isn't changed. It fails where a command
// can reach more files than can be looked at; a file or a program that isn't
// there is no error, since reading it will be one.
func Of(p *policies.Policy, o Options) (Set, *policies.Policy, error) {
	w := worker{trees: treesOf(p), policy: p, state: realOf(o.State)}
	held := *p
	held.Secrets, held.TLS.ExtraCA = slices.Clone(p.Secrets), slices.Clone(p.TLS.ExtraCA)
	w.network(p)
	w.image(p.Sandbox.Image)
	w.agent(p.Agent)
	for _, file := range p.Outside {
		w.add(Include, strconv.Quote(file), "")
	}
	for i := range held.TLS.ExtraCA {
		w.roots(&held.TLS.ExtraCA[i])
	}
	for i := range held.Secrets {
		if err := w.secret(&held.Secrets[i]); err != nil {
			return nil, nil, fmt.Errorf("secret %s: %w", held.Secrets[i].Name, err)
		}
	}
	return w.set, &held, nil
}

// worker computes the grants of one policy.
type worker struct {
	set     Set
	trees   trees
	policy  *policies.Policy
	state   string
	content string // of the trees, once it was needed
}

func (w *worker) add(kind Kind, what, to string) { w.set.add(Grant{kind, what, to}) }

func (w *worker) network(p *policies.Policy) {
	for _, r := range p.Egress.Allow {
		for _, c := range r.CIDRs {
			if r.Private {
				w.add(Private, c.String(), "")
			}
		}
		for _, c := range r.Within {
			for _, h := range r.Hosts {
				if policies.OpensSpecial(c) {
					w.add(Private, c.String(), h.String())
				}
			}
		}
	}
	for _, r := range p.Ingress.Allow {
		for _, c := range r.CIDRs {
			w.add(Client, c.String(), "published ports")
		}
		for _, name := range r.Sandboxes {
			for _, ports := range r.Ports {
				w.add(Client, "sandbox "+name, "port "+ports.String())
			}
		}
	}
	for what, allowed := range map[string]bool{
		"agent_forwarding": p.SSH.AgentForwarding, "reverse_forwarding": p.SSH.ReverseForwarding, "x11_forwarding": p.SSH.X11Forwarding,
	} {
		if allowed {
			w.add(SSH, what, "")
		}
	}
	for _, h := range p.Hosts {
		if h.Target.Builtin == "" {
			w.add(Target, h.Name.String()+" at "+h.Target.String(), "")
		}
	}
	for _, s := range p.DNS.Servers {
		if s.Kind != policies.ServerSystem {
			w.add(Resolver, strconv.Quote(s.String()), "")
		}
	}
	if p.TLS.Via != "" {
		w.add(Proxy, strconv.Quote(p.TLS.Via), "")
	}
}

func (w *worker) agent(a *policies.Agent) {
	if a == nil {
		return
	}
	images := a.Images
	if a.Children != nil {
		images = slices.Concat(images, a.Children.Images)
	}
	for _, ref := range images {
		w.image(ref)
	}
	for _, d := range a.Directories {
		to := "agents, read-only"
		if d.Writable {
			to = "agents, which may change it"
		}
		w.add(Directory, strconv.Quote(realOf(d.Host)), to)
	}
}

func (w *worker) image(ref string) {
	switch kind, path, _ := strings.Cut(ref, ":"); {
	case ref == "" || ref == "builtin":
	case policies.LocalImage(ref):
		w.add(Image, strconv.Quote(kind+":"+realOf(path)), "")
	default:
		w.add(Registry, "credentials of yours and private networks, if they are needed", "the image "+strconv.Quote(ref))
	}
}

// roots reads a file of roots: what is approved is what is trusted, whatever
// becomes of the file.
func (w *worker) roots(ca *policies.ExtraCA) {
	what := strconv.Quote(ca.File) + ", which can't be read"
	if pem, err := readSome(ca.File, maxRoots); err == nil {
		ca.PEM = pem
		sum := sha256.Sum256(pem)
		what = fmt.Sprintf("%q (sha256 %s)", ca.File, hex.EncodeToString(sum[:]))
	}
	for _, h := range ca.Hosts {
		w.add(Roots, what, h.String())
	}
}

func (w *worker) secret(s *policies.Secret) error {
	what, err := w.source(&s.From)
	if err != nil {
		return err
	}
	what = s.Name + ": " + what + use(s)
	for _, h := range s.Hosts {
		if len(s.In) == 0 {
			w.add(Secret, what, h.String())
		}
		for _, place := range s.In {
			w.add(Secret, what, h.String()+" in "+strconv.Quote(place.String()))
		}
	}
	return nil
}

// use says what is done with a secret beside putting it into requests.
func use(s *policies.Secret) string {
	var b strings.Builder
	if s.OnViolation == policies.Terminate {
		b.WriteString(", a violation ends the sandbox")
	}
	if s.From.TTL != 0 {
		fmt.Fprintf(&b, ", read again every %s", s.From.TTL)
	}
	if s.From.RefreshOn401 {
		b.WriteString(", read again after a 401")
	}
	if s.Kind != "" {
		fmt.Fprintf(&b, ", %s for %q in %q", s.Kind, s.Services, s.Regions)
	}
	if len(s.Upgrades) > 0 {
		fmt.Fprintf(&b, ", unmasked after an upgrade to %q", s.Upgrades)
	}
	if s.Mint != nil {
		fmt.Fprintf(&b, ", mints %q of %q", s.Mint.Fields, s.Mint.Path)
	}
	return b.String()
}

// source says where a value comes from, and holds the source to it.
func (w *worker) source(s *policies.Source) (string, error) {
	switch s.Kind {
	case policies.FromEnv:
		return "variable " + s.Value, nil
	case policies.FromFile:
		return w.file(s), nil
	case policies.FromCommand:
		return w.command(s)
	case policies.FromNone:
	}
	return "nothing", nil
}

func (w *worker) file(s *policies.Source) string {
	what := "file " + strconv.Quote(s.Value)
	real, err := filepath.EvalSymlinks(s.Value)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return what + ", which isn't there"
	}
	// A link that the policy's writer can't change may lead elsewhere tomorrow, as
	// links of rotated tokens do; one of his may not.
	if w.trees.hold(absOf(s.Value)) || w.trees.hold(real) {
		s.Hold = &policies.Hold{Path: real, Trees: w.trees}
	}
	if real != s.Value {
		what += " (" + strconv.Quote(real) + ")"
	}
	return what
}

func absOf(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// realOf resolves what it can of a path; "" stays.
func realOf(path string) string {
	if path == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return absOf(path)
}

// readSome reads a regular file of at most limit bytes.
func readSome(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(f, limit+1))
	if err == nil && n > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b.Bytes(), err
}

// openRegular opens a file without waiting for the other end of a pipe.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return f, nil
}
