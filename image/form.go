package image

import (
	"io/fs"
	"strings"

	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/owned"
)

var (
	stagingName = lazyregexp.New(`^[A-Z2-7]{26}$`) // rand.Text
	stagingFile = lazyregexp.New(`^(disk\.ext4|(meta|config)\.json|ref\.json|spool[0-9]+)$`)
	refName     = lazyregexp.New(`^[0-9a-f]{64}\.json$`)
)

// diskForm is that of a disk's directory.
var diskForm = owned.Files(func(name string) bool { return name == diskFile || name == metaFile || name == configName })

// stagingForm is that of a staging directory, in which a disk is made or waits to be removed.
func stagingForm(name string, mode fs.FileMode) (owned.Form, bool) {
	if name == droppedDir {
		return diskForm, mode == fs.ModeDir
	}
	return nil, mode == 0 && stagingFile.MatchString(name)
}

func isDiskName(name string) bool {
	d, err := parseDigest(strings.Replace(name, "-", ":", 1))
	return err == nil && d.fileName() == name
}

func isLock(name string, of func(string) bool) bool {
	base, ok := strings.CutSuffix(name, lockSuffix)
	return ok && of(base)
}

// Form is that of a Store's directory: what Open removes from it, and what tells it from a directory of somebody else's.
func Form(name string, mode fs.FileMode) (owned.Form, bool) {
	inside, ok := map[string]owned.Form{
		disksDir: owned.Dirs(isDiskName, diskForm),
		refsDir:  owned.Files(refName.MatchString),
		locksDir: owned.Files(func(name string) bool { return isLock(name, isDiskName) }),
		tmpDir: func(name string, mode fs.FileMode) (owned.Form, bool) {
			if mode == fs.ModeDir {
				return stagingForm, stagingName.MatchString(name)
			}
			return nil, mode == 0 && isLock(name, stagingName.MatchString)
		},
	}[name]
	return inside, ok && mode == fs.ModeDir
}
