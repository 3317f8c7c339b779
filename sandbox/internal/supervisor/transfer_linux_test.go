package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/internal/transfer"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestTransferDisksComeLast: behind the others, as far as a machine has room, and with nothing that one before has left.
func TestTransferDisksComeLast(t *testing.T) {
	t.Parallel()
	for n, device := range map[int]string{2: "vdc", 3: "vdd", 5: "vdf", 6: ""} {
		s := &supervisor{plan: &state.Plan{Dir: t.TempDir()}}
		path := filepath.Join(s.plan.Dir, state.TransferDisk)
		if err := os.WriteFile(path, []byte("of another run"), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := vm.Spec{Disks: make([]vm.Disk, n)}
		if err := s.transfer.attach(s, &spec); err != nil {
			t.Fatal(err)
		}
		if device == "" {
			if len(spec.Disks) != n || s.transfer.host() != nil || s.transfer.guest != (agentclient.Disk{}) {
				t.Errorf("a full machine has %+v, and its guest %+v", spec.Disks, s.transfer.guest)
			}
			continue
		}
		if len(spec.Disks) != n+1 || spec.Disks[n] != (vm.Disk{Path: path, ID: serialTransfer}) || s.transfer.guest != (agentclient.Disk{Serial: serialTransfer, Device: device}) || s.transfer.host() == nil {
			t.Errorf("the machine has %+v, the guest %+v", spec.Disks, s.transfer.guest)
		}
		head := make([]byte, 20)
		if info, err := os.Stat(path); err != nil || info.Size() != transfer.DiskBytes || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		if _, err := s.transfer.file.ReadAt(head, 0); err != nil || string(head) != string(make([]byte, len(head))) {
			t.Errorf("it begins with %q, %v", head, err)
		}
		// Sparse until something is copied, and a lane's room is kept then.
		took := func() int64 { _, used := diskUsage(path); return used }
		before, file := took(), transferFile{s.transfer.file}
		if err := file.Reserve(transfer.Offset(transfer.ToHost, 1, 0), 4<<20); err != nil || before > 64<<10 || took() < 4<<20 {
			t.Errorf("it took %d bytes, and %d with a lane in use: %v", before, took(), err)
		}
		if err := file.Reserve(-1, 1); err == nil {
			t.Error("room that can't be had was had")
		}
		s.transfer.close()
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file stays: %v", err)
		}
	}
}

// TestTransferDisksNeedNoReservation: some file systems can't reserve room, as procfs can't, and the disk is used all the same.
func TestTransferDisksNeedNoReservation(t *testing.T) {
	t.Parallel()
	f, err := os.OpenFile("/proc/self/comm", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (transferFile{f}).Reserve(0, 1); err != nil {
		t.Error(err)
	}
}

// TestI12_MachinesStartWithoutRoomForATransferDisk: under a limit of the size of files (RLIMIT_FSIZE) copies go by the ports.
// One that goes on needs the disk that it was saved with.
func TestI12_MachinesStartWithoutRoomForATransferDisk(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limited := old
	limited.Cur = transfer.DiskBytes - 1
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &old) }()
	for _, from := range []*state.SavedMemory{nil, {}} {
		s := &supervisor{plan: &state.Plan{Dir: t.TempDir()}}
		s.memory.from = from
		spec := vm.Spec{Disks: make([]vm.Disk, 3)}
		if err := s.transfer.attach(s, &spec); errors.Is(err, unix.EFBIG) != (from != nil) || (err == nil) != (from == nil) {
			t.Errorf("saved: %v: %v", from != nil, err)
		}
		if len(spec.Disks) != 3 || s.transfer.host() != nil || s.transfer.guest != (agentclient.Disk{}) {
			t.Errorf("saved: %v: %+v, %+v", from != nil, spec.Disks, s.transfer)
		}
		if list, err := os.ReadDir(s.plan.Dir); err != nil || len(list) != 0 {
			t.Errorf("%v stay, %v", list, err)
		}
	}
}

// TestTransferDisksHaveNoNameWhileTheyAreUsed: a supervisor that is killed leaves nothing of what was copied.
func TestTransferDisksHaveNoNameWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	p := newPlan(t, t.TempDir(), "")
	g := &guestVM{}
	s, info := superviseFake(t, g, p)
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if d := g.greeting.GetRoot().GetTransfer(); d.GetSerial() != serialTransfer || d.GetDevice() != "vdc" {
		t.Errorf("the guest was told of %v", d)
	}
	if s.transfer.host() == nil {
		t.Error("the machine has no transfer disk")
	}
	if _, err := os.Stat(filepath.Join(p.Dir, state.TransferDisk)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has a name: %v", err)
	}
	s.cancel(errCallerGone)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// TestMachinesThatGoOnUseNoTransferDisk: the guest may be in the middle of calls that this process knows nothing of. The
// machine has the disk that it was saved with.
func TestMachinesThatGoOnUseNoTransferDisk(t *testing.T) {
	t.Parallel()
	s := &supervisor{plan: &state.Plan{Dir: t.TempDir()}}
	s.memory.from = &state.SavedMemory{}
	spec := vm.Spec{Disks: make([]vm.Disk, 3)}
	if err := s.transfer.attach(s, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Disks) != 4 || s.transfer.host() != nil || s.transfer.guest != (agentclient.Disk{}) {
		t.Errorf("%+v, %+v", spec.Disks, s.transfer)
	}
	s.transfer.unname()
	if list, err := os.ReadDir(s.plan.Dir); err != nil || len(list) != 0 {
		t.Errorf("%v stay, %v", list, err)
	}
}
