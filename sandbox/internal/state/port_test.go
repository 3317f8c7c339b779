package state

import (
	"errors"
	"testing"
)

func TestPortsAreReadAsDockersAre(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"8080:80": "8080:80", "80": "0:80", "8080:80/tcp": "8080:80", "0:80": "0:80",
		"127.0.0.1:8080:80": "127.0.0.1:8080:80", "[::1]:8080:80": "[::1]:8080:80", "127.0.0.2:0:80": "127.0.0.2:0:80", "127.0.0.2::80": "127.0.0.2:0:80",
		"": "", "x": "", "0": "", "8080:0": "", "65536": "", "65536:80": "", "-1:80": "", "80/udp": "", "80/": "", "8080:": "", ":80": "", "0.0.0.0:8080:80": "",
		"[::]:8080:80": "", "192.168.1.2:8080:80": "", "[::ffff:127.0.0.1]:8080:80": "", "localhost:8080:80": "", "policy.toml": "", "1:2:3:4": "", "80-90:80-90": "",
	} {
		p, err := ParsePort(text)
		if want == "" {
			if !errors.Is(err, ErrPort) {
				t.Errorf("%q is read as %+v, %v", text, p, err)
			}
			continue
		}
		if err != nil || p.String() != want {
			t.Errorf("%q is read as %s, %v; want %s", text, p, err, want)
		}
		if again, err := ParsePort(p.String()); err != nil || again != p {
			t.Errorf("%s is read as %+v, %v", p, again, err)
		}
	}
}
