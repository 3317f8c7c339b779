//go:build containerdtest && kubernetestest

package shim_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const e2eImages = "registry.k8s.io/e2e-test-images/"

// importE2EImages makes the images that the tests name, of Debian's busybox and of Kubernetes' programs, and puts them into a registry.
func (c *cluster) importE2EImages(t *testing.T) {
	t.Helper()
	to := c.registry(t)
	busybox, err := busyboxLayer()
	if err != nil {
		t.Fatal(err)
	}
	agnhost, escalation := programLayer(t, tar.Header{Name: "agnhost", Mode: 0o755}), programLayer(t, tar.Header{Name: "nonewprivs", Mode: 0o4755})
	c.pki.issue(t, "localhost", "localhost", "", "localhost", "127.0.0.1")
	files := map[string]string{ // of which Alpine's image has the programs
		"bin/curl": "#!/bin/sh\nfor url; do :; done\nexec wget -q -O - \"$url\"\n",
		"bin/bash": "#!/bin/sh\nexec sh \"$@\"\n",
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		b, err := os.ReadFile(c.pki.file(name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	var more bytes.Buffer
	w := tar.NewWriter(&more)
	for name, text := range files {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}), write(w, []byte(text)))
	}
	err = errors.Join(
		err, w.WriteHeader(&tar.Header{Name: "agnhost-2", Typeflag: tar.TypeSymlink, Linkname: "agnhost"}),
		w.WriteHeader(&tar.Header{Name: "uploads/", Typeflag: tar.TypeDir, Mode: 0o755}), w.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	ofAgnhost := [][]byte{busybox, agnhost, more.Bytes()}
	path := []string{"PATH=/bin:/"}
	for ref, i := range map[string]struct {
		config v1.Config
		layers [][]byte
	}{
		e2eImages + "busybox:1.37.0-1": {v1.Config{Cmd: []string{"sh"}, Env: path}, [][]byte{busybox}},
		e2eImages + "nonroot:1.5":      {v1.Config{Cmd: []string{"sh"}, Env: path, User: "1234"}, [][]byte{busybox}},
		e2eImages + "agnhost:2.63.0":   {v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: path}, ofAgnhost},
		e2eImages + "nonewprivs:1.4":   {v1.Config{Entrypoint: []string{"/nonewprivs"}, Env: path}, [][]byte{busybox, escalation}},
		e2eImages + "nginx:1.27-0":     {v1.Config{Entrypoint: []string{"/agnhost", "test-webserver"}, Env: path}, ofAgnhost},
		"registry.k8s.io/pause:3.10.2": {v1.Config{Entrypoint: []string{"/agnhost", "pause"}, Env: path}, ofAgnhost},
	} {
		dir := c.file("e2e-image")
		err := writeImage(dir, dir+".tar", ref, i.config, i.layers...)
		if err != nil {
			t.Fatal(err)
		}
		c.must(t, "-n", "k8s.io", "images", "import", "--local", dir+".tar")
		if err := errors.Join(os.RemoveAll(dir), os.Remove(dir+".tar"), push(to, ref, i.config, i.layers...)); err != nil {
			t.Fatal(err)
		}
	}
	for name, of := range map[string]string{"agnhost:2.55": "agnhost:2.63.0", "nginx:1.15-4": "nginx:1.27-0", "glibc-dns-testing:2.0.0": "busybox:1.37.0-1"} { // Debian's busybox has glibc in it
		c.must(t, "-n", "k8s.io", "images", "tag", e2eImages+of, e2eImages+name)
	}
}

// programLayer has one of Kubernetes' programs.
func programLayer(t *testing.T, h tar.Header) []byte {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(os.Getenv(envKubernetes), h.Name))
	if err != nil {
		t.Fatal(err)
	}
	h.Size = int64(len(program))
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(w.WriteHeader(&h), write(w, program), w.Close()); err != nil {
		t.Fatal(err)
	}
	return layer.Bytes()
}

// push puts an image into a registry.
func push(to http.Handler, ref string, config v1.Config, layers ...[]byte) error {
	img, err := makeImage(config, layers...)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	return remote.Write(tag, img, remote.WithTransport(inProcess{to}))
}

// inProcess is the way to a handler without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	answer := w.Result()
	answer.Request = r
	return answer, nil
}

// registry serves images on the node's loopback, where containerd asks for those of registry.k8s.io.
func (c *cluster) registry(t *testing.T) http.Handler {
	t.Helper()
	var l net.Listener
	var err error
	within(t, "/run/netns/"+c.netns, func() string { l, err = net.Listen("tcp", "127.0.0.1:0"); return "" })
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := &http.Server{Handler: images}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	config, err := os.ReadFile(c.file("config.toml"))
	if err = errors.Join(err, os.MkdirAll(c.file("hosts/registry.k8s.io"), 0o700)); err != nil {
		t.Fatal(err)
	}
	at := "http://" + l.Addr().String()
	c.write(t, "hosts/registry.k8s.io/hosts.toml", fmt.Sprintf("server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", at, at))
	c.write(t, "config.toml", string(config)+fmt.Sprintf("[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '%s'\n", c.file("hosts")))
	c.stop(t)
	c.start(t)
	return images
}

func write(w *tar.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}
