package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

const containerdConfig = "version = 2\n\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'pause'\n"

// lab is a node in a temporary directory, whose containerd is a command that counts its restarts.
type lab struct {
	*testing.T
	*Node
}

func newLab(t *testing.T) *lab {
	t.Helper()
	root := t.TempDir()
	l := &lab{t, &Node{
		Root: root, Prefix: "/opt/msb", Containerd: "/etc/containerd/config.toml", DropIn: "/etc/containerd/conf.d/msb.toml",
		Parts: fstest.MapFS{
			"bin/" + Shim:             {Data: []byte("shim 1"), Mode: 0o755},
			"lib/msb/libkrun.so.1":    {Data: []byte("krun"), Mode: 0o644},
			"lib/msb/LICENSE.libkrun": {Data: []byte("licence"), Mode: 0o644},
			"bin/msb":                 {Data: []byte("msb"), Mode: 0o755},
		},
		Restart: []string{"sh", "-c", `echo x >> "$0/restarts"; [ ! -e "$0/broken" ]`, root},
		Say:     t.Logf,
	}}
	l.put("/etc/containerd/config.toml", containerdConfig)
	return l
}

func (l *lab) put(file, content string) {
	l.Helper()
	if err := os.MkdirAll(filepath.Dir(l.at(file)), 0o700); err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(l.at(file), []byte(content), 0o600); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// files are all files of the node with their contents and modes.
func (l *lab) files() map[string]string {
	l.Helper()
	all := map[string]string{}
	l.must(filepath.WalkDir(l.Root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		all[strings.TrimPrefix(name, l.Root)] = fmt.Sprintf("%v %s", info.Mode(), b)
		return err
	}))
	return all
}

func (l *lab) restarts() int {
	b, err := os.ReadFile(l.at("restarts"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "x")
}

// equal compares two states of a node.
func (l *lab) equal(got, want map[string]string) {
	l.Helper()
	delete(got, "/restarts")
	for name, content := range want {
		if got[name] != content {
			l.Errorf("%s: got %q, want %q", name, got[name], content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			l.Errorf("%s is left", name)
		}
	}
}

// TestUninstallUndoesInstall: byte by byte, and with a restart of containerd each way.
func TestUninstallUndoesInstall(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"no imports": containerdConfig, "imported": "imports = ['conf.d/*.toml']\n" + containerdConfig, "no file": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.put("/etc/containerd/config.toml", config)
			if config == "" {
				l.must(os.Remove(l.at("/etc/containerd/config.toml")))
			}
			l.Config = fstest.MapFS{floorFile: {Data: []byte("version = 1\n")}, settingsFile: {Data: []byte("memory = '1G'\n")}}
			before := l.files()
			if l.Check() == nil {
				t.Error("nothing is missing before")
			}
			l.must(l.Install(t.Context()))
			l.must(l.Check())
			got := l.files()
			for file, want := range map[string]string{
				"/opt/msb/bin/" + Shim:          "-rwxr-xr-x shim 1",
				"/opt/msb/lib/msb/libkrun.so.1": "-rw-r--r-- krun",
				"/opt/msb/etc/floor.toml":       "-rw------- version = 1\n",
				"/opt/msb/etc/shim.toml":        "-rw------- floor = '/opt/msb/etc/floor.toml'\nmemory = '1G'\n",
			} {
				if got[file] != want {
					t.Errorf("%s: got %q, want %q", file, got[file], want)
				}
			}
			l.must(l.Install(t.Context())) // and changes nothing
			if n := l.restarts(); n != 1 {
				t.Errorf("containerd was restarted %d times by two installations of the same", n)
			}
			l.must(l.Uninstall(t.Context()))
			l.must(l.Uninstall(t.Context()))
			if n := l.restarts(); n != 2 {
				t.Errorf("containerd was restarted %d times, want 2", n)
			}
			l.equal(l.files(), before)
		})
	}
}

