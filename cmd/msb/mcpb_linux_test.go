package main

import (
	"archive/zip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// TestBundlesRunMSB packs msb as make mcpb does, unpacks it as a client does and starts what its manifest names.
func TestBundlesRunMSB(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "msb.mcpb")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if r := finish(t, exec.CommandContext(t.Context(), "go", "run", "-trimpath", "../../packaging/mcpb", "-root", "../..", "-msb", self, "-version", "0.0.1", "-o", file)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	unzip(t, file, dir)
	cmd := command(t, []string{sandbox.EnvHome + "=" + filepath.Join(dir, "home")}, "mcp")
	cmd.Path = filepath.Join(dir, "server/bin/msb")
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if list, err := client.ListTools(t.Context(), nil); err != nil || client.InitializeResult().ServerInfo.Name != "msb" || len(list.Tools) != 12 {
		t.Errorf("%+v, %v", list, err)
	}
}

// unzip keeps the modes, as clients do.
func unzip(t *testing.T, file, dir string) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	for _, f := range z.File {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, f.Mode().Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
