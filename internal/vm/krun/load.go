//go:build linux && cgo

package krun

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// The signatures are those of libkrun 1.17.0 (its include/libkrun.h). They are
// written here so that no header of libkrun's is needed to build.
static struct {
	int32_t (*init_log)(int fd, uint32_t level, uint32_t style, uint32_t options);
	int32_t (*create_ctx)(void);
	int32_t (*set_vm_config)(uint32_t ctx, uint8_t cpus, uint32_t ram_mib);
	int32_t (*disable_implicit_vsock)(uint32_t ctx);
	int32_t (*disable_implicit_console)(uint32_t ctx);
	int32_t (*add_virtio_console_multiport)(uint32_t ctx);
	int32_t (*add_console_port_tty)(uint32_t ctx, uint32_t console, const char *name, int tty);
	int32_t (*add_console_port_inout)(uint32_t ctx, uint32_t console, const char *name, int in, int out);
	int32_t (*add_net_unixstream)(uint32_t ctx, const char *path, int fd, uint8_t *mac, uint32_t features, uint32_t flags);
	int32_t (*add_disk2)(uint32_t ctx, const char *id, const char *path, uint32_t format, bool read_only);
	int32_t (*set_kernel)(uint32_t ctx, const char *path, uint32_t format, const char *initramfs, const char *cmdline);
	int32_t (*set_exec)(uint32_t ctx, const char *path, const char *const argv[], const char *const envp[]);
	int32_t (*start_enter)(uint32_t ctx);
	int32_t (*has_feature)(uint64_t feature); // since 1.17.3
} krun;

static const char *msb_load(const char *krunfw_path, const char *krun_path, const char **missing) {
	// First, and by path: libkrun asks for it by its soname, which the dynamic
	// linker then finds among what is loaded.
	if (!dlopen(krunfw_path, RTLD_NOW | RTLD_GLOBAL)) return dlerror();
	void *lib = dlopen(krun_path, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) return dlerror();
#define GET(name) if (!(*(void **)&krun.name = dlsym(lib, "krun_" #name))) { *missing = "krun_" #name; return NULL; }
	GET(init_log) GET(create_ctx) GET(set_vm_config) GET(disable_implicit_vsock) GET(disable_implicit_console)
	GET(add_virtio_console_multiport) GET(add_console_port_tty) GET(add_console_port_inout) GET(add_net_unixstream)
	GET(add_disk2)
	GET(set_kernel) GET(set_exec) GET(start_enter)
#undef GET
	*(void **)&krun.has_feature = dlsym(lib, "krun_has_feature");
	return NULL;
}

static int32_t msb_init_log(int fd, uint32_t level, uint32_t style, uint32_t options) { return krun.init_log(fd, level, style, options); }
static int32_t msb_create_ctx(void) { return krun.create_ctx(); }
static int32_t msb_set_vm_config(uint32_t ctx, uint8_t cpus, uint32_t ram) { return krun.set_vm_config(ctx, cpus, ram); }
static int32_t msb_disable_implicit_vsock(uint32_t ctx) { return krun.disable_implicit_vsock(ctx); }
static int32_t msb_disable_implicit_console(uint32_t ctx) { return krun.disable_implicit_console(ctx); }
static int32_t msb_add_console(uint32_t ctx) { return krun.add_virtio_console_multiport(ctx); }
static int32_t msb_add_tty(uint32_t ctx, uint32_t console, const char *name, int tty) { return krun.add_console_port_tty(ctx, console, name, tty); }
static int32_t msb_add_port(uint32_t ctx, uint32_t console, const char *name, int in, int out) { return krun.add_console_port_inout(ctx, console, name, in, out); }
static int32_t msb_add_net(uint32_t ctx, int fd, uint8_t *mac, uint32_t features) { return krun.add_net_unixstream(ctx, NULL, fd, mac, features, 0); }
static int32_t msb_add_disk(uint32_t ctx, const char *id, const char *path, uint32_t format, bool ro) { return krun.add_disk2(ctx, id, path, format, ro); }
static int32_t msb_set_kernel(uint32_t ctx, const char *path, uint32_t format, const char *cmdline) { return krun.set_kernel(ctx, path, format, NULL, cmdline); }
static int32_t msb_set_empty_exec(uint32_t ctx, const char *path) { const char *const none[] = {NULL}; return krun.set_exec(ctx, path, none, none); }
static int32_t msb_start_enter(uint32_t ctx) { return krun.start_enter(ctx); }
static int32_t msb_has_feature(uint64_t feature) { return krun.has_feature ? krun.has_feature(feature) : -1; }
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/msb-project/msb/internal/vm"
)

// load loads both libraries into this process, for good.
func load(libkrunfw, libkrun string) error {
	fw, lib := C.CString(libkrunfw), C.CString(libkrun)
	defer C.free(unsafe.Pointer(fw))
	defer C.free(unsafe.Pointer(lib))
	var missing *C.char
	if text := C.msb_load(fw, lib, &missing); text != nil {
		return fmt.Errorf("%w: %s; are libcap-ng0 and libgcc-s1 installed?", vm.ErrLibkrunMissing, C.GoString(text))
	}
	if missing != nil {
		return tooOld(libkrun, C.GoString(missing))
	}
	return nil
}

// call turns a negative return value into an error that names the function.
func call(name string, ret C.int32_t) error {
	if ret < 0 {
		return fmt.Errorf("%w: krun_%s: %w", vm.ErrVMM, name, syscall.Errno(-ret))
	}
	return nil
}

