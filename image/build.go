package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/msb-project/msb/image/ext4disk"
	"github.com/msb-project/msb/image/rootfs"
)

// parallelLayers are fetched at once: registries throttle more, and each takes a
// core for decompression.
const parallelLayers = 4

// build makes the disk of r in a staging directory and publishes it. The caller
// holds the lock of r.digest.
func (s *Store) build(ctx context.Context, r *resolved, rep *reporter) error {
	if len(r.layers) > s.opts.limits.layers {
		return fmt.Errorf("%w: it has %d layers, at most %d are allowed", ErrLimit, len(r.layers), s.opts.limits.layers)
	}
	if err := checkFree(s.dir, compressedBytes(r.layers)); err != nil {
		return err
	}
	st, err := s.newStaging()
	if err != nil {
		return err
	}
	defer st.discard()
	rep.startFetch(r.layers)
	size, err := s.buildDisk(ctx, st, r.layers, rep)
	if err != nil {
		return err
	}
	meta := diskMeta{
		Format: diskFormat, Digest: r.digest.String(), Config: r.config, Platform: r.platform,
		SizeBytes: size, Created: s.now().UTC(), Anonymous: r.anonymous != nil && r.anonymous(),
	}
	for _, l := range r.layers {
		if r.raw != nil {
			meta.Layers = append(meta.Layers, l.record())
		}
	}
	if err := errors.Join(st.writeConfig(r.raw), st.writeMeta(meta)); err != nil {
		return err
	}
	if err := s.dropDisk(r.digest); err != nil { // one that was fetched in another way
		return err
	}
	return st.publish(s.diskDir(r.digest))
}

func compressedBytes(layers []layerSource) int64 {
	var sum int64
	for _, l := range layers {
		sum += max(0, l.size)
	}
	return sum
}

// buildDisk reads the layers and writes the disk; it returns its size in bytes.
func (s *Store) buildDisk(ctx context.Context, st *staging, sources []layerSource, rep *reporter) (int64, error) {
	spools := make([]*os.File, 0, len(sources))
	defer func() {
		for _, f := range spools {
			_ = f.Close()
		}
	}()
	for range sources {
		f, err := st.spool()
		if err != nil {
			return 0, err
		}
		spools = append(spools, f)
	}
	limits := s.opts.limits
	budget := &rootfs.Budget{
		TotalBytes: limits.totalBytes, FileBytes: limits.fileBytes,
		Entries: int64(limits.entries), MetadataBytes: limits.metadataBytes,
	}
	layers, err := readLayers(ctx, sources, spools, budget, rep)
	if err != nil {
		return 0, err
	}
	tree := rootfs.NewTree(budget)
	for i, l := range layers {
		if err := tree.Apply(l); err != nil {
			return 0, fmt.Errorf("layer %d of %d (%s): %w", i+1, len(layers), sources[i].label(), err)
		}
		layers[i] = nil
	}
	tree.Mask()
	return writeDisk(ctx, filepath.Join(st.dir, diskFile), tree, rep)
}

// readLayers fetches the layers in parallel; the first error stops the others.
func readLayers(ctx context.Context, sources []layerSource, spools []*os.File, budget *rootfs.Budget, rep *reporter) ([]*rootfs.Layer, error) {
	layers := make([]*rootfs.Layer, len(sources))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLayers)
	for i, src := range sources {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			l, err := readLayer(ctx, src, rootfs.NewSpool(spools[i]), budget, rep)
			if err != nil {
				return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(sources), src.label(), err)
			}
			layers[i] = l
			rep.layerDone(src.label())
			return nil
		})
	}
	return layers, g.Wait()
}

func writeDisk(ctx context.Context, path string, tree *rootfs.Tree, rep *reporter) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make the disk: %w", err)
	}
	defer func() { _ = f.Close() }()
	bytes, names := tree.Size()
	rep.startWrite(bytes)
	err = ext4disk.Write(f, ext4disk.Size{Bytes: bytes, Names: names}, func(w io.Writer) error {
		return tree.WriteTar(ctx, w, rep.wrote)
	})
	if err != nil {
		return 0, errors.Join(ctx.Err(), err)
	}
	// Read-only for everyone: a VMM that opens it for writing is refused by the kernel.
	if err := f.Chmod(0o400); err != nil {
		return 0, fmt.Errorf("make the disk read-only: %w", err)
	}
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("sync the disk: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at the disk: %w", err)
	}
	// The guest's kernel sees few sizes, so that many images share a saved machine.
	if err := f.Truncate(ext4disk.Padded(st.Size())); err != nil {
		return 0, fmt.Errorf("pad the disk: %w", err)
	}
	return st.Size(), nil
}
