package fileops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

func layerOf(t *testing.T, dir string) (all []string, omitted int64) {
	t.Helper()
	omitted, err := Layer(t.Context(), dir, func(entries []*agentpb.LayerEntry) error {
		for _, e := range entries {
			all = append(all, fmt.Sprintf("%s %o %d %q %t %t", e.GetPath(), e.GetMode(), e.GetSize(), e.GetTarget(), e.GetWhiteout(), e.GetOpaque()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, omitted
}

func TestLayersAreListedParentsFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(dir+"/d/e", 0o755), os.Mkdir(dir+"/opaque", 0o700), os.Mkdir(dir+"/xwhiteouts", 0o700), os.WriteFile(dir+"/d/f", []byte("abc"), 0o640), os.Symlink("/far", dir+"/link"),
		os.Mkdir(dir+"/odd\xfe", 0o755), os.WriteFile(dir+"/odd\xfe/in\xff", nil, 0o600), os.Symlink("\xff", dir+"/oddlink"), unix.Mkfifo(dir+"/fifo", 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"d 40755 D \"\" false false", "d/e 40755 D \"\" false false", "d/f 100640 3 \"\" false false", "fifo 10600 0 \"\" false false", "link 120777 4 \"/far\" false false",
		"odd\xfe 40755 D \"\" false false", "odd\xfe/in\xff 100600 0 \"\" false false", "oddlink 120777 1 \"\\xff\" false false"}
	opaque := "opaque 40700 D \"\" false false"
	if unix.Mknod(dir+"/gone", unix.S_IFCHR, 0) == nil {
		want = append(want, "gone 20000 0 \"\" true false")
	}
	if unix.Mknod(dir+"/null", unix.S_IFCHR, int(unix.Mkdev(1, 3))) == nil { // for root alone: a device, which removes nothing
		want = append(want, "null 20000 0 \"\" false false")
	}
	if unix.Setxattr(dir+"/opaque", "trusted.overlay.opaque", []byte("y"), 0) == nil { // for root alone
		opaque = "opaque 40700 D \"\" false true"
	}
	_ = unix.Setxattr(dir+"/xwhiteouts", "trusted.overlay.opaque", []byte("x"), 0) // for root alone: it hides nothing
	want = append(want, opaque, "xwhiteouts 40700 D \"\" false false")
	slices.Sort(want)
	got, omitted := layerOf(t, dir)
	for i, e := range got { // the size of a directory is its file system's affair
		if parts := strings.Split(e, " "); strings.HasPrefix(parts[1], "4") {
			parts[2] = "D"
			got[i] = strings.Join(parts, " ")
		}
	}
	if !slices.Equal(got, want) || omitted != 0 {
		t.Errorf("%q and %d more, want %q and none", got, omitted, want)
	}
	if all, omitted := layerOf(t, filepath.Join(dir, "nosuch")); len(all) != 0 || omitted != 0 {
		t.Errorf("%q, %d", all, omitted)
	}
}

func TestLongPathsOfLayersAreCounted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := dir
	for range maxLayerPath/250 + 2 {
		at = filepath.Join(at, strings.Repeat("d", 250))
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if all, omitted := layerOf(t, dir); len(all) != maxLayerPath/251 || omitted != 1 {
		t.Errorf("%d, and %d more", len(all), omitted)
	}
}

func TestOnlyLayerFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []byte
	take := func(b []byte) error { got = append(got, b...); return nil }
	if err := ReadLayer(dir, "f", take); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"", "../f", "/etc/passwd", "."} {
		if err := ReadLayer(dir, name, take); err == nil {
			t.Errorf("%q is read", name)
		}
	}
}

// TestI11_MessagesOfLayersAreBounded: by entries, and by the bytes of their names; and they aren't smaller than they need be.
func TestI11_MessagesOfLayersAreBounded(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]int{"%05d": layerBatch + 10, "%05d" + strings.Repeat("n", 240): layerBatchBytes/245 + 40} {
		dir := t.TempDir()
		for i := range files {
			if err := os.Symlink("x", filepath.Join(dir, fmt.Sprintf(name, i))); err != nil {
				t.Fatal(err)
			}
		}
		messages, entries := 0, 0
		_, err := Layer(t.Context(), dir, func(all []*agentpb.LayerEntry) error {
			size := 0
			for _, e := range all {
				size += len(e.GetPath()) + len(e.GetTarget())
			}
			if len(all) > layerBatch || size > layerBatchBytes+maxLayerPath {
				t.Errorf("a message of %d entries and %d bytes", len(all), size)
			}
			messages, entries = messages+1, entries+len(all)
			return nil
		})
		if err != nil || entries != files || messages > 2 {
			t.Errorf("%d entries in %d messages, %v", entries, messages, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Layer(ctx, dir, func([]*agentpb.LayerEntry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("of a call that has ended: %v", err)
	}
}
