package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	containerdshim "github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Name is the runtime's name in containerd's configuration and for ctr.
const Name = "io.containerd.msb.v1"

// killed is the exit status that containerd gets for a container whose shim is gone.
const killed = 128 + uint32(syscall.SIGKILL)

// addressFile is in the bundle of the container that a shim was started for, and names the shim's socket.
const addressFile = "address"

// manager starts shims and cleans up after those that were killed.
type manager struct{}

var _ containerdshim.Shim = manager{}

// NewManager returns what containerd's RunShim needs of a runtime.
func NewManager() containerdshim.Shim { return manager{} }

func (manager) Name() string { return Name }

// Info answers `containerd-shim-msb-v1 -info`.
func (manager) Info(context.Context, io.Reader) (*types.RuntimeInfo, error) {
	info := &types.RuntimeInfo{Name: Name, Version: &types.RuntimeVersion{}}
	if b, ok := debug.ReadBuildInfo(); ok {
		info.Version.Version = b.Main.Version
	}
	return info, nil
}

// Start starts the shim of a pod, or names the one that serves it already.
func (manager) Start(ctx context.Context, params *bootapi.BootstrapParams) (_ *bootapi.BootstrapResult, err error) {
	spec, err := readSpec(".")
	if err != nil {
		return nil, err
	}
	group := params.GetInstanceID()
	if pod := spec.Annotations[annotationSandbox]; pod != "" {
		group = pod
	}
	dir := params.GetSocketDir()
	if dir == "" {
		dir = filepath.Join(defaults.DefaultStateDir, "s")
	}
	address, err := containerdshim.CreateSocketAddress(ctx, dir, params.GetContainerdGrpcAddress(), group, false)
	if err != nil {
		return nil, err
	}
	result := &bootapi.BootstrapResult{Version: 3, Protocol: "ttrpc", Address: address}
	listener, err := listen(address)
	if errors.Is(err, errdefs.ErrAlreadyExists) {
		return result, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = containerdshim.RemoveSocket(address)
		}
	}()
	// Whoever cleans up reads it: RunShim when it ends, Stop when it was killed.
	if err := os.WriteFile(addressFile, []byte(address), 0o600); err != nil {
		return nil, err
	}
	return result, serveBeside(ctx, params, listener)
}

// listen makes the socket, in the place of one that nobody serves any more. ErrAlreadyExists tells that a shim does.
func listen(address string) (*net.UnixListener, error) {
	l, err := containerdshim.NewSocket(address)
	if err == nil || !containerdshim.SocketEaddrinuse(err) {
		return l, err
	}
	if containerdshim.CanConnect(address) {
		return nil, errdefs.ErrAlreadyExists
	}
	if err := containerdshim.RemoveSocket(address); err != nil {
		return nil, fmt.Errorf("removing the socket of a shim that is gone: %w", err)
	}
	return containerdshim.NewSocket(address)
}

// serveBeside starts this program again as the shim that serves the socket, in the bundle of the pod's first container.
func serveBeside(ctx context.Context, params *bootapi.BootstrapParams, l *net.UnixListener) error {
	socket, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-namespace", namespace, "-id", params.GetInstanceID(), "-address", params.GetContainerdGrpcAddress()}
	if params.GetLogLevel() <= bootapi.LogLevel_LOG_LEVEL_DEBUG {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...) //nolint:noctx // it outlives this call
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{socket} // descriptor 3, which RunShim serves
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the shim: %w", err)
	}
	if err := containerdshim.AdjustOOMScore(cmd.Process.Pid); err != nil {
		return errors.Join(fmt.Errorf("the shim's OOM score: %w", err), cmd.Process.Kill())
	}
	return cmd.Process.Release()
}

// Stop is `delete`: what containerd runs when a shim has gone, in the bundle's directory or beside it. It leaves nothing of
// the container on the node, and nothing of its pod's machine, which died with the shim.
func (manager) Stop(ctx context.Context, id string) (containerdshim.StopStatus, error) {
	status := containerdshim.StopStatus{ExitStatus: int(killed), ExitedAt: time.Now()}
	cwd, err := os.Getwd()
	if err != nil {
		return status, err
	}
	bundle := filepath.Join(filepath.Dir(cwd), id)
	if opts, ok := ctx.Value(containerdshim.OptsKey{}).(containerdshim.Opts); ok && opts.BundlePath != "" {
		bundle = opts.BundlePath
	}
	left, err := readLeft(bundle)
	if err == nil && left.Exited != nil {
		status.ExitStatus, status.ExitedAt = int(left.Exited.Status), left.Exited.At
	}
	return status, errors.Join(err, removeSocket(bundle), left.clean(ctx), unmountRoot(bundle))
}

// dying is how long a shim may take to its end once it was killed: its sockets close one after the other.
const dying = time.Second

// removeSocket removes the socket of a shim that was killed. One that somebody still listens at stays.
func removeSocket(bundle string) error {
	address, err := containerdshim.ReadAddress(filepath.Join(bundle, addressFile))
	if err != nil { // this container's shim was another one's, too
		return nil
	}
	tick := time.NewTicker(dying / 50)
	defer tick.Stop()
	for end := time.Now().Add(dying); containerdshim.CanConnect(address); <-tick.C {
		if time.Now().After(end) {
			return nil
		}
	}
	if err := containerdshim.RemoveSocket(address); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readSpec reads a bundle's config.json. A field of a later version of the spec is an error, too.
func readSpec(bundle string) (*specs.Spec, error) {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	spec, d := &specs.Spec{}, json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(spec); err != nil {
		return nil, refused("the container's config.json: " + err.Error())
	}
	return spec, nil
}
