package dnsguard

import (
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestAnswerableTypesAreDocumented compares the types that are answered with docs/dns.md.
func TestAnswerableTypesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/dns.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(page), "Types that are answered: ")
	list, _, ended := strings.Cut(after, ".")
	if !found || !ended {
		t.Fatal("docs/dns.md has no list of types")
	}
	documented := map[string]bool{}
	for _, name := range strings.Split(list, ",") {
		documented[strings.TrimSpace(name)] = true
	}
	for qtype := range uint16(0xffff) {
		name, known := dns.TypeToString[qtype]
		if answerable(qtype) != (known && documented[name]) {
			t.Errorf("%s: answered %v, in docs/dns.md %v", name, answerable(qtype), documented[name])
		}
	}
}
