package image

import (
	"context"
	"fmt"
	"io"
)

// builtinSource is the image that comes with the program.
type builtinSource struct {
	open func() (Builtin, error)
}

var _ source = builtinSource{}

func (b builtinSource) canonical() string { return "" }

func (b builtinSource) resolve(_ context.Context, want Platform, _ sizeLimits) (*resolved, error) {
	if b.open == nil {
		return nil, fmt.Errorf("%w: this build has no built-in image; name another", ErrNotFound)
	}
	img, err := b.open()
	if err != nil {
		return nil, fmt.Errorf("the built-in image: %w", err)
	}
	d, err := parseDigest(img.Digest)
	if err != nil {
		return nil, fmt.Errorf("%w: the built-in image: %w", ErrConfig, err)
	}
	if err := img.Config.validate(); err != nil {
		return nil, fmt.Errorf("the built-in image: %w", err)
	}
	if have := DefaultPlatform(); !want.runs(have) {
		return nil, platformError(want, []string{have.String()})
	}
	open := func(context.Context) (io.ReadCloser, error) { return img.Open() }
	return &resolved{
		digest: d, config: img.Config, platform: DefaultPlatform(),
		layers: []layerSource{{size: -1, open: open}},
	}, nil
}
