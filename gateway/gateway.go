package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
	"github.com/msb-project/msb/secretproxy/ca"
)

// Gateway is one sandbox's way out. It does nothing until Serve.
type Gateway struct {
	cfg        Config
	classifier *egress.Classifier
	policy     atomic.Pointer[policies.Policy]
	rules      atomic.Pointer[session.Rules]
	guard      *dnsguard.Guard
	proxy      *secretproxy.Proxy
	stack      *netstack.Stack
	link       netstack.Config // with its defaults
	echo       *echo.Service
	echoRoots  *x509.CertPool
	flows      flowTable
	budget     budget
	floods     *audit.Flood
	inbound    inbound
	tally      tally

	partialSums, wrongSums atomic.Int64 // frames

	unasked   atomic.Bool      // a warning said already that the kernel can't be asked
	reload    sync.Mutex       // serialises changes of the fields below
	given     *policies.Policy // the policy in force, without its floor and without grants
	granted   []policies.Rule
	ctx       context.Context // ends with the gateway: for work of no single flow, such as the address watch
	cancel    context.CancelFunc
	watch     sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

var _ netstack.Handler = (*Gateway)(nil)

// New builds the gateway of one sandbox and reads its secrets. Close ends it.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, classifier: egress.NewClassifier(), given: cfg.Policy, granted: cfg.Granted}
	g.inbound = inbound{g: g, slots: make(chan struct{}, netstack.MaxInbound)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.floods = audit.NewFlood(g.emit, g.cfg.Capture.saw)
	if err := g.build(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Gateway) build() error {
	g.classifier.AskKernel(g.owns)
	g.classifier.SetNode(g.cfg.Node...)
	if err := g.followHost(); err != nil {
		return fmt.Errorf("%w: reading the host's own addresses: %w", errConfig, err)
	}
	if err := g.buildStack(); err != nil {
		return err
	}
	policy, rules, err := g.compile(g.cfg.Policy)
	if err != nil {
		return err
	}
	g.stack.SetLimits(linkLimits(g.cfg.Link.Limits, policy))
	g.cfg.Policy = policy
	g.policy.Store(g.cfg.Policy)
	g.rules.Store(rules)
	g.budget.set(g.cfg.Policy.Limits.EgressBytes)
	g.budget.used.Store(g.cfg.EgressUsed)
	g.guard, err = dnsguard.New(dnsguard.Config{
		Sandbox: g.cfg.Sandbox, Policy: g.cfg.Policy, Judge: rules.Engine, Audit: g.floods,
		Dialer: g.dialResolver(), ResolvConf: g.cfg.ResolvConf, HasIPv6: g.cfg.HasIPv6, Roots: g.cfg.Roots,
		Spend: g.budget.takePacket,
	})
	if err != nil {
		return err
	}
	g.echo, g.echoRoots = startEcho(g.cfg.CA)
	g.proxy, err = secretproxy.New(secretproxy.Config{
		Sandbox: g.cfg.Sandbox, Policy: g.cfg.Policy, Judge: rules.Engine, Audit: g.floods,
		Dial: g.dialInspected, DialTLS: g.dialInspectedTLS, Roots: g.cfg.Roots, ExtraRoots: g.rootsFor, CA: g.cfg.CA, Placeholders: g.cfg.Placeholders, Parents: g.cfg.Parents,
		Refused:   func(bytes int64) { _ = g.budget.take(int(bytes)) }, // those bytes reached the gateway
		Terminate: g.cfg.Terminate, KeyLog: g.cfg.keyLog(),
	})
	return err
}

// compile returns p under the operator's floor and with the grants of requests, and the rules that judge flows.
func (g *Gateway) compile(p *policies.Policy) (*policies.Policy, *session.Rules, error) {
	if g.cfg.Floor != nil {
		tight, err := policies.Tighten(g.cfg.Floor, p)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errConfig, err)
		}
		p = tight
	}
	for i := range g.granted {
		if with, err := policies.WithRule(p, g.granted[i]); err == nil { // p may have changed since the grant, and deny it
			p = with
		}
	}
	rules, err := session.NewRules(p, g.classifier, g.link.Gateway4, g.link.Gateway6)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	rules.Spent = g.budget.spent
	return p, rules, nil
}

// linkLimits is l with the policy's bounds on flows and rate.
func linkLimits(l netstack.Limits, p *policies.Policy) netstack.Limits {
	l.TCPConnections, l.UDPFlows, l.EgressRate = p.Limits.TCPConnections, p.Limits.UDPFlows, p.Limits.EgressRate
	return l
}

func (g *Gateway) buildStack() error {
	link := g.cfg.Link
	link.Handler = g
	link.Limits = linkLimits(link.Limits, g.cfg.Policy)
	stack, err := netstack.New(link)
	if err != nil {
		return fmt.Errorf("%w: %w", errConfig, err)
	}
	g.stack, g.link = stack, stack.Config()
	g.classifier.SetGateway(g.link.Gateway4, g.link.Gateway6)
	return nil
}

// startEcho starts the built-in service under certificates of the sandbox's own authority, which the
// guest trusts anyway and the proxy trusts for names mapped to it only.
func startEcho(authority *ca.Authority) (*echo.Service, *x509.CertPool) {
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	return echo.Start(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name, err := hostname.Parse(hello.ServerName)
		if err != nil {
			return nil, err
		}
		return authority.ForName(name)
	}), roots
}

// rootsFor implements secretproxy.Config.ExtraRoots.
func (g *Gateway) rootsFor(name hostname.Name) *x509.CertPool {
	for _, m := range g.policy.Load().Hosts {
		if m.Name == name && m.Target.Builtin != "" {
			return g.echoRoots
		}
	}
	return nil
}

// Serve carries the frames of link until it ends, ctx ends or the gateway closes. It may be called
// again with the guest's next link.
func (g *Gateway) Serve(ctx context.Context, link netstack.Link) error {
	return g.stack.Serve(ctx, link)
}

// Link returns the addresses, MAC and MTU of the link, defaults filled in.
func (g *Gateway) Link() netstack.Config { return g.stack.Config() }

// Policy is the one in force, under the floor.
func (g *Gateway) Policy() *policies.Policy { return g.policy.Load() }

// CAPEM is the certificate of the sandbox's authority, which the guest must trust.
func (g *Gateway) CAPEM() []byte { return g.cfg.CA.CertPEM() }

// Placeholders gives each secret's placeholder by the secret's name.
func (g *Gateway) Placeholders() map[string]string { return g.proxy.Placeholders() }

// Warnings are sentences for the operator about secrets' sources that others may read.
func (g *Gateway) Warnings() []string { return g.proxy.Warnings() }

// Close ends every flow and waits for what serves them.
func (g *Gateway) Close() error {
	g.closeOnce.Do(func() { g.closeErr = g.close() })
	return g.closeErr
}

func (g *Gateway) close() error {
	g.cancel()
	var errs []error
	if g.stack != nil {
		errs = append(errs, g.stack.Close())
		recordQuiet(g)
	}
	if g.proxy != nil {
		errs = append(errs, g.proxy.Close())
	}
	if g.guard != nil {
		errs = append(errs, g.guard.Close())
	}
	if g.echo != nil {
		errs = append(errs, g.echo.Close())
	}
	g.watch.Wait()
	g.floods.Close()
	return errors.Join(errs...)
}

// emit writes one audit line of this sandbox.
func (g *Gateway) emit(e audit.Event) {
	e.Sandbox = g.cfg.Sandbox
	g.tally.count(&e)
	g.cfg.Audit.Emit(e)
}
