package sandbox

import (
	"os"
	"time"
)

// newRunGrace is how long a directory may stay under its temporary name, between mkdir and rename.
// It takes microseconds; one that is older was left by a process that was killed between them.
const newRunGrace = time.Minute

func abandoned(dir *os.File) bool {
	info, err := dir.Stat()
	return err == nil && time.Since(info.ModTime()) > newRunGrace
}
