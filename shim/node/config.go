package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/BurntSushi/toml"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/shim/nodesettings"
)

// Files that the operator writes.
const (
	floorFile    = "floor.toml"
	settingsFile = "shim.toml"
)

// restartFile is beside them while a restart of containerd is due.
const restartFile = "restart-containerd"

// maxConfig bounds one of the operator's files, in bytes.
const maxConfig = 1 << 20

// Configure writes the operator's floor and settings to the node, and tells whether they were new. Pods that start later
// have them. Of files with an error neither is written.
func (n *Node) Configure() (changed bool, err error) {
	floor, err := n.read(floorFile)
	if err != nil {
		return false, err
	}
	if floor != nil {
		if _, err := policies.Parse(floorFile, floor, nil); err != nil {
			return false, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	settings, err := n.settingsText(floor != nil)
	if err != nil {
		return false, err
	}
	if floor != nil {
		if changed, err = n.write(path.Join(n.Prefix, "etc", floorFile), floor, 0o600); err != nil {
			return changed, err
		}
	}
	more, err := n.write(n.settings(), settings, 0o600)
	return changed || more, err
}

// settingsText is the operator's shim.toml, with the floor's path.
func (n *Node) settingsText(floor bool) ([]byte, error) {
	text, err := n.read(settingsFile)
	if err != nil {
		return nil, err
	}
	s := nodesettings.New()
	if err := s.Read(settingsFile, string(text)); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	switch {
	case s.Floor != "" && floor:
		return nil, fmt.Errorf("nothing was changed: %s names a floor, and there is a %s, too: leave one out", settingsFile, floorFile)
	case floor:
		text = fmt.Appendf(nil, "floor = '%s'\n%s", path.Join(n.Prefix, "etc", floorFile), text)
	}
	return text, nil
}

// read reads one of the operator's files; nil if there is none.
func (n *Node) read(name string) ([]byte, error) {
	if n.Config == nil {
		return nil, nil
	}
	content, err := fs.ReadFile(n.Config, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(content) > maxConfig {
		err = fmt.Errorf("%s has %d bytes; at most %d are read", name, len(content), maxConfig)
	}
	return content, err
}

// home is msb's state directory on the node, as the installed settings have it.
func (n *Node) home() (string, error) {
	var s struct {
		Home string `toml:"home"`
	}
	_, err := toml.DecodeFile(n.at(n.settings()), &s)
	if s.Home == "" {
		s.Home = nodesettings.DefaultHome
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s.Home, err
}
