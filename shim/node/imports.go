package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/BurntSushi/toml"
)

// importLine is what a configuration of containerd's gets that imports nothing; containerd's own default imports it.
func (n *Node) importLine() string {
	return fmt.Sprintf("imports = ['%s'] # by msb-node, which takes it away again\n", path.Join(path.Dir(n.DropIn), "*.toml"))
}

// addImport makes containerd read the drop-in, and tells whether its configuration was changed for that.
func (n *Node) addImport() (changed bool, err error) {
	text, err := os.ReadFile(n.at(n.Containerd))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // containerd's built-in configuration imports it
	}
	if err != nil {
		return false, err
	}
	var config struct {
		Imports []string `toml:"imports"`
	}
	meta, err := toml.Decode(string(text), &config)
	if err != nil {
		return false, fmt.Errorf("%s: %w", n.Containerd, err)
	}
	for _, pattern := range config.Imports {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(n.Containerd), pattern)
		}
		if ok, _ := path.Match(path.Clean(pattern), n.DropIn); ok {
			return false, nil
		}
	}
	if meta.IsDefined("imports") {
		return false, fmt.Errorf("%s has imports of its own: add %q to its imports", n.Containerd, path.Join(path.Dir(n.DropIn), "*.toml"))
	}
	return true, n.replace(n.Containerd, append([]byte(n.importLine()), text...)) // before the first table
}

// removeImport undoes addImport.
func (n *Node) removeImport() (changed bool, err error) {
	text, err := os.ReadFile(n.at(n.Containerd))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	rest := bytes.Replace(text, []byte(n.importLine()), nil, 1)
	if len(rest) == len(text) {
		return false, nil
	}
	return true, n.replace(n.Containerd, rest)
}

// replace rewrites one of the node's own files, whose mode stays.
func (n *Node) replace(file string, content []byte) error {
	info, err := os.Stat(n.at(file))
	if err != nil {
		return err
	}
	_, err = n.write(file, content, info.Mode().Perm())
	return err
}
