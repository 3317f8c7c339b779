package nodesettings

import (
	"strings"
	"testing"
)

// TestRead: each fault is named with the file, its key and what to write.
func TestRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"floor = \"here.toml\"\n":       "shim.toml: floor: \"here.toml\" is no absolute path",
		"home = \"\"\n":                 "shim.toml: home: ",
		"memory = \"lots\"\n":           "shim.toml: memory: ",
		"memory = \"16M\"\n":            `shim.toml: memory: "16M" is too little for a machine; write "96M" or more`,
		"\nmemory = 512\n":              `shim.toml: toml: line 2 (last key "memory"): incompatible types`,
		"memory =\n":                    "shim.toml: toml: line 1",
		"host_profiles = \"yes\"\n":     `write "refuse" or "drop"`,
		"floors = \"/etc/x\"\n":         "shim.toml: unknown key floors",
		"cpus = \"two\"\n":              `line 1 (last key "cpus")`,
		"cpus = 0\n":                    "shim.toml: cpus: 0; write 1 or more",
		"backend = \"kvm\"\n":           "write one of auto, krun, qemu",
		"backend = \"qemu\"\n":          "",
		"host_profiles = \"drop\"\n":    "",
		"memory_overhead = \"64MiB\"\n": "",
	} {
		err := New().Read("shim.toml", text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	s := New()
	if err := s.Read("shim.toml", "memory = '1G'\n"); err != nil || s.MemoryBytes != 1<<30 || s.OverheadBytes != DefaultOverhead || s.DiskBytes != DefaultDisk || s.Node == "" || s.DropProfiles() {
		t.Errorf("%v: %+v", err, s)
	}
}
