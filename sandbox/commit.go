package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// Commit makes an image of the cache, under that name, from the root of the sandbox of that name, and returns it. The disk
// of a running sandbox is frozen meanwhile, for at most MaxFreeze. It leaves out what is mounted in the root (volumes,
// directories of this machine, caches), the sandbox's variables, its authority's certificate (except in Java's keystores),
// what tells machines apart, and extended attributes. The image has the variables and the command of the sandbox's own
// image.
func (ss Snapshots) Commit(ctx context.Context, name, ref string, o StartOptions) (*image.Image, error) {
	img, err := commitImage(ctx, ss.home, name, ref, o)
	return img, Fail(err)
}

func commitImage(ctx context.Context, h *Home, name, ref string, o StartOptions) (*image.Image, error) {
	if err := image.CheckLoadName(ref); err != nil {
		return nil, err
	}
	var at *Sandbox
	err := withStill(ctx, h, name, func(src *source) (err error) {
		at, err = copyOf(ctx, h, src, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	layer, digest, err := rootLayer(ctx, h, at)
	config := at.Image().Config
	err = errors.Join(err, at.Close())
	if layer == nil {
		return nil, err
	}
	defer func() { _ = layer.Close() }() // it has no name
	if err != nil {
		return nil, err
	}
	store, err := Store(h)
	if err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() { _ = writer.CloseWithError(writeImage(writer, ref, &config, layer, digest)) }()
	all, err := store.Load(ctx, reader, image.LoadOptions{Progress: o.Progress})
	_ = reader.Close()
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// copyOf starts a sandbox without a network on a copy of the disk, which forgets the sandbox's authority.
func copyOf(ctx context.Context, h *Home, src *source, o StartOptions) (*Sandbox, error) {
	cfg := Config{Home: h.dir, Program: o.Program, Progress: o.Progress, Notice: o.Notice, NoNet: true, Backend: src.stored.Backend, Memory: src.stored.Memory, Disk: src.stored.Disk}
	cfg.forget = src.certificates()
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	admitted, err := h.Trust().Admit(cfg.Policy, AdmitOptions{}) // which lets nothing out
	if err != nil {
		return nil, err
	}
	img, err := imageOf(ctx, h, src.stored, &cfg, admitted)
	if err != nil {
		return nil, err
	}
	run, err := newRun(h)
	if err != nil {
		return nil, err
	}
	cfg.ownDisk = true
	if err := src.copy(ctx, filepath.Join(run.dir, state.UpperDisk)); err != nil {
		return nil, errors.Join(err, run.remove(), run.lock.Close())
	}
	return bringUp(ctx, h, run, img, &cfg, admitted)
}

// rootLayer writes the root to a file without a name, as the one layer of an image, and returns its digest in hex.
func rootLayer(ctx context.Context, h *Home, at *Sandbox) (layer *os.File, digest string, err error) {
	left, err := state.Spare(h.dir)
	if err != nil {
		return nil, "", err
	}
	archive, err := at.Files().PackRoot(ctx)
	if err != nil {
		return nil, "", err
	}
	layer, err = os.CreateTemp(at.run.dir, "layer") // a kill leaves it there, and the directory is swept
	if err == nil {
		err = os.Remove(layer.Name())
	}
	sum := sha256.New()
	if err == nil {
		err = copyArchive(io.MultiWriter(layer, sum), archive, &left, leftOut)
	}
	if err = errors.Join(err, archive.Close()); err != nil && layer != nil {
		err = errors.Join(err, layer.Close())
		layer = nil
	}
	return layer, hex.EncodeToString(sum.Sum(nil)), err
}

// ofOneSandbox are files that tell machines apart, or that the guest's agent writes at each start: patterns of path.Match.
var ofOneSandbox = []string{
	"etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id", "var/lib/dbus/machine-id",
	"etc/ssh/ssh_host_*", "etc/dropbear/dropbear_*_host_key",
	"var/lib/systemd/random-seed", "var/lib/urandom/random-seed", "var/lib/misc/random-seed", "var/lib/random-seed", "var/lib/seedrng/seed.*",
	"var/lib/systemd/credential.secret", "var/lib/NetworkManager/secret_key",
	"var/lib/dhcpcd/duid", "var/lib/dhcpcd/secret", "etc/dhcpcd.duid",
	"run/msb-stop",
}

// leftOut reports whether a file, or what it is a hard link to, is one of ofOneSandbox.
func leftOut(h *tar.Header) bool {
	return ofOne(h.Name) || h.Typeflag == tar.TypeLink && ofOne(h.Linkname)
}

func ofOne(name string) bool {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	return slices.ContainsFunc(ofOneSandbox, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// writeImage writes an image of one layer in the format of docker save.
func writeImage(w io.Writer, ref string, c *image.Config, layer *os.File, digest string) error {
	platform := image.DefaultPlatform()
	config, err := json.Marshal(v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture,
		Config: v1.Config{Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, User: c.User, StopSignal: c.StopSignal},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: digest}}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	size, err := layer.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = layer.Seek(0, io.SeekStart)
	}
	out := tar.NewWriter(w)
	for _, m := range []struct {
		name string
		size int64
		r    io.Reader
	}{
		{"manifest.json", int64(len(manifest)), bytes.NewReader(manifest)},
		{"config.json", int64(len(config)), bytes.NewReader(config)},
		{"layer.tar", size, layer},
	} {
		if err == nil {
			err = out.WriteHeader(&tar.Header{Name: m.name, Size: m.size, Mode: 0o600, Typeflag: tar.TypeReg})
		}
		if err == nil {
			_, err = io.Copy(out, m.r)
		}
	}
	return errors.Join(err, out.Close())
}
