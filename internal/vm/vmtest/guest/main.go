//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const portName = "msb.agent"

func main() {
	err := run()
	fmt.Fprintln(os.Stderr, "guest:", err)
	leave()
}

func leave() {
	unix.Sync()
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	fmt.Fprintln(os.Stderr, "guest: reboot:", err)
	select {}
}

func run() error {
	for _, m := range []struct{ fs, target string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mount(m.fs, m.target); err != nil {
			return err
		}
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(port, "ready"); err != nil {
		return err
	}
	lines := bufio.NewScanner(port)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		args := strings.Fields(lines.Text())
		quiet := func() {}
		if len(args) > 0 && args[0] == "run" {
			quiet = beat(port)
		}
		text := answer(args)
		quiet()
		if _, err := fmt.Fprintln(port, text); err != nil {
			return err
		}
	}
	return lines.Err()
}

func mount(fs, target string) error {
	if err := unix.Mount(fs, target, fs, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(text)) == portName {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(name))), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no port %s among %v", portName, names)
}

// answer obeys one command. Errors are answers too.
func answer(args []string) string {
	if len(args) == 0 {
		return ""
	}
	command, ok := map[string]func([]string) (string, error){
		"echo":     func(a []string) (string, error) { return strings.Join(a, " "), nil },
		"cmdline":  func([]string) (string, error) { return readLine("/proc/cmdline") },
		"now":      now,
		"read":     func(a []string) (string, error) { return readLine(a[0]) },
		"list":     list,
		"writedev": writeDevice,
		"readdev":  readDevice,
		"discard":  discard,
		"fill":     fillDevice,
		"console":  printConsole,
		"socket":   tryConnect,
		"frame":    sendFrame,
		"recv":     receiveFrame,
		"mtu":      setMTU,
		"hog":      hog,
		"exit":     func([]string) (string, error) { os.Exit(7); return "", nil },
		"host":     becomeHost,
		"run":      runProgram,
		"reboot":   func([]string) (string, error) { leave(); return "", nil },
	}[args[0]]
	if !ok {
		return "error: no command " + args[0]
	}
	text, err := command(args[1:])
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return text
}

func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.Join(strings.Fields(string(text)), " "), err
}

// now is the time since boot in nanoseconds.
func now([]string) (string, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return fmt.Sprint(ts.Nano()), err
}

func list(args []string) (string, error) {
	entries, err := os.ReadDir(args[0])
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return strings.Join(names, " "), err
}

func writeDevice(args []string) (string, error) {
	f, err := os.OpenFile(args[0], os.O_WRONLY|unix.O_SYNC, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	block := make([]byte, 4096)
	copy(block, args[1])
	if _, err := f.Write(block); err != nil {
		return "", err
	}
	return "written", f.Sync()
}

func readDevice(args []string) (string, error) {
	f, err := os.Open(args[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	block := make([]byte, 64)
	n, err := f.Read(block)
	return strings.TrimRight(string(block[:n]), "\x00"), err
}

// fillDevice writes so many bytes from the start of a disk, none of them zero.
func fillDevice(args []string) (string, error) {
	f, n, err := openRange(args)
	if err != nil {
		return "", err
	}
	defer f.Close()
	block := bytes.Repeat([]byte{0xa5}, 64<<10)
	for ; n > 0; n -= len(block) {
		if _, err := f.Write(block[:min(n, len(block))]); err != nil {
			return "", err
		}
	}
	return "filled", f.Sync()
}

// openRange opens the disk that args name first, and reads a number of bytes after it.
func openRange(args []string) (f *os.File, n int, err error) {
	if _, err := fmt.Sscan(args[1], &n); err != nil {
		return nil, 0, err
	}
	f, err = os.OpenFile(args[0], os.O_WRONLY, 0)
	return f, n, err
}

// discard gives so many bytes of a disk back, and zeroes the 4096 behind them.
func discard(args []string) (string, error) {
	f, n, err := openRange(args)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const blkDiscard, blkZeroout = 0x1277, 0x127f // linux/fs.h
	for _, c := range []struct {
		request uintptr
		extent  [2]uint64
	}{{blkDiscard, [2]uint64{0, uint64(n)}}, {blkZeroout, [2]uint64{uint64(n), 4096}}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), c.request, uintptr(unsafe.Pointer(&c.extent))); errno != 0 {
			return "", errno
		}
	}
	return "discarded", nil
}

// printConsole prints n lines of 64 bytes to the console.
func printConsole(args []string) (string, error) {
	f, err := os.OpenFile("/dev/hvc0", os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var n int
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return "", err
	}
	out := bufio.NewWriterSize(f, 64<<10)
	for i := range n {
		fmt.Fprintf(out, "line %010d %s\n", i, strings.Repeat("x", 46))
	}
	return "printed", out.Flush()
}

// hog takes memory until there is none.
func hog([]string) (string, error) {
	var held [][]byte
	for {
		b := make([]byte, 8<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b) //nolint:staticcheck // it is held to be held
	}
}

// tryConnect tries to reach something outside: "inet A.B.C.D PORT" or
// "vsock CID PORT". The answer says at which step it ended.
func tryConnect(args []string) (string, error) {
	var port, cid uint32
	if _, err := fmt.Sscan(args[2], &port); err != nil {
		return "", err
	}
	family, address := unix.AF_VSOCK, unix.Sockaddr(nil)
	switch args[0] {
	case "inet":
		family = unix.AF_INET
		address = &unix.SockaddrInet4{Port: int(port), Addr: [4]byte(net.ParseIP(args[1]).To4())}
	case "vsock":
		if _, err := fmt.Sscan(args[1], &cid); err != nil {
			return "", err
		}
		address = &unix.SockaddrVM{CID: cid, Port: port}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return "refused at socket: " + err.Error(), nil
	}
	defer unix.Close(fd)
	timeout := unix.Timeval{Sec: 2}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return "", err
	}
	if err := unix.Connect(fd, address); err != nil {
		return "refused at connect: " + err.Error(), nil
	}
	return "connected", nil
}
