package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestInspectTakesATemplate: docker inspect -f, for all that msb inspects.
func TestInspectTakesATemplate(t *testing.T) {
	t.Parallel()
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	for _, line := range []string{"create -q web", "volume create data"} {
		if got := msb(t, env, strings.Fields(line)...); got.code != 0 {
			t.Fatalf("msb %s: %+v", line, got)
		}
	}
	for line, want := range map[string]string{
		"inspect -f {{.name}}/{{.running}} web":        "web/false\n",
		"inspect web --format {{json.image}}":          "",
		"volume inspect -f {{.name}}:{{.in_use}} data": "data:false\n",
		"volume inspect --format {{.Mountpoint}} data": "",
	} {
		got := msb(t, env, strings.Fields(line)...)
		if want == "" && (got.code != exitOther || got.out != "" || !strings.Contains(got.err, "--format")) || want != "" && (got.code != 0 || got.out != want) {
			t.Errorf("msb %s: %+v, want %q", line, got, want)
		}
	}
	if got := msb(t, env, "inspect", "--format", "json", "web"); got.code != 0 || !strings.HasPrefix(got.out, "{") {
		t.Errorf("%+v", got)
	}
}
