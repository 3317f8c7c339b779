package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/transfer"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// transferDisk is the disk by which the guest and this process send what is large. Its file has no name once the machine
// has it: nothing of it stays.
type transferDisk struct {
	path  string
	file  *os.File // nil for none
	guest agentclient.Disk
}

// maxTransferDisks is how many disks a machine may have beside this one: QEMU's microvm has eight devices, of which the
// console and the network are two.
const maxTransferDisks = 5

// attach adds the disk to a machine that has room for it. One that goes on where it was saved has things on the way that
// this process knows nothing of, and sends all by the ports.
func (t *transferDisk) attach(s *supervisor, spec *vm.Spec) (err error) {
	if len(spec.Disks) > maxTransferDisks {
		return nil
	}
	path := filepath.Join(s.plan.Dir, state.TransferDisk)
	t.path = path
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Truncate(transfer.DiskBytes); err != nil {
		left := errors.Join(f.Close(), os.Remove(path))
		if errors.Is(err, syscall.EFBIG) && s.memory.from == nil { // RLIMIT_FSIZE, which all else may keep within
			return left
		}
		return errors.Join(err, left)
	}
	device := "vd" + string(rune('a'+len(spec.Disks)))
	spec.Disks = append(spec.Disks, vm.Disk{Path: path, ID: serialTransfer})
	if s.memory.from != nil {
		return f.Close()
	}
	t.file, t.guest = f, agentclient.Disk{Serial: serialTransfer, Device: device}
	return nil
}

// unname removes the file's name.
func (t *transferDisk) unname() {
	if t.path != "" {
		_ = os.Remove(t.path) // else the next start does
	}
}

// host is the disk for who serves the guest's clients; nil for none.
func (t *transferDisk) host() *agentclient.TransferDisk {
	if t.file == nil {
		return nil
	}
	return agentclient.NewTransferDisk(transferFile{t.file})
}

// transferFile is sparse until something is copied.
type transferFile struct{ *os.File }

func (t *transferDisk) close() {
	t.unname()
	if t.file != nil {
		_ = t.file.Close() // nobody reads it any more
	}
}
