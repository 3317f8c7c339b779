package review_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// everyCase calls test with the review of every capture of the suite, alone and against another policy.
func everyCase(t *testing.T, test func(t *testing.T, r *review.Report)) {
	t.Helper()
	for _, c := range pcapgen.Cases() {
		file, _ := c.Capture()
		for _, against := range []*policies.Policy{nil, policy(t, "[egress]\ndefault = \"public\"\n")} {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				test(t, read(t, file, review.Options{Policy: policyOf(t, &c), Against: against}))
			})
		}
	}
}

func TestJSONIsThatOfTheFlows(t *testing.T) {
	t.Parallel()
	everyCase(t, func(t *testing.T, r *review.Report) {
		var out bytes.Buffer
		if err := r.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(out.Bytes()) {
			t.Fatalf("no JSON: %s", out.Bytes())
		}
		_, list, _ := strings.Cut(out.String(), "\"flows\": [")
		lines := strings.Split(strings.TrimSuffix(list, "\n  ]\n}\n"), "\n    ")[1:]
		flows := slices.Collect(r.Flows())
		if len(lines) != len(flows) {
			t.Fatalf("%d lines for %d flows", len(lines), len(flows))
		}
		for i := range flows {
			want, err := json.Marshal(&flows[i])
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSuffix(lines[i], ","); got != string(want) {
				t.Errorf("flow %d is written as\n%s, want\n%s", i, got, want)
			}
		}
	})
}

func TestTheTableIsAligned(t *testing.T) {
	t.Parallel()
	everyCase(t, func(t *testing.T, r *review.Report) {
		for _, onlyChanged := range []bool{false, true} {
			var got, want bytes.Buffer
			if err := r.WriteTable(&got, onlyChanged); err != nil {
				t.Fatal(err)
			}
			w := tabwriter.NewWriter(&want, 0, 0, 2, ' ', 0)
			for _, row := range r.Rows(onlyChanged) {
				if _, err := w.Write([]byte(strings.Join(row, "\t") + "\n")); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Errorf("the table is\n%s, want\n%s", got.String(), want.String())
			}
		}
	})
}
