//go:build linux

package agentd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
)

func TestFilesAreFoundByText(t *testing.T) {
	s := dial(t, agentclient.Options{})
	s.machine.upper = t.TempDir()
	if err := os.WriteFile(filepath.Join(s.machine.upper, "f"), []byte("a text that is looked for"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*agentclient.Client{"owner": s.Client, "command": proxied(t, s)} {
		for _, tc := range []struct {
			texts []string
			want  []string
			more  bool
		}{
			{[]string{"that is looked"}, []string{"/f"}, false},
			{[]string{"that is not there"}, nil, false},
			{nil, nil, false},
			{[]string{"short"}, nil, true},
			{[]string{strings.Repeat("x", agentpb.MaxFindBytes+1), "that is looked"}, []string{"/f"}, true},
			{slices.Repeat([]string{"that is looked"}, agentpb.MaxFindTexts+1), []string{"/f"}, true},
		} {
			if got, more, err := c.Find(t.Context(), tc.texts); err != nil || more != tc.more || !slices.Equal(got, tc.want) {
				t.Errorf("%s: %.40q: %q, %v, %v; want %q, %v", name, tc.texts, got, more, err, tc.want, tc.more)
			}
		}
	}
	s.machine.upper = filepath.Join(s.machine.upper, "none")
	if _, _, err := s.Find(t.Context(), []string{"that is looked"}); !errors.Is(err, agentclient.ErrRefused) {
		t.Errorf("without a layer: %v", err)
	}
}
