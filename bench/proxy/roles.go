package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy"
	"github.com/msb-project/msb/secretproxy/ca"
)

// guestCA is the file with the authority that msb's side is verified by.
const guestCA = "guest-ca.pem"

// bigBody is the body of /big.
const bigBody = 100 << 20

func serve(role, upstream, dir, profile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return err
	}
	switch role {
	case "upstream":
		announce(l, placeholder)
		go serveTLS(l, cert, answers())
	case "bare":
		announce(l, placeholder)
		go serveTLS(l, cert, bare(upstream, dir))
	case "msb":
		if err := msb(ctx, l, upstream, dir); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// announce tells the parent where we listen and what a request must carry.
func announce(l net.Listener, token string) {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	fmt.Fprintln(os.Stdout, net.JoinHostPort(host, port), token)
}

func serveTLS(l net.Listener, cert tls.Certificate, h http.Handler) {
	s := &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	_ = s.ServeTLS(l, "", "")
}

// answers is the upstream: it insists on the real value.
func answers() http.Handler {
	small := []byte(`{"id":1,"name":"an answer of about a hundred bytes","ok":true,"items":[1,2,3,4,5,6,7,8,9,10,11,12]}`)
	chunk := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.\n"), 1024)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+value {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/big" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(small)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(bigBody))
		for left := bigBody; left > 0; left -= len(chunk) {
			if _, err := w.Write(chunk[:min(left, len(chunk))]); err != nil {
				return
			}
		}
	})
}

// roots trusts the upstream's certificate.
func roots(dir string) *x509.CertPool {
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err == nil {
		pool.AppendCertsFromPEM(pem)
	}
	return pool
}

// bare is the least that such a proxy can be.
func bare(upstream, dir string) http.Handler {
	target := &url.URL{Scheme: "https", Host: upstream}
	return &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", strings.Replace(r.In.Header.Get("Authorization"), placeholder, value, 1))
		},
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots(dir), MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 256,
		},
	}
}

type allowAll struct{}

// Decide implements secretproxy.Judge.
func (allowAll) Decide(f *egress.Flow) egress.Verdict {
	return egress.Verdict{Action: egress.Allow, Rule: "bench", Reason: egress.ReasonRule, Name: f.Name}
}

func msb(ctx context.Context, l net.Listener, upstream, dir string) error {
	addr, err := netip.ParseAddrPort(strings.Replace(upstream, host, "127.0.0.1", 1))
	if err != nil {
		return err
	}
	// The port that the load asks for is ours, as the pinned address's would be.
	dst, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil {
		return err
	}
	policy := policies.Default()
	policy.Secrets = []policies.Secret{{
		Name: "TOKEN", From: policies.Source{Kind: policies.FromEnv, Value: "BENCH_TOKEN"},
		Hosts: []policies.SecretHost{{Pattern: hostname.MustParsePattern(host), Port: dst.Port()}},
		In:    []policies.Place{{Kind: policies.InHeader, Name: "Authorization"}},
	}}
	authority, err := ca.New("bench")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, guestCA), authority.CertPEM(), 0o600); err != nil {
		return err
	}
	p, err := secretproxy.New(secretproxy.Config{
		Sandbox: "bench", Policy: policy, Judge: allowAll{}, Roots: roots(dir), CA: authority,
		Dial: func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr.String())
		},
	})
	if err != nil {
		return err
	}
	announce(l, p.Placeholders()["TOKEN"])
	f := egress.Flow{Proto: egress.TCP, Dst: dst, Pinned: []hostname.Name{hostname.MustParse(host)}, App: egress.AppTLS}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.ServeTLS(ctx, c, f)
		}
	}()
	return nil
}
