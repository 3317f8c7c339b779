package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// writeImage puts an image that differs by its label alone into an OCI layout, in place of the one before.
func writeImage(t *testing.T, dir, label string) {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: "amd64", Config: v1.Config{Labels: map[string]string{"is": label}},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"})); err != nil {
		t.Fatal(err)
	}
}

// TestImagePruneSaysWhatItFreed: nothing while every disk has a name, and the size of the one that lost its own.
func TestImagePruneSaysWhatItFreed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "image")
	env := []string{"MSB_HOME=" + filepath.Join(t.TempDir(), "home")}
	var digests []string
	for _, label := range []string{"one", "two"} {
		writeImage(t, dir, label)
		got := msb(t, env, "image", "pull", "-q", "oci:"+dir)
		if got.code != 0 {
			t.Fatalf("pull: %+v", got)
		}
		digests = append(digests, strings.TrimSpace(got.out))
		if label == "one" {
			if got := msb(t, env, "image", "prune"); got.code != 0 || got.out != "KIND   NAME  SIZE\ntotal        0 B\n" {
				t.Errorf("prune of what has a name: %+v", got)
			}
		}
	}
	if digests[0] == digests[1] || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(digests[1]) {
		t.Fatalf("pulled %q", digests)
	}
	if got := msb(t, env, "image", "ls", "-q"); got.out != digests[0]+"\noci:"+dir+"\n" && got.out != "oci:"+dir+"\n"+digests[0]+"\n" {
		t.Errorf("names of the list: %+v", got)
	}
	if got := msb(t, env, "image", "ls"); !strings.Contains(got.out, "\n<none> ") {
		t.Errorf("the list: %+v", got)
	}
	for _, args := range [][]string{{"--dry-run"}, nil} {
		got := msb(t, env, append([]string{"image", "prune"}, args...)...)
		if got.code != 0 || got.err != "" || !regexp.MustCompile(`\nimage +`+digests[0]+` +[1-9][0-9.]* [kM]B\ntotal +[1-9][0-9.]* [kM]B\n$`).MatchString(got.out) {
			t.Errorf("prune %q: %+v", args, got)
		}
	}
	if got := msb(t, env, "image", "ls", "--json"); !strings.Contains(got.out, digests[1]) || strings.Contains(got.out, digests[0]) {
		t.Errorf("afterwards there are %s", got.out)
	}
	// What can't be opened is an error and frees nothing.
	file := write(t, "file", "")
	if got := msb(t, []string{"MSB_HOME=" + file}, "image", "prune"); got.code == 0 || got.out != "" {
		t.Errorf("with a file as state directory: %+v", got)
	}
}

// TestDoctorMarksWhatIsRequired: what is required stands out from what is only better to have, each with its remedy.
func TestDoctorMarksWhatIsRequired(t *testing.T) {
	t.Parallel()
	d := diagnosis{Findings: []finding{
		{Name: "home", OK: true, Required: true, Detail: "/h"},
		{Name: "disk", Detail: "little", Remedy: "free some"},
		{Name: "kvm", Required: true, Detail: "no such device", Remedy: "load it"},
		{Name: "parts", Required: true, Detail: "none"},
	}, Why: "the reason"}
	if lacks := d.required(); strings.Join(lacks, "; ") != "kvm: no such device; parts: none" {
		t.Errorf("required: %q", lacks)
	}
	for usable, last := range map[bool]string{true: "msb runs here with the reason", false: "msb can't run here: the reason"} {
		var out strings.Builder
		d.Usable = usable
		if err := printDiagnosis(newUI(&out, io.Discard), d, false); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(out.String()) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		want := []string{"ok home /h", "no disk little → free some", "MISSING kvm no such device → load it", "MISSING parts none", "", last}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", lines, want)
		}
	}
	if err := printDiagnosis(newUI(failingWriter{}, io.Discard), d, false); err == nil {
		t.Error("a report that nobody gets is no error")
	}
}

// failingWriter is a full disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
