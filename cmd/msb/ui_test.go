package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/image"
)

// TestJSONIsTerminalSafe: a C1 control (CSI in one character) and text direction are valid in JSON. The
// twin is encoding/json alone, which writes them as they are. Programs read the same text.
func TestJSONIsTerminalSafe(t *testing.T) {
	t.Parallel()
	const hostile = "\u009b2J\u202e\u007f\u061c\x1b[2J"
	obeyed := func(b []byte) bool {
		line := strings.ReplaceAll(string(b), "\n", "")
		return audit.Printable(line) != line
	}
	var plain bytes.Buffer
	if err := json.NewEncoder(&plain).Encode([]string{hostile}); err != nil || !obeyed(plain.Bytes()) {
		t.Errorf("encoding/json wrote %q, %v: the attack shows nothing", plain.Bytes(), err)
	}
	for name, write := range map[string]func(*ui, any) error{"json": (*ui).json, "jsonLine": (*ui).jsonLine} {
		var b bytes.Buffer
		if err := write(newUI(&b, io.Discard), []string{hostile}); err != nil {
			t.Fatal(err)
		}
		if obeyed(b.Bytes()) {
			t.Errorf("%s wrote %q", name, b.Bytes())
		}
		var back []string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back) != 1 || back[0] != hostile {
			t.Errorf("%s: %q, %v", name, back, err)
		}
	}
}

func TestSmallImageSizesAreShown(t *testing.T) {
	var out strings.Builder
	err := printImages(newUI(&out, io.Discard), &cobra.Command{}, []image.Image{{Ref: "a", SizeBytes: 900_000}, {Ref: "b", SizeBytes: 1_999_999_999}}, &listFlags{})
	if err != nil || !strings.Contains(out.String(), "900.0 kB") || !strings.Contains(out.String(), "2.0 GB") {
		t.Errorf("%q, %v", out.String(), err)
	}
}
