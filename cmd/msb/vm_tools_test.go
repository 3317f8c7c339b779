//go:build vmtest

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestToolsInADirectoryOfTheHost has compilers and their watch modes work in a directory of this machine, on what this
// machine changes too. `make test-tools` runs it, since its image takes minutes to make.
func TestToolsInADirectoryOfTheHost(t *testing.T) {
	image := os.Getenv("MSB_TEST_TOOLS")
	if image == "" {
		t.Fatal("MSB_TEST_TOOLS names no image; make test-tools makes one")
	}
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", "tools", name))
		if err != nil {
			t.Fatal(err)
		}
		put(name, string(b))
	}
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	home := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return finish(t, command(t, home, args...)) }
	inside := func(args ...string) result {
		t.Helper()
		return msb(append([]string{"exec", "-w", "/work", "tools", "--"}, args...)...)
	}
	job := func(name string, args ...string) {
		t.Helper()
		msb(append([]string{"exec", "-q", "-d", "--job", name, "-w", "/work", "-e", "CHOKIDAR_USEPOLLING=1", "tools", "--"}, args...)...).want(t, 0, name+"\n")
	}
	logged := func(job, text string) func() bool {
		return func() bool {
			r := msb("job", "logs", "tools", job)
			return strings.Contains(r.out+r.err, text)
		}
	}
	holds := func(name, text string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, name)) // which may not be there yet
			return strings.Contains(string(b), text)
		}
	}
	msb("create", "-q", "--vm", "qemu", "--no-net", "--memory", "2G", "--disk", "4G", "-v", dir+":/work:rw", "tools", "dir:"+image).want(t, 0, "tools\n")
	msb("start", "-q", "tools").want(t, 0, "tools\n")
	defer func() { _ = command(t, home, "rm", "--force", "tools").Run() }()

	put("src/a.ts", "export const a: number = 1;\n")
	put("tsconfig.json", `{"compilerOptions": {"target": "es2020", "outDir": "out", "types": []}, "include": ["src"]}`)
	job("tsc", "node", "node_modules/typescript/bin/tsc", "--watch", "--preserveWatchOutput", "--watchFile", "fixedPollingInterval", "--watchDirectory", "fixedPollingInterval")
	eventually(t, "the first compilation", holds("out/a.js", "a = 1"))
	put("src/a.ts", "export const a: number = 22;\n")
	eventually(t, "a compilation of the host's change", holds("out/a.js", "a = 22"))
	inside("sh", "-c", "echo 'export const a: number = 333;' > src/a.ts").want(t, 0, "")
	eventually(t, "a compilation of the guest's change", holds("out/a.js", "a = 333"))
	put("src/b.ts", "export const b: number = 'x';\n")
	eventually(t, "an error in the host's new file", logged("tsc", "src/b.ts(1,14): error TS2322"))
	msb("job", "kill", "tools", "tsc").want(t, 0, "tsc\n")

	put("index.html", `<script type="module" src="/main.js"></script>`)
	put("main.js", "document.title = 'one';\n")
	job("vite", "node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", "5173", "--strictPort")
	served := func(text string) func() bool {
		return func() bool {
			r := inside("node", "-e", "Promise.all(['/', '/main.js'].map(p => fetch('http://127.0.0.1:5173' + p).then(r => r.text()))).then(console.log, () => {})")
			return strings.Contains(r.out, text)
		}
	}
	eventually(t, "the page", served("'one'"))
	put("main.js", "document.title = 'of the host';\n")
	eventually(t, "the host's change", served("'of the host'"))
	eventually(t, "the notice of it", logged("vite", "page reload main.js"))
	msb("job", "kill", "tools", "vite").want(t, 0, "vite\n")

	put("crate/Cargo.toml", "[package]\nname = \"crate\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
	for _, text := range []string{"first", "of the host"} {
		put("crate/src/main.rs", "fn main() { println!(\""+text+"\"); }\n")
		eventually(t, "cargo's "+text, func() bool { // which goes by times, and these may be a second old in the guest
			return inside("cargo", "run", "-q", "--offline", "--manifest-path", "crate/Cargo.toml").out == text+"\n"
		})
	}
}
