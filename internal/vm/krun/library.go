package krun

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/msb-project/msb/internal/vm"
)

// floor is the oldest libkrun that is used. In 1.16 and older every vsock
// device obeys TSI control messages whatever its flags say, so the guest's root
// opens sockets of the host past every filter; and the multiport console that
// carries the agent came with 1.17.0.
const floor = "1.17.0"

// landmarks tell the version by the first symbol that it brought, newest
// first: the library has no function for it, and its file name need not.
var landmarks = []struct{ symbol, version string }{
	{"krun_disable_implicit_init", "1.19.0"},
	{"krun_add_virtiofs3", "1.18.0"},
	{"krun_has_feature", "1.17.3"},
	{"krun_add_virtio_console_multiport", floor},
}

// optional are the features that a user may ask about, by the symbol that each
// brought. The library can say more only once it is loaded.
var optional = []struct{ symbol, feature string }{
	{"krun_add_net_unixstream", "net"},
	{"krun_add_disk2", "blk"},
	{"krun_add_virtio_console_multiport", "multiport console"},
	{"krun_has_feature", "feature query"},
	{"krun_add_virtiofs3", "read-only virtiofs"},
}

// needed are the functions that this package calls, those of load.go.
var needed = []string{
	"krun_init_log", "krun_create_ctx", "krun_set_vm_config", "krun_disable_implicit_vsock",
	"krun_disable_implicit_console", "krun_add_virtio_console_multiport", "krun_add_console_port_inout",
	"krun_add_net_unixstream", "krun_add_disk2", "krun_set_kernel", "krun_set_exec", "krun_start_enter",
}

// inspect reads a libkrun's version and features from its symbols, without loading it. The
// answer is a full version when the file's name has one, else "1.17.3 or newer".
func inspect(path string) (version string, features []string, err error) {
	lib, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s: %w", vm.ErrLibkrunMissing, path, err)
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	list, err := lib.DynamicSymbols()
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s: %w", vm.ErrLibkrunMissing, path, err)
	}
	symbols := make(map[string]bool, len(list))
	for _, s := range list {
		symbols[s.Name] = true
	}
	for _, name := range needed {
		if !symbols[name] {
			return "", nil, tooOld(path, name)
		}
	}
	for _, o := range optional {
		if symbols[o.symbol] {
			features = append(features, o.feature)
		}
	}
	return versionOf(path, symbols), features, nil
}

func tooOld(path, symbol string) error {
	return fmt.Errorf("%w: %s lacks %s, and before %s a guest could open the host's sockets past every filter; install libkrun %s or newer, or run scripts/setup",
		vm.ErrLibkrunTooOld, path, symbol, floor, floor)
}

func versionOf(path string, symbols map[string]bool) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		_, version, ok := strings.Cut(filepath.Base(real), ".so.")
		if ok && strings.Count(version, ".") == 2 {
			return version
		}
	}
	for _, l := range landmarks {
		if symbols[l.symbol] {
			return l.version + " or newer"
		}
	}
	return "unknown"
}

// find finds libkrun and checks its version.
func find() (path, version string, features []string, err error) {
	path, err = vm.FindLibrary(vm.Libkrun, vm.ErrLibkrunMissing)
	if err != nil {
		return "", "", nil, err
	}
	version, features, err = inspect(path)
	return path, version, features, err
}

func checkLibrary() (string, vm.Check) {
	path, version, features, err := find()
	if err != nil {
		return "", vm.Missing("libkrun", true, err)
	}
	name := "libkrun " + version
	return name, vm.Check{Name: "libkrun", OK: true, Required: true, Detail: name + " (" + strings.Join(features, ", ") + ") at " + path}
}
