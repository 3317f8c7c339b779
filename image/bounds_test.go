package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// noneOpen fails if a file below one of the directories is open.
func noneOpen(t *testing.T, dirs ...string) {
	t.Helper()
	fds, _ := filepath.Glob("/proc/self/fd/*") // none where there is no /proc
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		for _, dir := range dirs {
			if err == nil && (to == dir || strings.HasPrefix(to, dir+"/")) {
				t.Errorf("left open: %s", to)
			}
		}
	}
}

// TestI11_BoundsAreExact has each of a layout's bounds reached, and passed by one.
func TestI11_BoundsAreExact(t *testing.T) {
	t.Parallel()
	file := layerOf(t, "dir/file", "0123456789")
	config := func(key string, v any) fixture {
		return fixture{layers: [][]byte{file}, config: map[string]any{key: v}}
	}
	for name, tc := range map[string]struct {
		bound  int
		is     error
		layout func(n int) fixture
		limits func(n int) sizeLimits
	}{
		"layers":          {3, ErrLimit, func(n int) fixture { return fixture{layers: slices.Repeat([][]byte{file}, n)} }, func(int) sizeLimits { return sizeLimits{layers: 3} }},
		"bytes of layers": {0, ErrLimit, func(int) fixture { return fixture{layers: [][]byte{file}, compress: plain} }, func(n int) sizeLimits { return sizeLimits{totalBytes: int64(len(file) - n)} }},
		"bytes of a file": {0, ErrLimit, func(int) fixture { return fixture{layers: [][]byte{file}} }, func(n int) sizeLimits { return sizeLimits{fileBytes: int64(10 - n)} }},
		"entries":         {0, ErrLimit, func(int) fixture { return fixture{layers: [][]byte{layerOf(t, "a", "", "b", "", "c", "")}} }, func(n int) sizeLimits { return sizeLimits{entries: 3 - n} }},
		"the configuration": {maxConfigBytes, ErrLimit, func(n int) fixture {
			return fixture{layers: [][]byte{file}, mutate: func(m map[string]any) { m["config"].(map[string]any)["size"] = n }}
		}, nil},
		"variables":          {maxConfigStrings, ErrConfig, func(n int) fixture { return config("Env", slices.Repeat([]string{"A=b"}, n)) }, nil},
		"words":              {maxConfigStrings, ErrConfig, func(n int) fixture { return config("Cmd", slices.Repeat([]string{"a"}, n)) }, nil},
		"length of a word":   {maxConfigString, ErrConfig, func(n int) fixture { return config("Entrypoint", []string{strings.Repeat("a", n)}) }, nil},
		"length of a path":   {maxGuestPath - 1, ErrConfig, func(n int) fixture { return config("WorkingDir", "/"+strings.Repeat("a", n-1)) }, nil},
		"length of a user":   {255, ErrConfig, func(n int) fixture { return config("User", strings.Repeat("a", n)) }, nil},
		"numbers of signals": {64, ErrConfig, func(n int) fixture { return config("StopSignal", fmt.Sprint(n)) }, nil},
		"NUL in a path":      {0, ErrConfig, func(n int) fixture { return config("WorkingDir", "/a"+strings.Repeat("\x00", n)) }, nil},
		"type of the root":   {0, ErrConfig, func(n int) fixture { return fixture{layers: [][]byte{file}, rootType: []string{"layers", "other"}[n]} }, nil},
		"encryption": {0, ErrConfig, func(n int) fixture {
			return fixture{layers: [][]byte{file}, mutate: func(m map[string]any) {
				m["layers"].([]any)[0].(map[string]any)["mediaType"] = "application/vnd.oci.image.layer.v1.tar+gzip" + strings.Repeat("+encrypted", n)
			}}
		}, nil},
		"schema of manifests": {2, ErrConfig, func(n int) fixture {
			return fixture{layers: [][]byte{file}, mutate: func(m map[string]any) { m["schemaVersion"] = 2 - (n - 2) }}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for over := range 2 {
				n := tc.bound + over
				limits := sizeLimits{}
				if tc.limits != nil {
					limits = tc.limits(n)
				}
				s := openStore(t, StoreOptions{limits: limits})
				dir := tc.layout(n).layout(t)
				_, err := s.Resolve(t.Context(), "oci:"+dir, Options{})
				if want := []error{nil, tc.is}[over]; !errors.Is(err, want) {
					t.Errorf("%d of %d: %v, want %v", n, tc.bound, err, want)
				}
				noneOpen(t, dir, s.dir)
			}
		})
	}
}

