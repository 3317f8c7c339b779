package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// maxManifestBytes bounds manifests and indexes; the distribution
	// specification asks registries to take 4 MiB and none stores more.
	maxManifestBytes = 4 << 20
	// maxConfigBytes bounds the image configuration; real ones have under 100 KiB.
	maxConfigBytes = 4 << 20
	// maxJSONObjects and maxJSONValues bound what is in them: a value of three bytes becomes a structure of hundreds.
	maxJSONObjects = 20_000
	maxJSONValues  = 200_000
	// maxIndexDepth bounds indexes of indexes.
	maxIndexDepth = 4
)

// resolved is what a source says an image is, before any layer is read.
type resolved struct {
	digest   digest
	config   Config
	platform Platform
	layers   []layerSource
	// raw is the configuration as the source has it; nil if it has none.
	raw []byte
	// anonymous tells whether a registry gave all of it to anybody; nil for other sources.
	anonymous func() bool
	// close frees what the layers are read from; nil when there is nothing.
	close func()
}

// layerSource is one layer, lowest first.
type layerSource struct {
	// digest and size describe the bytes that open gives; size -1 is unknown
	// and a nil digest is not checked.
	digest *digest
	size   int64
	// diffID is the digest of the decompressed bytes; nil is not checked.
	diffID *digest
	open   func(context.Context) (io.ReadCloser, error)
}

// label names the layer in progress and errors.
func (l layerSource) label() string {
	switch {
	case l.digest != nil:
		return l.digest.String()
	case l.diffID != nil:
		return l.diffID.String()
	default:
		return "layer"
	}
}

// blobs gives manifests and blobs by descriptor, bounded but not yet checked.
type blobs interface {
	manifest(ctx context.Context, d digest) ([]byte, error)
	blob(ctx context.Context, d digest) (io.ReadCloser, error)
}

// selectManifest walks from raw, the manifest or index that the reference means,
// to the manifest for the platform.
func selectManifest(ctx context.Context, from blobs, raw []byte, want Platform) ([]byte, error) {
	for range maxIndexDepth {
		if err := checkJSON("the manifest", raw); err != nil {
			return nil, err
		}
		var probe struct {
			MediaType types.MediaType   `json:"mediaType"`
			Manifests []json.RawMessage `json:"manifests"`
			Config    json.RawMessage   `json:"config"`
			Schema    int               `json:"schemaVersion"`
		}
		if err := json.Unmarshal(raw, &probe); err != nil {
			return nil, fmt.Errorf("%w: the manifest is not JSON: %w", ErrConfig, err)
		}
		if probe.Schema == 1 {
			return nil, fmt.Errorf("%w: the manifest has the old schema 1; push the image again with a current tool", ErrConfig)
		}
		if probe.Manifests == nil {
			return raw, nil
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("%w: the index is malformed: %w", ErrConfig, err)
		}
		desc, err := choosePlatform(index, want)
		if err != nil {
			return nil, err
		}
		d, err := parseDigest(desc.Digest.String())
		if err != nil {
			return nil, fmt.Errorf("%w: the index: %w", ErrConfig, err)
		}
		if raw, err = readManifest(ctx, from, d); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: indexes are nested more than %d deep", ErrConfig, maxIndexDepth)
}

// checkJSON bounds what decoding raw takes, before it is decoded.
func checkJSON(what string, raw []byte) error {
	if bytes.Count(raw, []byte("{")) > maxJSONObjects || bytes.Count(raw, []byte(",")) > maxJSONValues {
		return fmt.Errorf("%w: %s holds more than %d objects or %d values", ErrLimit, what, maxJSONObjects, maxJSONValues)
	}
	return nil
}

// choosePlatform picks the first manifest that runs on want; one without a
// platform is taken when it is the only one.
func choosePlatform(index *v1.IndexManifest, want Platform) (v1.Descriptor, error) {
	var has []string
	for _, m := range index.Manifests {
		if m.Platform == nil {
			if len(index.Manifests) == 1 {
				return m, nil
			}
			continue
		}
		got := Platform{OS: m.Platform.OS, Architecture: m.Platform.Architecture, Variant: m.Platform.Variant}
		if want.runs(got) {
			return m, nil
		}
		// Attestations and signatures call themselves unknown/unknown.
		if got.OS != "unknown" {
			has = append(has, got.String())
		}
	}
	return v1.Descriptor{}, platformError(want, has)
}

// runs says whether what was built for got runs on p. Without a wanted variant any will do.
func (p Platform) runs(got Platform) bool {
	return p.OS == got.OS && p.Architecture == got.Architecture &&
		(p.Variant == "" || got.Variant == "" || p.Variant == got.Variant)
}

// maxPlatformsShown keeps an error to one line.
const maxPlatformsShown = 12

func platformError(want Platform, has []string) error {
	if len(has) == 0 {
		return fmt.Errorf("%w: it has none for %s, and names no other", ErrPlatform, want)
	}
	more := ""
	if len(has) > maxPlatformsShown {
		has, more = has[:maxPlatformsShown], ", …"
	}
	return fmt.Errorf("%w: it has none for %s, only for %s%s; choose another image or tag",
		ErrPlatform, want, strings.Join(has, ", "), more)
}

// resolveManifest reads the configuration of a manifest and lines its layers up.
func resolveManifest(ctx context.Context, from blobs, raw []byte, want Platform, limits sizeLimits) (*resolved, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: the manifest is malformed: %w", ErrConfig, err)
	}
	if err := checkManifest(m, limits); err != nil {
		return nil, err
	}
	configDigest, err := parseDigest(m.Config.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("%w: the manifest: %w", ErrConfig, err)
	}
	rawConfig, err := readBlob(ctx, from, configDigest)
	if err != nil {
		return nil, err
	}
	config, err := parseConfigFile(rawConfig)
	if err != nil {
		return nil, err
	}
	if !want.runs(config.platform) {
		return nil, platformError(want, []string{config.platform.String()})
	}
	if len(config.diffIDs) != len(m.Layers) {
		return nil, fmt.Errorf("%w: the manifest has %d layers, the configuration %d", ErrConfig, len(m.Layers), len(config.diffIDs))
	}
	r := &resolved{digest: sha256Of(raw), config: config.config, platform: config.platform, raw: rawConfig}
	for i, l := range m.Layers {
		d, err := parseDigest(l.Digest.String())
		if err != nil {
			return nil, fmt.Errorf("%w: layer %d: %w", ErrConfig, i+1, err)
		}
		r.layers = append(r.layers, layerSource{
			digest: &d, size: l.Size, diffID: &config.diffIDs[i],
			open: func(ctx context.Context) (io.ReadCloser, error) { return from.blob(ctx, d) },
		})
	}
	return r, nil
}

