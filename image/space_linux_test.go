package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The store lies on a file system of 4 MiB, mounted in a namespace of its own; that
// needs root or user namespaces, which the machines that run these tests have.
func TestI12_FullDisksLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "a.tar.gz")
	mustWrite(t, archive, gzipped(t, layerOf(t, "layer.tar", randomText(6<<20))))
	for name, f := range map[string]fixture{
		"while unpacking":      {},
		"while spooling":       {layers: [][]byte{layerOf(t, "a", randomText(6<<20))}, compress: gzipped},
		"before it starts":     {layers: [][]byte{layerOf(t, "a", randomText(6<<20))}, compress: plain},
		"while writing a disk": {layers: [][]byte{layerOf(t, "a", randomText(5<<19))}, compress: gzipped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := archivePrefix + archive
			if f.layers != nil {
				ref = ociPrefix + f.layout(t)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "MSB_IMAGE_TEST_HELPER=full:"+ref, "MSB_IMAGE_TEST_STORE="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
			if os.Geteuid() != 0 {
				cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), "no space left") || !strings.Contains(string(out), "MSB_HOME") {
				t.Errorf("no remedy in %s", out)
			}
			if name == "while unpacking" && !strings.Contains(string(out), "bytes are free, at least 16777216 are needed") {
				t.Errorf("it was written until the disk was full: %s", out)
			}
		})
	}
}

// randomText compresses by half at most, and holds no zeros that would be holes.
func randomText(n int) string {
	const hex = "0123456789abcdef"
	out := make([]byte, n)
	x := uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = hex[x>>28]
	}
	return string(out)
}

// fullDisk resolves ref with a store on a tiny tmpfs; nil when that went as it should.
func fullDisk(dir, ref string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return err
	}
	s, err := Open(filepath.Join(dir, "images"), StoreOptions{})
	if err != nil {
		return err
	}
	_, err = s.Resolve(contextBackground(), ref, Options{})
	if !errors.Is(err, ErrNoSpace) {
		return errors.Join(errors.New("want ErrNoSpace"), err)
	}
	_, _ = os.Stdout.WriteString(err.Error())
	for _, sub := range []string{disksDir, refsDir, tmpDir, locksDir} {
		left, err := os.ReadDir(filepath.Join(s.dir, sub))
		if err != nil || len(left) != 0 {
			return errors.Join(errors.New("left behind: "+sub), err)
		}
	}
	return nil
}