// TestBlobsBySHA512 has a layer that is named by the other algorithm.
func TestBlobsBySHA512(t *testing.T) {
	t.Parallel()
	for damaged, is := range map[bool]error{false: nil, true: ErrDigest} {
		dir := t.TempDir()
		layer := gzipped(t, layerOf(t, "n", "one"))
		sum := sha512.Sum512(layer)
		id := "sha512:" + hex.EncodeToString(sum[:])
		if damaged {
			layer[len(layer)-1] ^= 1
		}
		mustWrite(t, blobPath(dir, id), layer)
		f := fixture{layers: [][]byte{layerOf(t, "n", "one")}, mutate: func(m map[string]any) { m["layers"].([]any)[0].(map[string]any)["digest"] = id }}
		writeIndex(t, dir, f.write(t, dir))
		s := openStore(t, StoreOptions{})
		if _, err := s.Resolve(t.Context(), "oci:"+dir, Options{}); !errors.Is(err, is) {
			t.Errorf("damaged %t: %v, want %v", damaged, err, is)
		}
		noneOpen(t, dir, s.dir)
	}
}

// TestAnIndexNamesManyPlatforms takes the first that runs here, and tells what there is else.
func TestAnIndexNamesManyPlatforms(t *testing.T) {
	t.Parallel()
	here := DefaultPlatform()
	dir := t.TempDir()
	entry := func(text string, p ...string) map[string]any {
		m := fixture{layers: [][]byte{layerOf(t, "n", text)}}.write(t, dir)
		if len(p) > 0 {
			m["platform"] = map[string]any{"os": p[0], "architecture": p[1], "variant": append(p, "")[2]}
		}
		return m
	}
	index := func(entries ...map[string]any) string {
		b := mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries})
		writeIndex(t, dir, putBlob(t, dir, "application/vnd.oci.image.index.v1+json", b))
		return "oci:" + dir
	}
	var others []map[string]any
	for i := range maxPlatformsShown + 1 {
		others = append(others, entry("other", "linux", fmt.Sprint("arch", i)))
	}
	for _, tc := range []struct {
		what      string
		entries   []map[string]any
		want      Platform
		text, err string
	}{
		{"one without a platform", []map[string]any{entry("alone")}, here, "alone", ""},
		{"two, one without a platform", []map[string]any{entry("none"), entry("ours", here.OS, here.Architecture)}, here, "ours", ""},
		{"two without a platform", []map[string]any{entry("none"), entry("none")}, here, "", "names no other"},
		{"the first of two", []map[string]any{entry("first", here.OS, here.Architecture, "v1"), entry("second", here.OS, here.Architecture)}, here, "first", ""},
		{"another system", []map[string]any{entry("other", "plan9", here.Architecture)}, here, "", "plan9/" + here.Architecture},
		{"a variant", []map[string]any{entry("v1", here.OS, here.Architecture, "v1"), entry("v2", here.OS, here.Architecture, "v2")}, Platform{here.OS, here.Architecture, "v2"}, "v2", ""},
		{"no such variant", []map[string]any{entry("v1", here.OS, here.Architecture, "v1")}, Platform{here.OS, here.Architecture, "v2"}, "", here.Architecture + "/v1"},
		{"attestations", []map[string]any{entry("sig", "unknown", "unknown")}, here, "", "names no other"},
		{"as many as are shown", others[1:], here, "", "arch12;"},
		{"more than are shown", others, here, "", "arch11, …"},
	} {
		s := openStore(t, StoreOptions{})
		img, err := s.Resolve(t.Context(), index(tc.entries...), Options{Platform: tc.want})
		switch {
		case tc.err != "" && (!errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "unknown")):
			t.Errorf("%s: %v, want %v that says %q", tc.what, err, ErrPlatform, tc.err)
		case tc.err == "" && (err != nil || debugfs(t, img.DiskPath, "cat n") != tc.text):
			t.Errorf("%s: %+v, %v", tc.what, img, err)
		}
	}
}

