package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/typeurl/v2"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
	"github.com/msb-project/msb/shim/nodesettings"
)

// settings are the runtime's options.
type settings = nodesettings.Settings

// loadSettings reads the options that containerd hands over with a container.
func loadSettings(options typeurl.Any) (*settings, error) {
	name, text, err := settingsText(options)
	if err != nil {
		return nil, err
	}
	s := nodesettings.New()
	if err := s.Read(name, text); err != nil {
		return nil, refused(err.Error())
	}
	if filepath.IsAbs(name) {
		s.File = name
	}
	return s, nil
}

// CheckSettings tells what is wrong with a node's settings.
func CheckSettings(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return nodesettings.New().Read(path, string(text))
}

// settingsText finds the TOML text, and what messages call it.
func settingsText(options typeurl.Any) (name, text string, err error) {
	if options == nil || options.GetTypeUrl() == "" {
		b, err := os.ReadFile(nodesettings.DefaultPath)
		if errors.Is(err, fs.ErrNotExist) {
			return nodesettings.DefaultPath, "", nil
		}
		return nodesettings.DefaultPath, string(b), err
	}
	v, err := typeurl.UnmarshalAny(options)
	if err != nil {
		return "", "", refused("runtime options of the type " + options.GetTypeUrl() + " are another runtime's; name msb's with ConfigPath, or as a table of its keys")
	}
	o, ok := v.(*runtimeoptions.Options)
	if !ok {
		return "", "", refused("runtime options of the type " + options.GetTypeUrl() + " are another runtime's; name msb's with ConfigPath, or as a table of its keys")
	}
	if o.GetConfigPath() == "" {
		return "the runtime's options", string(o.GetConfigBody()), nil
	}
	b, err := os.ReadFile(o.GetConfigPath())
	return o.GetConfigPath(), string(b), err
}

// floorOf reads the operator's policy; nil if there is none.
func floorOf(s *settings) (*policies.Policy, error) {
	path := s.Floor
	if path == "" {
		if _, err := os.Lstat(nodesettings.DefaultFloor); errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // no floor is no policy
		}
		path = nodesettings.DefaultFloor
	}
	p, err := sandbox.LoadPolicy(path)
	if err != nil {
		return nil, refused("the node's floor: " + err.Error())
	}
	return p, nil
}

// onOff reads an annotation that is a switch.
func onOff(key, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "", "off", "false":
		return false, nil
	case "on", "true":
		return true, nil
	}
	return false, refused(fmt.Sprintf("the annotation %s is %q; write \"on\" or \"off\"", key, value))
}
