package review_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/netstack/netstacktest"
)

var (
	update = flag.Bool("update", false, "rewrite the captures and golden files of testdata/pcap")
	record = flag.Bool("record", false, "rewrite the spoken captures of testdata/pcap that -run picks")
)

// directory is where the captures are.
var directory = filepath.Join("..", "testdata", "pcap")

func TestMain(m *testing.M) { netstacktest.Main(m) }

// golden compares got with a file, or writes it.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; go test ./review -update rewrites it.\ngot\n%s\nwant\n%s", path, clip(got), clip(want))
	}
}

func clip(b []byte) []byte { return b[:min(len(b), 4000)] }