// TestI12_OtherFilesAreNoArchives: each has its own error, and none stays open.
func TestI12_OtherFilesAreNoArchives(t *testing.T) {
	t.Parallel()
	good := archiveOf(t, fixture{layers: [][]byte{layerOf(t, "n", "one")}}, false)
	members := func(files ...string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			hdr := &tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(files[i+1]))}
			if to, ok := strings.CutPrefix(files[i+1], "-> "); ok {
				hdr.Typeflag, hdr.Size, hdr.Linkname = tar.TypeSymlink, 0, to
			}
			if err := w.WriteHeader(hdr); err != nil {
				t.Fatal(err)
			}
			if hdr.Size > 0 {
				_, _ = w.Write([]byte(files[i+1]))
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	links := func(n int) []byte {
		files := []string{"end", "[]"}
		for i := range n {
			files = append(files, fmt.Sprint("l", i), fmt.Sprint("-> l", i+1))
		}
		return members(append(files, fmt.Sprint("l", n), "-> end", "manifest.json", "-> l0")...)
	}
	for what, tc := range map[string]struct {
		content []byte
		is      error
		says    string
	}{
		"sound":                    {good, nil, ""},
		"two images":               {members("manifest.json", `[{"RepoTags":["a:1"]},{"RepoTags":["b:2"]}]`), ErrReference, `["a:1" "b:2"]`},
		"no image":                 {members("manifest.json", `[]`), ErrReference, "0 images"},
		"as many links as may":     {links(maxArchiveLinks - 3), ErrReference, "0 images"},
		"one link more":            {links(maxArchiveLinks - 2), ErrConfig, "leads nowhere"},
		"a link to itself":         {members("manifest.json", "-> manifest.json"), ErrConfig, "leads nowhere"},
		"manifest of 4 MiB":        {members("manifest.json", "[]"+strings.Repeat(" ", maxConfigBytes-2)), ErrReference, "0 images"},
		"manifest of a byte more":  {members("manifest.json", "[]"+strings.Repeat(" ", maxConfigBytes-1)), ErrLimit, "manifest.json"},
		"no configuration":         {members("manifest.json", `[{"Config":"none"}]`), ErrConfig, `"none"`},
		"manifest that is no JSON": {members("manifest.json", `[`), ErrConfig, "malformed"},
		"configuration is no JSON": {members("c", "{", "manifest.json", `[{"Config":"c"}]`), ErrConfig, "configuration"},
		"layer that is not there":  {members("c", `{"os":"linux","architecture":"`+DefaultPlatform().Architecture+`","rootfs":{"diff_ids":["`+sha256Of(nil).String()+`"]}}`, "manifest.json", `[{"Config":"c","Layers":["none"]}]`), ErrConfig, `"none"`},
		"more layers than digests": {members("c", `{"os":"linux","architecture":"`+DefaultPlatform().Architecture+`","rootfs":{}}`, "manifest.json", `[{"Config":"c","Layers":["none"]}]`), ErrConfig, "lists 1 layers"},
	} {
		for _, packed := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "archive")
			content := tc.content
			if packed {
				content = gzipped(t, content)
			}
			mustWrite(t, path, content)
			s := openStore(t, StoreOptions{})
			_, err := s.Resolve(t.Context(), "docker-archive:"+path, Options{})
			if !errors.Is(err, tc.is) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s, packed %t: %v, want %v that says %q", what, packed, err, tc.is, tc.says)
			}
			noneOpen(t, filepath.Dir(path), s.dir)
		}
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, is := range map[string]error{pipe: ErrReference, dir: ErrReference, filepath.Join(dir, "none"): ErrNotFound} {
		s := openStore(t, StoreOptions{})
		if _, err := s.Resolve(t.Context(), "docker-archive:"+path, Options{}); !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", path, err, is)
		}
		noneOpen(t, dir, s.dir)
	}
}

// TestDirectoriesReachTheirBounds has a directory as an image, with as much in it as may be and one more.
func TestDirectoriesReachTheirBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "a", "file"), []byte("0123456789"))
	for what, tc := range map[string]struct {
		limits sizeLimits
		is     error
	}{
		"entries":       {sizeLimits{entries: 3}, nil},
		"one more":      {sizeLimits{entries: 2}, ErrLimit},
		"bytes":         {sizeLimits{fileBytes: 10}, nil},
		"one byte more": {sizeLimits{fileBytes: 9}, ErrLimit},
	} {
		s := openStore(t, StoreOptions{limits: tc.limits})
		if _, err := s.Resolve(t.Context(), "dir:"+dir, Options{}); !errors.Is(err, tc.is) {
			t.Errorf("%s: %v, want %v", what, err, tc.is)
		}
		noneOpen(t, dir, s.dir)
	}
}

// TestListIsInOrder has references first, then disks that none names, and skips what is damaged.
func TestListIsInOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	dir := t.TempDir()
	for i := range 3 { // each replaces the one before it under the same name
		mustWrite(t, filepath.Join(dir, "f"), fmt.Append(nil, i))
		mustResolve(t, s, "dir:"+dir, Options{})
	}
	other := "oci:" + fixture{layers: [][]byte{layerOf(t, "a", "1")}}.layout(t)
	img := mustResolve(t, s, other, Options{})
	records, err := filepath.Glob(filepath.Join(s.dir, refsDir, "*"))
	if err != nil || len(records) != 2 {
		t.Fatalf("%q, %v", records, err)
	}
	check := func(what string, named ...string) {
		t.Helper()
		list, err := s.List()
		if err != nil || len(list) != 4 {
			t.Fatalf("%s: %+v, %v", what, list, err)
		}
		for i, img := range list {
			switch {
			case i < len(named) && img.Ref != named[i]:
				t.Errorf("%s: image %d is %q, want %q", what, i, img.Ref, named[i])
			case i >= len(named) && (img.Ref != "" || i > len(named) && img.Digest < list[i-1].Digest):
				t.Errorf("%s: image %d is %q, %s after %s", what, i, img.Ref, img.Digest, list[i-1].Digest)
			}
		}
	}
	check("all", "dir:"+dir, other)
	for _, path := range records {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(img.Digest)) {
			mustWrite(t, path, bytes.ReplaceAll(b, []byte(img.Digest), []byte("sha256:damaged")))
		}
	}
	check("one record is damaged", "dir:"+dir)
}
