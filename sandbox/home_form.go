package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
	"github.com/msb-project/msb/sandbox/internal/diskstore"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// What msb makes under $MSB_HOME, by name. Only what is listed here is ever swept.
var (
	runName      = lazyregexp.New(`^sb-[0-9a-f]{12}$`)
	newRunName   = lazyregexp.New(`^\.sb-[0-9a-f]{12}$`) // between mkdir and rename
	hiddenName   = lazyregexp.New(`^\.[0-9a-f]{12}$`)    // half made or half removed
	kernelFile   = lazyregexp.New(`^(kernel-[0-9a-f]{64}\.elf(\.sum)?|kernel-[0-9a-f]{16}\.index|warm-[0-9a-f]{24}(\.sum|\.failed)?|qemu-[0-9a-f]{16}\.version|\.new-[0-9]+|\.kernel-[0-9a-f]+\.(elf|index)[0-9]+)$`)
	kernelSocket = lazyregexp.New(`^warm-[0-9a-f]{24}\.share-[A-Z2-7]{26}$`)
	trustFile    = lazyregexp.New(`^([0-9a-f]{64}\.json|\.[0-9a-f]{64}\.json[0-9]+)$`)
	newTrustFile = lazyregexp.New(`^\.[0-9a-f]{64}\.json[0-9]+$`) // one that renameio is writing
	guestFile    = lazyregexp.New(`^(agentd-[0-9a-f]{16}\.ext4(\.sum)?|\.new-[0-9]+)$`)
)

// homeForm is that of the state directory of an msb that wrote no marker yet.
func homeForm(name string, mode fs.FileMode) (owned.Form, bool) {
	inside, ok := map[string]owned.Form{
		imagesDir:          image.Form,
		state.KernelDir:    kernelForm,
		guestDir:           owned.Files(guestFile.MatchString),
		state.RunsDir:      owned.Dirs(func(name string) bool { return runName.MatchString(name) || newRunName.MatchString(name) }, state.RunForm),
		trustDir:           owned.Files(trustFile.MatchString),
		state.KeptDir:      owned.Dirs(runName.MatchString, state.RunForm),
		state.VolumesDir:   owned.Dirs(func(name string) bool { return state.CheckVolumeName(name) == nil || hiddenName.MatchString(name) }, state.VolumeForm),
		state.SnapshotsDir: diskstore.Form,
		state.CachesDir:    state.CachesForm,
		state.NamedDir:     owned.Dirs(func(name string) bool { return CheckName(name) == nil || hiddenName.MatchString(name) }, state.NamedForm),
	}[name]
	if name == markerFile {
		return nil, mode == 0
	}
	return inside, ok && mode == fs.ModeDir
}

func kernelForm(name string, mode fs.FileMode) (owned.Form, bool) {
	return nil, mode == 0 && kernelFile.MatchString(name) || mode == fs.ModeSocket && kernelSocket.MatchString(name)
}

// openHomeDir opens one of the directories of the home, which may be a mount of a larger disk, and no link.
func openHomeDir(h *Home, sub string) (*os.File, error) {
	return os.OpenFile(filepath.Join(h.dir, sub), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}
