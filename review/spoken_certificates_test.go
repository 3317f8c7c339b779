package review_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/hostname"
)

// certificateScripts are about servers whom the gateway or the guest doesn't trust.
func certificateScripts() map[string]script {
	return map[string]script{
		"spoken-tls-upstream-certificates": upstreamCertificates,
		"spoken-tls-client-certificate":    clientCertificate,
		"spoken-tls-upstream-closes":       upstreamCloses,
		"spoken-tls-bypass-pinned":         pinnedCertificate,
	}
}

func upstreamCertificates(s *session) {
	guests := gatewaytest.NewAuthority(s.t)
	sandboxes, err := s.authority.ForName(hostname.MustParse("private.good.example"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range []struct {
		name, cause string
		cert        tls.Certificate
	}{
		{"expired.good.example", "certificate_expired", s.CA.Expired("expired.good.example")},
		{"selfsigned.good.example", "certificate_unknown_authority", selfSigned(s.t, "selfsigned.good.example")},
		{"another.good.example", "certificate_name", s.CA.Certificate("evil.example")},
		{"guests.good.example", "certificate_unknown_authority", guests.Certificate("guests.good.example")},
		{"private.good.example", "certificate_unknown_authority", *sandboxes},
	} {
		web := s.siteWith(c.name, s.addr(c.name).String()+":443", c.cert, nil)
		s.tls(c.name).ask(c.name, "GET /repos/a", s.with()).refused(http.StatusBadGateway, "upstream_"+c.cause)
		web.got()
	}
}

// selfSigned is a certificate that vouches for itself.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func clientCertificate(s *session) {
	got := make(chan []byte, 1)
	cfg := &tls.Config{Certificates: []tls.Certificate{s.CA.Certificate("good.example")}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.Serve(goodSite, func(c net.Conn) {
		all, _ := io.ReadAll(tls.Server(c, cfg))
		got <- all
	})
	s.tls("good.example").ask("good.example", "GET /repos/a", s.with()).refused(http.StatusBadGateway, "upstream_tls")
	if all := <-got; len(all) > 0 {
		s.t.Errorf("the server got %q", all)
	}
	s.dialled("tcp " + goodSite)
}

func upstreamCloses(s *session) {
	closing := func(net.Conn) {}
	s.Serve(goodSite, closing)
	s.Serve(otherSite, closing)
	s.tls("good.example").ask("good.example", "GET /repos/a").refused(http.StatusBadGateway, "upstream_closed")
	k := s.plain("other.example", 443)
	k.say(string(hello(&tls.Config{ServerName: "other.example", MinVersion: tls.VersionTLS12})))
	k.ended("a server that closes")
	s.dialled("tcp "+goodSite, "tcp "+otherSite)
}

func pinnedCertificate(s *session) {
	web := s.site("good.example", goodSite, nil)
	cert := s.CA.Certificate("other.example")
	other := s.siteWith("other.example", otherSite, cert, nil)
	pinned := func(cfg *tls.Config) {
		cfg.InsecureSkipVerify = true
		cfg.VerifyPeerCertificate = func(chain [][]byte, _ [][]*x509.Certificate) error {
			if string(chain[0]) != string(cert.Certificate[0]) {
				return x509.UnknownAuthorityError{}
			}
			return nil
		}
	}
	conn, err := s.handshake("other.example", pinned, "http/1.1")
	if err != nil {
		s.t.Fatal(err)
	}
	s.talk(conn).ask("other.example", "GET /b", s.with()).is(http.StatusOK, "hello from other.example")
	if all := other.got("GET /b"); all[0].credentials() != "Bearer "+s.token() {
		s.t.Errorf("the bypassed server got %q, want the placeholder", all[0].credentials())
	}
	if _, err := s.handshake("good.example", pinned, "http/1.1"); err == nil {
		s.t.Error("a host that isn't bypassed shows its own certificate")
	}
	web.got()
	s.dialled("tcp " + otherSite)
}
