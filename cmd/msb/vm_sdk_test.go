//go:build vmtest

package main

import (
	"archive/zip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sdkModule, sdkVersion = "github.com/msb-project/msb", "v0.0.1"

// moduleProxy is a directory that serves this tree's module to the go command, as git has it: without what make build makes.
func moduleProxy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := filepath.Join(dir, sdkModule, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	files := tracked(t, ".")
	for _, name := range tracked(t, "*/go.mod") { // of other modules
		other := strings.TrimSuffix(name, "go.mod")
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasPrefix(name, other) })
	}
	file, err := os.Create(filepath.Join(at, sdkVersion+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z := zip.NewWriter(file)
	for _, name := range files {
		src, err := os.Open(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		dst, err := z.Create(sdkModule + "@" + sdkVersion + "/" + name)
		if err == nil {
			_, err = io.Copy(dst, src)
		}
		if src.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": sdkVersion + "\n", sdkVersion + ".info": `{"Version":"` + sdkVersion + `"}`, sdkVersion + ".mod": goFile(t, "go.mod")} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tracked are this tree's files that match, as git has them.
func tracked(t *testing.T, match string) []string {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z", "--", match).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
}

// goFile is a file at the top of this tree.
func goFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestVMSDKIsAModule: a program of another module, which never saw a checkout, starts a sandbox by an installed msb.
func TestVMSDKIsAModule(t *testing.T) {
	work, cache := t.TempDir(), t.TempDir()
	home, env := otherHome(t)
	installed := filepath.Join(t.TempDir(), "msb")
	known, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	runs := func(dir string, env []string, argv ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		got := finish(t, cmd)
		if got.code != 0 {
			t.Fatalf("%q: %+v", argv, got)
		}
		return got.out
	}
	runs("../..", nil, "go", "build", "-buildvcs=false", "-trimpath", "-o", installed, "./cmd/msb")
	program := fmt.Sprintf(`package main

import (
	"context"
	"fmt"
	"os"

	"%[1]s/sandbox"
)

func main() {
	sandbox.MaybeRun()
	sb, err := sandbox.Start(context.Background(), sandbox.Config{Program: os.Getenv("INSTALLED_MSB"), Backend: "qemu", Cold: true})
	if err != nil {
		fmt.Println(sandbox.KindOf(err), err)
		return
	}
	status, err := sb.Exec(context.Background(), sandbox.ExecOptions{Argv: []string{"echo", "from another module"}, Stdout: os.Stdout})
	fmt.Println(status.Code, err, sb.Close())
}
`, sdkModule)
	// What go get would write, with the versions that this machine has: go get itself asks for more than the build needs.
	needs, sums := goFile(t, "go.mod"), goFile(t, "go.sum")
	needs = "module example.com/user\n" + needs[strings.IndexByte(needs, '\n'):] + "\nrequire " + sdkModule + " " + sdkVersion + "\n"
	for name, text := range map[string]string{"main.go": program, "go.mod": needs, "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// What msb needs is in the cache of this machine's modules; its own module is not, and goes into another cache.
	modules := []string{
		"GOPROXY=file://" + moduleProxy(t) + ",file://" + strings.TrimSpace(string(known)) + "/cache/download", "GOMODCACHE=" + cache,
		"GONOSUMDB=*", "GOFLAGS=-modcacherw -buildvcs=false -mod=mod -trimpath", "GOWORK=off", // -trimpath: what make build compiled is used
	}
	runs(work, modules, "go", "build", "-o", "user", ".")
	user := filepath.Join(work, "user")
	if got := runs(work, env, user); !strings.Contains(got, "built without guest parts") {
		t.Errorf("without an msb it says %q", got)
	}
	if got := runs(work, append(env, "INSTALLED_MSB="+installed), user); got != "from another module\n0 <nil> <nil>\n" {
		t.Errorf("it prints %q", got)
	}
	nothingLeft(t, home)
}
