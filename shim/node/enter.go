package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Enter opens the image's directories and makes the node's root directory this process's own: links and programs of the
// node then mean what they mean there.
func (n *Node) Enter(host, parts, config string) error {
	image, err := os.OpenRoot(parts)
	if err != nil {
		return err
	}
	n.Parts = image.FS()
	switch operator, err := os.OpenRoot(config); {
	case err == nil:
		n.Config = operator.FS()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := syscall.Chroot(host); err != nil {
		return fmt.Errorf("entering the node's root directory %s: %w; mount it there (hostPath /)", host, err)
	}
	return os.Chdir("/")
}
