package sandbox

import (
	"os"
	"time"
)

// newRunGrace is how long a run folder may stay under its temporary name, between mkdir and rename.
// It takes microseconds; a folder that is older was left by a process that was killed between them.
const newRunGrace = time.Minute

func abandoned(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && time.Since(info.ModTime()) > newRunGrace
}
