//go:build linux

package agentd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
)

// sharedTmpfs are the file systems in memory that containers share. They live as long as the guest: a container that is made
// again finds there what the one before it wrote.
type sharedTmpfs struct {
	mu  sync.Mutex
	all map[string]*system.SharedTmpfs
}

func checkShared(m *agentpb.ContainerMount) error {
	if m.GetShared() == "" {
		if m.GetUid() != 0 || m.GetGid() != 0 || m.GetSubPath() != "" {
			return errors.New("owner and sub path belong to a tmpfs that containers share")
		}
		return nil
	}
	if m.GetType() != "tmpfs" {
		return errors.New("containers share file systems of the type tmpfs by name, and no others")
	}
	if p := m.GetSubPath(); p != "" && !filepath.IsLocal(p) {
		return fmt.Errorf("the sub path %.80q leads out", p)
	}
	if err := checkID("shared tmpfs", m.GetShared()); err != nil {
		return errors.New(status.Convert(err).Message()) // Create adds the code
	}
	return nil
}

// take makes a mount of one, attached nowhere, and tells whether it is of a file.
func (s *sharedTmpfs) take(m *agentpb.ContainerMount, attributes int) (f *os.File, file bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.all[m.GetShared()]
	if fs == nil {
		if len(s.all) >= agentpb.MaxContainerTmpfs {
			return nil, false, fmt.Errorf("containers share %d tmpfs already", len(s.all))
		}
		fs = &system.SharedTmpfs{Name: m.GetShared(), Size: m.GetSizeBytes(), Mode: m.GetMode(), UID: m.GetUid(), GID: m.GetGid()}
		if err := fs.Mount(); err != nil {
			return nil, false, err
		}
		if s.all == nil {
			s.all = map[string]*system.SharedTmpfs{}
		}
		s.all[fs.Name] = fs
	}
	return fs.Clone(m.GetSubPath(), attributes)
}
