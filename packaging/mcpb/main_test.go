package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// project is a tree with what is packed of a built one.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"LICENSE", "packaging/npm/NOTICE", "bin/msb", "lib/msb/libkrun.so.1", "lib/msb/libkrunfw.so.5", "lib/msb/NOTICE", "lib/msb/LICENSE.libkrun"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestManifestIsAsClientsWantIt holds it to the schema of @anthropic-ai/mcpb 2.1.2 (MIT).
func TestManifestIsAsClientsWantIt(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/manifest-v0.3.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	checks, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text string) error {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return checks.Validate(v)
	}
	if err := valid(manifest); err != nil {
		t.Error(err)
	}
	if valid(strings.Replace(manifest, `"type": "binary"`, `"type": "rust"`, 1)) == nil || valid(strings.Replace(manifest, `"name"`, `"nom"`, 1)) == nil {
		t.Error("the schema finds no fault")
	}
}

// TestBundlesHoldWhatTheyStart: each file with its mode, the same each time; none where something is missing.
func TestBundlesHoldWhatTheyStart(t *testing.T) {
	t.Parallel()
	root := project(t)
	out := filepath.Join(t.TempDir(), "msb.mcpb")
	var before []byte
	for range 2 {
		if err := pack(root, filepath.Join(root, "bin/msb"), "1.2.3-x", out); err != nil {
			t.Fatal(err)
		}
		all, err := os.ReadFile(out)
		if err != nil || before != nil && !bytes.Equal(all, before) {
			t.Errorf("it differs from the one before, %v", err)
		}
		before = all
	}
	z, err := zip.OpenReader(out)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
		if runs := f.Mode()&0o111 != 0; runs != (strings.Contains(f.Name, ".so.") || f.Name == "server/bin/msb") {
			t.Errorf("%s has mode %s", f.Name, f.Mode())
		}
	}
	var m struct {
		Version string
		Server  struct {
			EntryPoint string `json:"entry_point"`
		}
	}
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil || m.Version != "1.2.3-x" || files[m.Server.EntryPoint] != "bin/msb" {
		t.Errorf("%+v, %v", m, err)
	}
	for name, want := range map[string]string{"server/lib/msb/libkrun.so.1": "lib/msb/libkrun.so.1", "LICENSE": "LICENSE", "NOTICE": "packaging/npm/NOTICE", "server/lib/msb/LICENSE.libkrun": "lib/msb/LICENSE.libkrun"} {
		if files[name] != want {
			t.Errorf("%s holds %q", name, files[name])
		}
	}
	if err := os.Remove(filepath.Join(root, "lib/msb/libkrun.so.1")); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "x.mcpb")
	if err := pack(root, filepath.Join(root, "bin/msb"), "1.2.3", bad); err == nil {
		t.Error("without libkrun")
	}
	if left, err := os.ReadDir(filepath.Dir(bad)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}
