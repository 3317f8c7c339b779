package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
)

// Shim is the name of the shim's program.
const Shim = "containerd-shim-msb-v1"

// Node is what is installed, and where. Paths on the node are absolute.
type Node struct {
	// Root is the node's root directory, as this process sees it.
	Root string
	// Parts are the directories bin and lib that are copied to Prefix; Config has the operator's floor.toml and shim.toml, or
	// one of them, or is nil.
	Parts, Config fs.FS
	// Prefix is the directory for all of msb's files, which has no other.
	Prefix string
	// Containerd is containerd's configuration file, DropIn the file that it imports.
	Containerd, DropIn string
	// Restart is the command, run on the node, that restarts containerd.
	Restart []string
	// Say reports each step.
	Say func(format string, args ...any)
}

// Install makes the node have what the image has, and restarts containerd if it has to read something new.
func (n *Node) Install(ctx context.Context) error {
	if _, err := fs.Stat(n.Parts, "bin/"+Shim); err != nil {
		return fmt.Errorf("the image has no bin/%s: build it with `make node-image`: %w", Shim, err)
	}
	if err := n.claim(); err != nil {
		return err
	}
	if _, err := n.Configure(); err != nil {
		return err
	}
	if err := n.record(); err != nil {
		return err
	}
	copied, err := n.copyTree(n.Parts)
	if err != nil {
		return err
	}
	n.Say("%s: %d files new or changed", n.Prefix, copied)
	due, err := n.restartDue()
	if err != nil {
		return err
	}
	imported, err := n.addImport()
	if err != nil {
		return errors.Join(err, n.restartDone(due))
	}
	dropIn, err := n.write(n.DropIn, []byte(n.dropIn()), 0o644)
	if err != nil {
		return err
	}
	if !dropIn && !imported && !due {
		n.Say("containerd knows the runtime msb already")
		return n.restartDone(due)
	}
	if err := n.restart(ctx); err != nil {
		// A node must not be left with a containerd that doesn't start.
		return errors.Join(err, n.forget(context.WithoutCancel(ctx)))
	}
	return nil
}

// forget makes containerd forget the runtime.
func (n *Node) forget(ctx context.Context) error {
	due, err := n.restartDue()
	if err != nil {
		return err
	}
	err = os.Remove(n.at(n.DropIn))
	known := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	imported, err := n.removeImport()
	if err != nil || !known && !imported && !due {
		return errors.Join(err, n.restartDone(due))
	}
	return n.restart(ctx)
}

// Uninstall takes away what Install made, and nothing else. What machines of running pods still use stays, and is an error.
func (n *Node) Uninstall(ctx context.Context) error {
	if err := n.forget(ctx); err != nil {
		return err
	}
	machines, err := n.machines()
	if err != nil {
		return err
	}
	if len(machines) > 0 {
		return fmt.Errorf("%d machines of pods still run, the first is %s; new pods get none. End the pods, then run `msb-node uninstall` again: %s stays until then",
			len(machines), machines[0], n.Prefix)
	}
	n.Say("removing msb's files from %s", n.Prefix)
	return n.removeOwn()
}

// Check tells what of Install's work is missing or another version's.
func (n *Node) Check() error {
	var missing []error
	differs := func(file string, want source) {
		if same, err := sameContent(n.at(file), want); err != nil {
			missing = append(missing, err)
		} else if !same {
			missing = append(missing, fmt.Errorf("%s is another version's", file))
		}
	}
	err := walkFiles(n.Parts, func(name string, content source, _ fs.FileMode) error {
		differs(path.Join(n.Prefix, name), content)
		return nil
	})
	differs(n.DropIn, textSource(n.dropIn()))
	if _, err := os.Lstat(n.at(n.restartMark())); err == nil {
		missing = append(missing, errors.New("containerd has not been restarted"))
	}
	return errors.Join(append(missing, err)...)
}