// TestUpgradeReplacesFiles: a running shim keeps the file that it was started with.
func TestUpgradeReplacesFiles(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.Install(t.Context()))
	running, err := os.Open(l.at("/opt/msb/bin/" + Shim))
	l.must(err)
	defer func() { _ = running.Close() }()
	l.Parts = fstest.MapFS{"bin/" + Shim: {Data: []byte("shim 2"), Mode: 0o755}}
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), Shim+" is another version's") {
		t.Errorf("before the upgrade: %v", err)
	}
	l.must(l.Install(t.Context()))
	l.must(l.Check())
	b := make([]byte, 6)
	if _, err := running.ReadAt(b, 0); err != nil || string(b) != "shim 1" {
		t.Errorf("the running shim's file reads %q, %v", b, err)
	}
	if n := l.restarts(); n != 1 {
		t.Errorf("containerd was restarted %d times; a new shim needs none", n)
	}
}

// TestRunningMachinesKeepTheirFiles: the runtime goes, so that no pod starts any more, and what runs is left whole.
func TestRunningMachinesKeepTheirFiles(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Config = fstest.MapFS{settingsFile: {Data: []byte("home = '/var/lib/other'\n")}}
	l.must(l.Install(t.Context()))
	l.put("/var/lib/other/run/one/state.json", "{}")
	err := l.Uninstall(t.Context())
	if err == nil || !strings.Contains(err.Error(), "/var/lib/other/run/one") {
		t.Fatalf("with a machine that runs: %v", err)
	}
	got := l.files()
	if got["/opt/msb/bin/"+Shim] == "" || got["/etc/containerd/conf.d/msb.toml"] != "" {
		t.Errorf("left: %v", got)
	}
	l.must(os.RemoveAll(l.at("/var/lib/other/run/one")))
	l.must(l.Uninstall(t.Context()))
	if l.files()["/opt/msb/bin/"+Shim] != "" {
		t.Error("the shim is left")
	}
}

// TestBrokenRestartIsUndone: a containerd that doesn't start with the drop-in is started without it.
func TestBrokenRestartIsUndone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.put("/broken", "")
	if err := l.Install(t.Context()); err == nil {
		t.Fatal("installed")
	}
	got := l.files()
	if got["/etc/containerd/conf.d/msb.toml"] != "" || !strings.HasSuffix(got["/etc/containerd/config.toml"], containerdConfig) || strings.Contains(got["/etc/containerd/config.toml"], "imports") {
		t.Errorf("left: %v", got)
	}
	if n := l.restarts(); n != 2 {
		t.Errorf("containerd was restarted %d times, want 2", n)
	}
}

// TestBadInputChangesNothing: what is wrong, where, and what to do.
func TestBadInputChangesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*lab)
		want   string
	}{
		{"floor", func(l *lab) { l.Config = fstest.MapFS{floorFile: {Data: []byte("version = 1\nallow = 3\n")}} }, "floor.toml:2"},
		{"settings", func(l *lab) { l.Config = fstest.MapFS{settingsFile: {Data: []byte("memory =\n")}} }, "shim.toml"},
		{"a misspelt setting", func(l *lab) { l.Config = fstest.MapFS{settingsFile: {Data: []byte("host_profile = 'drop'\n")}} }, "shim.toml: unknown key host_profile"},
		{"two floors", func(l *lab) {
			l.Config = fstest.MapFS{floorFile: {Data: []byte("version = 1\n")}, settingsFile: {Data: []byte("floor = '/x'\n")}}
		}, "leave one out"},
		{"large", func(l *lab) { l.Config = fstest.MapFS{settingsFile: {Data: make([]byte, maxConfig+1)}} }, "at most"},
		{"no shim", func(l *lab) { l.Parts = fstest.MapFS{} }, "make node-image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			before := l.files()
			c.change(l)
			if err := l.Install(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			l.equal(l.files(), before)
		})
	}
}

// TestForeignImportsAreNamed: a file that has imports of its own isn't edited.
func TestForeignImportsAreNamed(t *testing.T) {
	t.Parallel()
	for _, imports := range []string{"[]", "['/etc/other/*.toml']"} {
		l := newLab(t)
		l.put("/etc/containerd/config.toml", "imports = "+imports+"\n"+containerdConfig)
		if err := l.Install(t.Context()); err == nil || !strings.Contains(err.Error(), `add "/etc/containerd/conf.d/*.toml"`) {
			t.Errorf("imports = %s: %v", imports, err)
		}
		if l.restarts() != 0 {
			t.Error("containerd was restarted")
		}
	}
}

