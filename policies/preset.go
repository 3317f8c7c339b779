package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

//go:embed presets/*.toml
var presetFiles embed.FS

// Presets returns the names of the built-in policies, in alphabetical order.
func Presets() []string {
	files, err := fs.Glob(presetFiles, "presets/*.toml")
	if err != nil {
		return nil // the pattern above is well formed
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".toml")
	}
	return files
}

// Preset returns the built-in policy called name.
func Preset(name string) (*Policy, error) {
	data, err := presetSource(name)
	if err != nil {
		return nil, err
	}
	return Parse(presetID(name), data, nil)
}

// presetSource returns the text of a preset.
func presetSource(name string) ([]byte, error) {
	data, err := presetFiles.ReadFile("presets/" + name + ".toml")
	if err != nil {
		hint := ""
		if guess := Closest(strings.TrimPrefix(name, presetID("")), Presets()); guess != "" {
			hint = fmt.Sprintf("did you mean %q? ", guess)
		}
		return nil, fmt.Errorf("there is no preset %q; %sthe presets are %s, and a path to a file ends in .toml", name, hint, strings.Join(Presets(), ", "))
	}
	return data, nil
}

// presetID is the file name that a preset has in messages.
func presetID(name string) string { return "preset:" + name }

// isPresetName tells a preset from the path of a file.
func isPresetName(s string) bool {
	return !strings.ContainsAny(s, `/\`) && !strings.HasSuffix(s, ".toml")
}
