package secretproxy

import (
	"os"
	"regexp"
	"testing"
)

// TestViolationsAreExplained: each reason of a violation has a sentence, and no other has.
func TestViolationsAreExplained(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("swap.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`code(?:, message)? :?= "(secret_[a-z_]+)"`).FindAllSubmatch(source, -1)
	if len(codes) != 4 {
		t.Errorf("%d reasons found", len(codes))
	}
	for _, c := range codes {
		if WhyViolation(string(c[1])) == "" {
			t.Errorf("%s has no sentence", c[1])
		}
	}
	if why := WhyViolation("no_rule"); why != "" {
		t.Errorf("no_rule: %q", why)
	}
}