// TestOperatorsFilesAreFollowed: a change is taken over while it is right, and the last right one stays.
func TestOperatorsFilesAreFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	config := fstest.MapFS{floorFile: {Data: []byte("version = 1\n")}}
	l.Config = config
	l.must(l.Install(t.Context()))
	step := func(text string, want bool, ok bool) {
		t.Helper()
		config[floorFile] = &fstest.MapFile{Data: []byte(text)}
		if changed, err := l.Configure(); changed != want || (err == nil) != ok {
			t.Errorf("%q: changed %v, %v", text, changed, err)
		}
	}
	step("version = 1\n", false, true)
	step("version = 1\n# another\n", true, true)
	step("version = 7\n", false, false)
	if got := l.files()["/opt/msb/etc/floor.toml"]; !strings.HasSuffix(got, "# another\n") {
		t.Errorf("the floor is %q", got)
	}
}

// TestProgramsAreNeverInMemory: the DaemonSet's container has 256 MiB, in which its probe runs, too.
func TestProgramsAreNeverInMemory(t *testing.T) {
	l := newLab(t)
	parts := t.TempDir()
	const size, most = 64 << 20, 4 << 20
	l.must(errors.Join(os.Mkdir(filepath.Join(parts, "bin"), 0o755), os.WriteFile(filepath.Join(parts, "bin", Shim), nil, 0o755), os.Truncate(filepath.Join(parts, "bin", Shim), size)))
	l.Parts = os.DirFS(parts)
	for name, do := range map[string]func() error{
		"install": func() error { return l.Install(t.Context()) }, "install once more": func() error { return l.Install(t.Context()) }, "check": l.Check,
	} {
		var before, after runtime.MemStats
		l.must(l.Install(t.Context()))
		if name == "install" {
			l.must(os.Remove(l.at("/opt/msb/bin/" + Shim)))
		}
		runtime.ReadMemStats(&before)
		l.must(do())
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%s: %d bytes were allocated", name, after.TotalAlloc-before.TotalAlloc)
		}
	}
}

// TestImportsAsContainerdReadsThem: a pattern may be relative to the configuration's directory, or absolute; the line that is added
// stands before the first table, and the file keeps its mode.
func TestImportsAsContainerdReadsThem(t *testing.T) {
	t.Parallel()
	for imports, added := range map[string]bool{
		"imports = ['conf.d/*.toml']\n": false, "imports = ['/etc/containerd/conf.d/*.toml']\n": false, "imports = ['./conf.d/msb.toml', '/x']\n": false, "": true,
	} {
		l := newLab(t)
		text := imports + "[plugins]\n"
		l.put(l.Containerd, text)
		l.must(os.Chmod(l.at(l.Containerd), 0o640))
		l.must(l.Install(t.Context()))
		got := l.files()[l.Containerd]
		want := "-rw-r----- " + text
		if added {
			want = "-rw-r----- " + l.importLine() + text
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", imports, got, want)
		}
	}
	l := newLab(t)
	l.put(l.Containerd, "imports =\n")
	if err := l.Install(t.Context()); err == nil || !strings.Contains(err.Error(), l.Containerd) || l.restarts() > 0 {
		t.Errorf("no configuration at all: %v", err)
	}
}

// TestDropIn is what containerd reads, byte by byte, and a change of it is a restart.
func TestDropIn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.Install(t.Context()))
	for _, want := range []string{
		"-rw-r--r-- ", "version = 3\n", "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb]\n", "runtime_type = 'io.containerd.msb.v1'\n",
		"runtime_path = '/opt/msb/bin/" + Shim + "'\n", "sandboxer = 'podsandbox'\n", "pod_annotations = ['msb.dev/*']\n", "ConfigPath = '/opt/msb/etc/shim.toml'\n",
	} {
		if got := l.files()[l.DropIn]; !strings.Contains(got, want) {
			t.Errorf("the drop-in %q lacks %q", got, want)
		}
	}
	l.put(l.DropIn, "version = 3\n")
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), l.DropIn) {
		t.Errorf("another drop-in: %v", err)
	}
	l.must(l.Install(t.Context()))
	l.must(l.Check())
	if n := l.restarts(); n != 2 {
		t.Errorf("containerd was restarted %d times, want 2", n)
	}
	l.must(os.Remove(l.at(l.DropIn)))
	if l.Check() == nil {
		t.Error("without a drop-in nothing is missing")
	}
}