// Constants of include/libkrun.h.
const (
	logLevelError    = 1
	logStyleNever    = 2
	logOptionNoEnv   = 1
	diskFormatRaw    = 0
	kernelFormatELF  = 1
	featureNet       = 0
	featureBlk       = 1
	logTargetDefault = -1

	// netFeatures make the guest post receive buffers of 64 KiB, without which
	// it takes no frame above 1,514 bytes whatever its MTU. The guest still
	// checksums what it sends (CSUM is not offered), sends no segment larger
	// than its MTU (nor is HOST_TSO), and checks what it receives.
	netFeatures         = netFeatureGuestCSUM | netFeatureGuestTSO4 | netFeatureGuestTSO6
	netFeatureGuestCSUM = 1 << 1
	netFeatureGuestTSO4 = 1 << 7
	netFeatureGuestTSO6 = 1 << 8
)

// missingFeature names a feature that the library says it lacks.
func missingFeature() error {
	for _, f := range []struct {
		name   string
		number C.uint64_t
	}{{"NET", featureNet}, {"BLK", featureBlk}} {
		if C.msb_has_feature(f.number) == 0 {
			return fmt.Errorf("%w: libkrun was built without %s=1; run scripts/setup", vm.ErrLibkrunMissing, f.name)
		}
	}
	return nil
}

// build configures the machine and returns its context.
func build(c *config) (C.uint32_t, error) {
	if err := call("init_log", C.msb_init_log(logTargetDefault, logLevelError, logStyleNever, logOptionNoEnv)); err != nil {
		return 0, err
	}
	id := C.msb_create_ctx()
	if err := call("create_ctx", id); err != nil {
		return 0, err
	}
	ctx := C.uint32_t(id)
	for _, step := range []func(C.uint32_t, *config) error{disableDefaults, setMachine, addConsole, addDisks, addNet} {
		if err := step(ctx, c); err != nil {
			return 0, err
		}
	}
	return ctx, nil
}

// disableDefaults switches off what libkrun adds by default. Without the first
// call a guest without a network card has the host's network through TSI.
func disableDefaults(ctx C.uint32_t, _ *config) error {
	if err := call("disable_implicit_vsock", C.msb_disable_implicit_vsock(ctx)); err != nil {
		return err
	}
	return call("disable_implicit_console", C.msb_disable_implicit_console(ctx))
}

func setMachine(ctx C.uint32_t, c *config) error {
	if err := call("set_vm_config", C.msb_set_vm_config(ctx, C.uint8_t(c.CPUs), C.uint32_t(c.MemoryMiB))); err != nil {
		return err
	}
	kernel, cmdline, init := C.CString(c.Kernel), C.CString(c.Cmdline), C.CString("/init")
	defer C.free(unsafe.Pointer(kernel))
	defer C.free(unsafe.Pointer(cmdline))
	defer C.free(unsafe.Pointer(init))
	if err := call("set_kernel", C.msb_set_kernel(ctx, kernel, kernelFormatELF, cmdline)); err != nil {
		return err
	}
	// Our command line replaces libkrun's, but an environment that was never
	// set would be a copy of this process's.
	return call("set_exec", C.msb_set_empty_exec(ctx, init))
}

// addConsole makes the console first: port 0 is hvc0. To libkrun a port is a
// console, where the guest's kernel writes, only if it is a terminal.
func addConsole(ctx C.uint32_t, c *config) error {
	id := C.msb_add_console(ctx)
	if err := call("add_virtio_console_multiport", id); err != nil {
		return err
	}
	console := C.CString("console")
	defer C.free(unsafe.Pointer(console))
	if err := call("add_console_port_tty", C.msb_add_tty(ctx, C.uint32_t(id), console, C.int(c.ConsoleFD))); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		fd   int
	}{{vm.AgentPort, c.AgentFD}, {vm.DirectoryPort, c.DirectoriesFD}} {
		name := C.CString(p.name)
		err := call("add_console_port_inout", C.msb_add_port(ctx, C.uint32_t(id), name, C.int(p.fd), C.int(p.fd)))
		C.free(unsafe.Pointer(name))
		if err != nil {
			return err
		}
	}
	return nil
}

func addDisks(ctx C.uint32_t, c *config) error {
	for _, d := range c.Disks {
		id, path := C.CString(d.ID), C.CString(d.Path)
		err := call("add_disk2", C.msb_add_disk(ctx, id, path, diskFormatRaw, C.bool(d.ReadOnly)))
		C.free(unsafe.Pointer(id))
		C.free(unsafe.Pointer(path))
		if err != nil {
			return fmt.Errorf("disk %s: %w", d.ID, err)
		}
	}
	return nil
}

// addNet adds the card: see netFeatures.
func addNet(ctx C.uint32_t, c *config) error {
	if c.NetFD < 0 {
		return nil
	}
	if len(c.MAC) != 6 {
		return fmt.Errorf("%w: MAC address of %d bytes", vm.ErrSpec, len(c.MAC))
	}
	mac := (*C.uint8_t)(C.CBytes(c.MAC))
	defer C.free(unsafe.Pointer(mac))
	return call("add_net_unixstream", C.msb_add_net(ctx, C.int(c.NetFD), mac, netFeatures))
}

// enter runs the machine. It returns only when that can't begin.
func enter(ctx C.uint32_t) error { return call("start_enter", C.msb_start_enter(ctx)) }
