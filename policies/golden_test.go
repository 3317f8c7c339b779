package policies

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files from what the code does")

// golden compares got with a file under testdata.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look at the change and run go test -update\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// Every file of testdata/errors is refused with exactly the messages of its
// golden file: place, key, what is wrong and what to write instead.
func TestI12_BadPoliciesSayWhereAndWhat(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/errors/*.toml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p, err := Load(file)
			if err == nil {
				t.Fatalf("it is accepted:\n%s", Encode(p))
			}
			if p != nil {
				t.Error("a policy came back beside the error")
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "testdata/") && !strings.HasPrefix(line, "preset:") {
					t.Errorf("no place in %q", line)
				}
			}
			golden(t, strings.TrimSuffix(file, ".toml")+".golden", []byte(err.Error()+"\n"))
		})
	}
}

func TestSchemaIsGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/schema.golden.json", Schema())
}

func parseFile(path string) (*Policy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, os.ReadFile)
}

// The encoded forms of all presets and of a policy that uses every key.
func TestEncodeIsGolden(t *testing.T) {
	t.Parallel()
	p, err := parseFile("testdata/full.toml") // Load makes paths absolute
	if err != nil {
		t.Fatal(err)
	}
	out := EncodeWith(p, Comments{Head: "seen in run 7\n\ttwice\x1b[31m", Rule: func(r Rule) string {
		if r.Name == "github" {
			return "12 flows"
		}
		return ""
	}})
	golden(t, "testdata/full.golden.toml", out)
}