// TestCopiesAreWhole: links of the image are the files that they name, programs keep being programs, and a file that another one
// begins with is another one.
func TestCopiesAreWhole(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	parts := t.TempDir()
	at := func(name string) string { return filepath.Join(parts, name) }
	l.must(errors.Join(
		os.MkdirAll(at("bin"), 0o755), os.MkdirAll(at("lib"), 0o755), os.WriteFile(at("bin/"+Shim), []byte("shim"), 0o755), os.Chmod(at("bin/"+Shim), 0o755),
		os.WriteFile(at("lib/krun.so.1.2"), []byte("krun"), 0o644), os.Symlink("krun.so.1.2", at("lib/krun.so.1")),
	))
	l.Parts = os.DirFS(parts)
	l.must(l.Install(t.Context()))
	for name, want := range map[string]string{"/opt/msb/lib/krun.so.1": "-rw-r--r-- krun", "/opt/msb/bin/" + Shim: "-rwxr-xr-x shim"} {
		if got := l.files()[name]; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, other := range []string{"shi", "shimm", "", "shiM"} {
		l.must(os.WriteFile(l.at("/opt/msb/bin/"+Shim), []byte(other), 0o600))
		if l.Check() == nil {
			t.Errorf("%q is the image's", other)
		}
	}
	l.must(l.Install(t.Context()))
	l.must(l.Check())
}

// TestRestartsAreReported: systemctl acts although it runs in a chroot, and what a restart says is part of the error; the node is as it
// was, also when the installation is told to end meanwhile.
func TestRestartsAreReported(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.files()
	ctx, cancel := context.WithCancel(t.Context())
	said := l.Say
	l.Say = func(format string, args ...any) {
		said(format, args...)
		if strings.HasPrefix(format, "restarting") {
			cancel() // while the first restart begins
		}
	}
	if err := l.Install(ctx); err == nil {
		t.Error("a restart that was ended is none")
	}
	got := l.files()
	if got[l.DropIn] != "" || got[l.Containerd] != before[l.Containerd] {
		t.Errorf("left: %v", got)
	}
	if l.restarts() == 0 {
		t.Error("containerd was not restarted without the drop-in")
	}
	l = newLab(t)
	l.Restart = []string{"sh", "-c", `echo "ignored: $SYSTEMD_IGNORE_CHROOT"; exit 1`}
	if err := l.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "ignored: 1") {
		t.Errorf("got %v", err)
	}
}

// TestMachinesOfTheDefaultHome keep msb's files, too, and files among them are none.
func TestMachinesOfTheDefaultHome(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.Install(t.Context()))
	l.put("/var/lib/msb/run/a-file", "")
	l.must(os.MkdirAll(l.at("/var/lib/msb/run/sb-1"), 0o700))
	if err := l.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "1 machines") || !strings.Contains(err.Error(), "/var/lib/msb/run/sb-1") {
		t.Errorf("with a machine: %v", err)
	}
	if n := l.restarts(); n != 2 {
		t.Errorf("containerd was restarted %d times, want 2: it has forgotten the runtime", n)
	}
	l.must(os.RemoveAll(l.at("/var/lib/msb/run/sb-1")))
	l.must(l.Uninstall(t.Context()))
	l = newLab(t)
	l.must(l.Install(t.Context()))
	l.put(l.settings(), "home =\n")
	if err := l.Uninstall(t.Context()); err == nil || l.files()["/opt/msb/bin/"+Shim] == "" {
		t.Errorf("settings that name no home: %v", err)
	}
}

