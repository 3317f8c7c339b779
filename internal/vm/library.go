package vm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Sonames of the two libraries, as their packages install them.
const (
	Libkrun   = "libkrun.so.1"
	Libkrunfw = "libkrunfw.so.5"
)

// LibDirEnv names a directory to look for the libraries in before any other.
const LibDirEnv = "MSB_LIBDIR"

// ldConf lists the directories that the host's dynamic linker looks into.
const ldConf = "/etc/ld.so.conf"

// LibraryDirs returns the directories that FindLibrary looks into, in order: the
// operator's own choice, the directories that belong to msb's binary, then the
// system's.
func LibraryDirs() []string {
	var dirs []string
	if dir := os.Getenv(LibDirEnv); dir != "" {
		dirs = append(dirs, dir)
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		bin := filepath.Dir(exe)
		dirs = append(dirs, filepath.Join(bin, "..", "lib", "msb"), filepath.Join(bin, "lib"))
	}
	dirs = append(dirs, linkerDirs(ldConf)...)
	return append(dirs,
		"/usr/local/lib64", "/usr/local/lib", "/usr/lib64", "/usr/lib",
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/lib",
		"/opt/homebrew/lib", "/home/linuxbrew/.linuxbrew/lib")
}

// FindLibrary returns the absolute path of a library by its soname. The error
// is the given sentinel with the remedy.
func FindLibrary(soname string, missing error) (string, error) {
	for _, dir := range LibraryDirs() {
		path, err := filepath.Abs(filepath.Join(dir, soname))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s in $%s, beside msb or in the system's library directories; run scripts/setup or install your system's package",
		missing, soname, LibDirEnv)
}

// linkerDirs reads the directories out of the dynamic linker's configuration. Its
// include lines are patterns relative to its own directory.
func linkerDirs(conf string) []string {
	var dirs []string
	for _, line := range confLines(conf) {
		pattern, isInclude := strings.CutPrefix(line, "include ")
		if !isInclude {
			dirs = append(dirs, line)
			continue
		}
		pattern = strings.TrimSpace(pattern)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(conf), pattern)
		}
		files, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, file := range files {
			// One level is all that distributions use, and it can't loop.
			for _, dir := range confLines(file) {
				if filepath.IsAbs(dir) {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

// maxConfBytes bounds what is read of a linker configuration.
const maxConfBytes = 1 << 20

func confLines(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var lines []string
	for sc := bufio.NewScanner(io.LimitReader(f, maxConfBytes)); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// FindQEMU returns the absolute path of QEMU's x86-64 system emulator.
func FindQEMU() (string, error) {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: install qemu-system-x86 (Debian, Ubuntu), qemu-system-x86-core (Fedora) or qemu-system-x86 (Arch)", ErrQEMUMissing)
	}
	return path, nil
}
