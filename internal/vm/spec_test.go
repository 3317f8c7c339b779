package vm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, odd, empty := disk("good", 4096), disk("odd", 1000), disk("empty", 0)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	tests := []struct {
		name   string
		change func(*Spec)
		ok     bool
	}{
		{"as it is", func(*Spec) {}, true},
		{"no CPU", func(s *Spec) { s.CPUs = 0 }, false},
		{"too many CPUs", func(s *Spec) { s.CPUs = MaxCPUs + 1 }, false},
		{"too little memory", func(s *Spec) { s.MemoryMiB = MinMemoryMiB - 1 }, false},
		{"too much memory", func(s *Spec) { s.MemoryMiB = MaxMemoryMiB + 1 }, false},
		{"no disk", func(s *Spec) { s.Disks = nil }, false},
		{"disk that is missing", func(s *Spec) { s.Disks[0].Path = dir + "/none" }, false},
		{"disk that is a directory", func(s *Spec) { s.Disks[0].Path = dir }, false},
		{"disk of broken sectors", func(s *Spec) { s.Disks[0].Path = odd }, false},
		{"empty disk", func(s *Spec) { s.Disks[0].Path = empty }, false},
		{"disk id with an option in it", func(s *Spec) { s.Disks[0].ID = "a,file=x" }, false},
		{"disk id twice", func(s *Spec) { s.Disks = append(s.Disks, s.Disks[0]) }, false},
		{"kernel argument", func(s *Spec) { s.Cmdline = []string{"msb.debug=1"} }, true},
		{"kernel argument that is two", func(s *Spec) { s.Cmdline = []string{"a init=/bin/sh"} }, false},
		{"kernel arguments too long", func(s *Spec) { s.Cmdline = []string{strings.Repeat("a", 2000)} }, false},
		{"net without descriptor", func(s *Spec) { s.Net = &Net{MAC: mac} }, false},
		{"net with a multicast MAC", func(s *Spec) { s.Net = &Net{FD: os.Stdin, MAC: net.HardwareAddr{1, 0, 0, 0, 0, 1}} }, false},
		{"net with a short MAC", func(s *Spec) { s.Net = &Net{FD: os.Stdin, MAC: mac[:5]} }, false},
		{"net", func(s *Spec) { s.Net = &Net{FD: os.Stdin, MAC: mac} }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Spec{CPUs: 1, MemoryMiB: 256, Disks: []Disk{{Path: good, ID: "root"}}}
			tt.change(&s)
			err := s.Validate()
			if (err == nil) != tt.ok || (err != nil && !errors.Is(err, ErrSpec)) {
				t.Errorf("got %v, want ok = %v", err, tt.ok)
			}
		})
	}
}

func TestFindLibraryPrefersOperatorsDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(LibDirEnv, dir)
	want := filepath.Join(dir, "libmsbtest.so.1")
	if _, err := FindLibrary("libmsbtest.so.1", ErrLibkrunMissing); !errors.Is(err, ErrLibkrunMissing) || !strings.Contains(err.Error(), "scripts/setup") {
		t.Errorf("without it: %v, want ErrLibkrunMissing with the remedy", err)
	}
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := FindLibrary("libmsbtest.so.1", ErrLibkrunMissing); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestLinkerDirsFollowsIncludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"ld.so.conf": "# comment\ninclude d/*.conf\n/opt/one\n",
		"d/a.conf":   "/opt/two # why\n\nrelative\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(linkerDirs(filepath.Join(dir, "ld.so.conf")), " "); got != "/opt/two /opt/one" {
		t.Errorf("got %q", got)
	}
}