// TestOperatorsFilesAreRootsOwn: nobody else reads them, of a large one nothing is written, and one without the other is enough.
func TestOperatorsFilesAreRootsOwn(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Config = fstest.MapFS{settingsFile: {Data: append([]byte("# "), bytes.Repeat([]byte("x"), maxConfig-2)...), Mode: 0o644}}
	l.must(l.Install(t.Context()))
	if got := l.files()[l.settings()]; !strings.HasPrefix(got, "-rw------- # ") {
		t.Errorf("got %.20q", got)
	}
	l.Config = fstest.MapFS{floorFile: {Data: []byte("version = 1\n"), Mode: 0o644}, settingsFile: {Data: []byte("memory = '1G'\n")}}
	if changed, err := l.Configure(); err != nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	if got := l.files(); got["/opt/msb/etc/floor.toml"] != "-rw------- version = 1\n" {
		t.Errorf("got %v", got["/opt/msb/etc/floor.toml"])
	}
	// A floor is written with its settings, or not at all.
	l.Config = fstest.MapFS{floorFile: {Data: []byte("version = 1\n# new\n")}, settingsFile: {Data: []byte("memory =\n")}}
	if changed, err := l.Configure(); err == nil || changed || strings.Contains(l.files()["/opt/msb/etc/floor.toml"], "new") {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// TestForeignFilesStay: a directory that other programs use isn't taken, and what is put into msb's own meanwhile isn't removed. The twin
// is a directory that holds nothing else.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"a directory of others": "/opt/msb/bin/precious", "the same at the top": "/opt/msb/precious", "a link": "/opt/msb/link",
		"one that msb-node was killed at": "/opt/msb/bin/." + Shim + "123", "its own": "/opt/msb/bin/msb",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			own := name == "its own" || strings.HasPrefix(name, "one that")
			if name == "a link" {
				l.must(errors.Join(os.MkdirAll(l.at("/opt/msb"), 0o755), os.Symlink(l.at("/etc/containerd/config.toml"), l.at(file))))
			} else {
				l.put(file, "precious")
			}
			before := l.files()
			if err := l.Install(t.Context()); own != (err == nil) || !own && !strings.Contains(err.Error(), "--prefix") {
				t.Fatalf("got %v", err)
			}
			if !own {
				l.equal(l.files(), before)
				return
			}
			l.must(l.Uninstall(t.Context()))
			if _, err := os.Lstat(l.at("/opt/msb")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left: %v", l.files())
			}
		})
	}
	l := newLab(t)
	l.must(l.Install(t.Context()))
	l.put("/opt/msb/bin/later", "precious")
	l.put("/opt/msb/share/later", "precious")
	l.Parts = fstest.MapFS{"bin/" + Shim: {Data: []byte("shim 2"), Mode: 0o755}}
	l.must(l.Install(t.Context())) // which has fewer files, and knows those of before
	l.must(l.Uninstall(t.Context()))
	got := l.files()
	if got["/opt/msb/bin/later"] == "" || got["/opt/msb/share/later"] == "" {
		t.Errorf("removed what others made: %v", got)
	}
	for name := range got {
		if strings.HasPrefix(name, "/opt/msb/") && !strings.HasSuffix(name, "/later") {
			t.Errorf("%s is left", name)
		}
	}
}

// TestManifestNamesNothingElse: whoever could write to it is root of the node, and uninstalling still removes nothing outside of it.
func TestManifestNamesNothingElse(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(l.Install(t.Context()))
	l.put("/precious", "precious")
	l.put(l.manifest(), "bin/"+Shim+"\n../../precious\n")
	if err := l.Uninstall(t.Context()); err == nil || l.files()["/precious"] == "" {
		t.Errorf("got %v, and %v", err, l.files())
	}
}

// TestKilledInstallersRestartContainerd: one that is killed between a change and the restart has the next one do it. The twin, without
// the mark, does nothing.
func TestKilledInstallersRestartContainerd(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		l := newLab(t)
		_, err := l.restartDue()
		l.must(errors.Join(err, l.record()))
		_, err = l.copyTree(l.Parts)
		l.must(err)
		_, err = l.addImport()
		l.must(err)
		_, err = l.Configure()
		l.must(err)
		_, err = l.write(l.DropIn, []byte(l.dropIn()), 0o644)
		l.must(err) // and killed
		if !marked {
			l.must(l.restartDone(false))
		}
		if err := l.Check(); marked != (err != nil) {
			t.Errorf("marked %v: the check says %v", marked, err)
		}
		l.Restart = []string{"sh", "-c", `echo x >> "$0/restarts"`, l.Root}
		l.must(l.Install(t.Context()))
		if got := l.restarts(); (got == 1) != marked {
			t.Errorf("marked %v: %d restarts", marked, got)
		}
		l.must(l.Install(t.Context()))
		l.must(l.Check())
		if got := l.restarts(); got > 1 {
			t.Errorf("%d restarts", got)
		}
	}
}
