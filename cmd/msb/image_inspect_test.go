package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// savedImage is what docker save writes of an image with one empty layer, under these tags.
func savedImage(t *testing.T, tags ...string) []byte {
	t.Helper()
	layer := make([]byte, 1024) // the end of a tar
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH, "config": map[string]any{"Cmd": []string{"sh"}},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		"history": []any{map[string]any{"created": "2020-01-02T03:04:05Z", "created_by": "COPY evil\x1b[2J" + strings.Repeat("x", 100)}, map[string]any{"created_by": "CMD sh", "empty_layer": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": tags, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range map[string][]byte{"layer.tar": layer, "config.json": config, "manifest.json": manifest} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImagesAreInspected(t *testing.T) {
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return msb(t, env, args...) }
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, savedImage(t, "x:y"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := "docker-archive:" + file
	digest := strings.TrimSpace(msb("image", "pull", "-q", ref).out)
	var all []imageDetails
	if got := msb("image", "inspect", ref, digest[7:19]); got.code != 0 || json.Unmarshal([]byte(got.out), &all) != nil || len(all) != 2 ||
		all[1].Digest != digest || all[0].Refs[0] != ref || len(all[0].Layers) != 1 || !bytes.Contains(all[0].ConfigFile, []byte("COPY evil")) || strings.Contains(got.out, "\x1b") {
		t.Errorf("inspect: %+v", got)
	}
	if got := msb("image", "inspect", "-f", "{{.digest}} {{json .config.cmd}}", ref); got.out != digest+" [\"sh\"]\n" {
		t.Errorf("inspect -f: %+v", got)
	}
	if got := msb("image", "inspect", "nosuch"); got.code != exitImageUnknown || !strings.Contains(got.err, "msb image ls") {
		t.Errorf("inspect of none: %+v", got)
	}
	if got := msb("image", "inspect", "-f", "{{.digest}}", "nosuch", ref); got.code != exitImageUnknown || got.out != digest+"\n" || !strings.Contains(got.err, "nosuch") {
		t.Errorf("inspect of one that is there and one that isn't: %+v", got)
	}
	got := msb("image", "history", ref)
	lines := strings.Split(got.out, "\n")
	if got.code != 0 || len(lines) != 4 || !strings.Contains(lines[1], "CMD sh") || !strings.Contains(lines[2], "COPY evil") || !strings.Contains(lines[2], "…") || strings.Contains(got.out, "\x1b") {
		t.Errorf("history: %+v", got)
	}
	if got := msb("image", "history", "--no-trunc", "--format", "{{.created_by}}", ref); !strings.HasPrefix(got.out, "CMD sh\nCOPY evil") || !strings.HasSuffix(got.out, "xxxx\n") {
		t.Errorf("history --format: %+v", got)
	}
	if got := msb("image", "history", "--json", ref); !strings.Contains(got.out, `"created": "2020-01-02T03:04:05Z"`) {
		t.Errorf("history --json: %+v", got)
	}
}
