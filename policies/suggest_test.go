package policies

import (
	"strings"
	"testing"
)

func TestClosestHelpsWithSlipsOnly(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", maxSuggestWord)
	known := []string{"hosts", "ports", "protocol", "tcp_connections", "extra-ca", "in", "why", "qemu", long}
	for word, want := range map[string]string{
		"host": "hosts", "Hosts": "hosts", "hsots": "hosts", "port": "ports", "proto": "protocol", "prot": "protocol", "protocoll": "protocol", "pr": "",
		"tcp-connections": "tcp_connections", "tcp_conections": "tcp_connections", "extra_ca": "extra-ca", "extra_cas": "extra-ca",
		"qmeu": "qemu", "qemus": "qemu", "kemu": "qemu", "kvmu": "", "ni": "in", "on": "in", "xx": "", "wyh": "why", "who": "why", "wow": "",
		"": "", "nothing": "", long: long, long[1:] + "b": long, long + "a": "", "portocll": "", "portxxll": "",
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