// dropIn makes the runtime known to containerd, by the absolute path of its shim.
func (n *Node) dropIn() string {
	return fmt.Sprintf(`# Written by msb-node, which takes it away again.
version = 3

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb]
runtime_type = 'io.containerd.msb.v1'
runtime_path = '%s'
sandboxer = 'podsandbox'
pod_annotations = ['msb.dev/*']

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.msb.options]
ConfigPath = '%s'
`, path.Join(n.Prefix, "bin", Shim), n.settings())
}

func (n *Node) settings() string { return path.Join(n.Prefix, "etc", settingsFile) }

// copyTree copies files that the node lacks or has in another version, and tells how many those were.
func (n *Node) copyTree(from fs.FS) (copied int, err error) {
	err = walkFiles(from, func(name string, content source, mode fs.FileMode) error {
		changed, err := n.copy(path.Join(n.Prefix, name), content, mode)
		if changed {
			copied++
		}
		return err
	})
	return copied, err
}

func walkFiles(from fs.FS, do func(name string, content source, mode fs.FileMode) error) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := fs.Stat(from, name) // of a link's target: libraries have such names
		if err != nil {
			return err
		}
		return do(name, func() (io.ReadCloser, error) { return from.Open(name) }, info.Mode().Perm())
	})
}

// source opens the content of a file. Programs are never held in memory: the DaemonSet has little, and its probe runs beside it.
type source func() (io.ReadCloser, error)

func textSource(text string) source {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

// sameContent tells whether a file has that content.
func sameContent(file string, want source) (bool, error) {
	have, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer have.Close()
	r, err := want()
	if err != nil {
		return false, err
	}
	defer r.Close()
	const chunk = 64 << 10
	a, b := make([]byte, chunk), make([]byte, chunk)
	for {
		n, errA := io.ReadFull(have, a)
		m, errB := io.ReadFull(r, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}

// write replaces a file on the node if it is another one, and tells whether it was.
func (n *Node) write(file string, content []byte, mode fs.FileMode) (changed bool, err error) {
	return n.copy(file, textSource(string(content)), mode)
}

func (n *Node) copy(file string, content source, mode fs.FileMode) (changed bool, err error) {
	at := n.at(file)
	if same, err := sameContent(at, content); err == nil && same {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // G301: programs, which others may read
		return false, err
	}
	r, err := content()
	if err != nil {
		return false, err
	}
	defer r.Close()
	w, err := renameio.NewPendingFile(at, renameio.WithPermissions(mode), renameio.WithExistingPermissions())
	if err != nil {
		return false, err
	}
	defer w.Cleanup() //nolint:errcheck // of a file that was not replaced
	if _, err := io.Copy(w, r); err != nil {
		return false, err
	}
	return true, w.CloseAtomicallyReplace()
}

// machines are the directories of machines that run, in msb's state directory.
func (n *Node) machines() ([]string, error) {
	home, err := n.home()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(n.at(path.Join(home, "run")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, path.Join(home, "run", e.Name()))
		}
	}
	return names, nil
}

func (n *Node) restart(ctx context.Context) error {
	n.Say("restarting containerd: %s", strings.Join(n.Restart, " "))
	cmd := exec.CommandContext(ctx, n.Restart[0], n.Restart[1:]...)
	cmd.Env = append(os.Environ(), "SYSTEMD_IGNORE_CHROOT=1") // systemctl does nothing in a chroot otherwise
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("restarting containerd: %s: %w: %s", strings.Join(n.Restart, " "), err, bytes.TrimSpace(out))
	}
	return n.restartDone(false)
}

// restartMark is there from before containerd's configuration is changed until containerd has read it: an installer that is killed in
// between would find nothing to do the next time.
func (n *Node) restartMark() string { return path.Join(n.Prefix, "etc", restartFile) }

// restartDue makes the mark, and tells whether it was there.
func (n *Node) restartDue() (due bool, err error) {
	at := n.at(n.restartMark())
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // G301: as copy makes it
		return false, err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}

// restartDone removes the mark, unless a restart is due.
func (n *Node) restartDone(due bool) error {
	if due {
		return nil
	}
	if err := os.Remove(n.at(n.restartMark())); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// at is a path of the node, as this process sees it.
func (n *Node) at(file string) string { return filepath.Join(n.Root, filepath.FromSlash(file)) }
