package ext4disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fsck fails the test unless e2fsck finds nothing to say.
func fsck(t *testing.T, disk string) {
	t.Helper()
	out, err := exec.Command(tool(t, "e2fsck"), "-fn", disk).CombinedOutput()
	if err != nil {
		t.Fatalf("e2fsck %s: %v\n%s", disk, err, out)
	}
}

// tool finds a program of e2fsprogs, which scripts/setup installs.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/opt/homebrew/opt/e2fsprogs/sbin"} {
		if p := filepath.Join(dir, name); exec.Command(p, "-V").Run() == nil {
			return p
		}
	}
	t.Fatalf("%s is missing: install e2fsprogs", name)
	return ""
}

func debugfs(t *testing.T, disk string, write bool, command string) string {
	t.Helper()
	args := []string{"-R", command, disk}
	if write {
		args = append([]string{"-w"}, args...)
	}
	cmd := exec.Command(tool(t, "debugfs"), args...)
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("debugfs %q: %v\n%s", command, err, errText.String())
	}
	return string(out)
}

func TestCreateEmptyIsCleanAndSparse(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{
		minEmptyBytes, minEmptyBytes + 12345, 128<<20 - blockSize, 128 << 20, 128<<20 + blockSize, 129 << 20,
		1 << 30, 10<<30 + 4096*3, 64 << 30,
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			disk := filepath.Join(t.TempDir(), "upper.ext4")
			if err := CreateEmpty(disk, size); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(disk)
			if err != nil {
				t.Fatal(err)
			}
			if want := size / blockSize * blockSize; st.Size() != want {
				t.Errorf("size %d, want %d", st.Size(), want)
			}
			if got := st.Sys().(*syscall.Stat_t).Blocks * 512; got > 4<<20 {
				t.Errorf("it takes %d bytes on the disk, want a sparse file", got)
			}
			fsck(t, disk)
			if out := debugfs(t, disk, false, "ls /"); strings.Contains(out, "lost+found") {
				t.Errorf("it has a lost+found: %s", out)
			}
		})
	}
}

func TestCreateEmptyCanBeWritten(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "upper.ext4")
	if err := CreateEmpty(disk, 512<<20); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte(strings.Repeat("x", 3<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	debugfs(t, disk, true, "mkdir upper")
	debugfs(t, disk, true, "mkdir work")
	debugfs(t, disk, true, "write "+src+" upper/file")
	fsck(t, disk)
	if out := debugfs(t, disk, false, "stat upper/file"); !strings.Contains(out, "Size: 3145728") {
		t.Errorf("the file is not there: %s", out)
	}
}

func TestI12_CreateEmptyRefusesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, size := range []int64{-1, 0, minEmptyBytes - 1, maxEmptyBytes + 1} {
		disk := filepath.Join(dir, "upper")
		if err := CreateEmpty(disk, size); !errors.Is(err, errSize) || !strings.Contains(err.Error(), "choose from 16M to 15T") {
			t.Errorf("size %d: %v, want ErrSize", size, err)
		}
		if _, err := os.Lstat(disk); !os.IsNotExist(err) {
			t.Errorf("size %d left a file", size)
		}
	}
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CreateEmpty(taken, 1<<30); !os.IsExist(errors.Unwrap(err)) && !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v, want ErrExist", err)
	}
	if b, _ := os.ReadFile(taken); string(b) != "mine" {
		t.Errorf("the file that was there is now %q", b)
	}
}

func BenchmarkCreateEmpty(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		disk := filepath.Join(dir, fmt.Sprint(i))
		if err := CreateEmpty(disk, 64<<30); err != nil {
			b.Fatal(err)
		}
		_ = os.Remove(disk)
	}
}

func TestUncleanFileSystemsAreRecognised(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	if err := CreateEmpty(disk, minEmptyBytes); err != nil {
		t.Fatal(err)
	}
	if err := CheckClosed(disk); err != nil {
		t.Errorf("one that was never mounted: %v", err)
	}
	for name, change := range map[string]struct {
		at  int64
		bit byte
	}{"journal": {0x60, 0x4}, "errors": {0x3a, 0x2}, "magic": {0x38, 0xff}} {
		f, err := os.OpenFile(disk, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		_, err = f.ReadAt(b[:], superblockOffset+change.at)
		if err == nil {
			_, err = f.WriteAt([]byte{b[0] ^ change.bit}, superblockOffset+change.at)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckClosed(disk); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := f.WriteAt(b[:], superblockOffset+change.at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(disk, 100); err != nil {
		t.Fatal(err)
	}
	if err := CheckClosed(disk); !errors.Is(err, errDamaged) {
		t.Errorf("a short file: %v", err)
	}
}