func checkManifest(m *v1.Manifest, limits sizeLimits) error {
	if m.Config.Size < 0 || m.Config.Size > maxConfigBytes {
		return fmt.Errorf("%w: the configuration claims %d bytes, at most %d are read", ErrLimit, m.Config.Size, maxConfigBytes)
	}
	if len(m.Layers) > limits.layers {
		return fmt.Errorf("%w: it has %d layers, at most %d are allowed", ErrLimit, len(m.Layers), limits.layers)
	}
	if m.Config.MediaType != "" && !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("%w: the reference means a %q artifact, not a container image", ErrConfig, m.Config.MediaType)
	}
	var sum int64
	for i, l := range m.Layers {
		if l.Size < 0 || l.Size > limits.totalBytes-sum {
			return fmt.Errorf("%w: with layer %d (%d bytes) the layers take more than %d bytes", ErrLimit, i+1, l.Size, limits.totalBytes)
		}
		sum += l.Size
		// A foreign layer is fetched from wherever its manifest says: not by us.
		if len(l.URLs) > 0 || !l.MediaType.IsDistributable() {
			return fmt.Errorf("%w: layer %d is to be fetched from elsewhere (%q), which is not supported", ErrConfig, i+1, l.MediaType)
		}
		if strings.Contains(string(l.MediaType), "encrypted") {
			return fmt.Errorf("%w: layer %d is encrypted, which is not supported", ErrConfig, i+1)
		}
	}
	return nil
}

// readBlob reads and checks a small blob.
func readBlob(ctx context.Context, from blobs, d digest) ([]byte, error) {
	rc, err := from.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	b, err := io.ReadAll(io.LimitReader(rc, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfigBytes {
		return nil, fmt.Errorf("%w: the configuration has more than %d bytes", ErrLimit, maxConfigBytes)
	}
	return b, d.verifyBytes("the configuration", b)
}
