//go:build vmtest

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// serveRegistry starts an empty registry on loopback, which msb talks to in plain HTTP, and returns its
// address.
func serveRegistry(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// push puts an image of these layers, tar streams or compressed ones, into a registry and returns its
// reference.
func push(t *testing.T, host, repository, arch string, config v1.Config, layers ...tarball.Opener) string {
	t.Helper()
	img := empty.Image
	for _, open := range layers {
		l, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(1))
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", arch, config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/" + repository + ":v1")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{} // its own, so that no idle connection outlives the test
	defer transport.CloseIdleConnections()
	if err := remote.Write(tag, img, remote.WithTransport(transport)); err != nil {
		t.Fatal(err)
	}
	return tag.Name()
}

// tarOf is a layer of small files, name to content.
func tarOf(t *testing.T, files map[string]string) tarball.Opener {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
}
