package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// registrySource is an image in an OCI or Docker registry.
type registrySource struct {
	ref       name.Reference
	opts      *StoreOptions
	anonymous bool
}

var _ source = registrySource{}

func (r registrySource) canonical() string { return r.ref.Name() }

func (r registrySource) resolve(ctx context.Context, want Platform, limits sizeLimits) (*resolved, error) {
	repo := r.ref.Context()
	rt := newRegistryTransport(repo.RegistryStr(), schemeOf(repo.Registry), r.opts)
	if r.anonymous && r.opts.dialPolicy == nil {
		rt.policy = publicOnly
	}
	keys := &keychain{anonymous: r.anonymous}
	puller, err := remote.NewPuller(remote.WithTransport(rt), remote.WithAuthFromKeychain(keys))
	if err != nil {
		return nil, fmt.Errorf("set up the registry client: %w", err)
	}
	from := &registryBlobs{repo: repo, puller: puller}
	raw, err := from.get(ctx, r.ref)
	if err != nil {
		return nil, err
	}
	if raw, err = selectManifest(ctx, from, raw, want); err != nil {
		return nil, err
	}
	res, err := resolveManifest(ctx, from, raw, want, limits)
	if err != nil {
		return nil, err
	}
	res.close, res.anonymous = rt.close, func() bool { return !keys.used.Load() }
	return res, nil
}

// keychain gives out the user's credentials, or none for anonymous pulls, and remembers whether it gave any.
type keychain struct {
	anonymous bool
	used      atomic.Bool
}

var _ authn.Keychain = (*keychain)(nil)

// Resolve implements authn.Keychain.
func (k *keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	if k.anonymous {
		return authn.Anonymous, nil
	}
	auth, err := authn.DefaultKeychain.Resolve(of)
	if auth != authn.Anonymous {
		k.used.Store(true)
	}
	return auth, err
}

// schemeOf is "http" for registries on this machine only. The library would also speak it to private
// addresses, where another machine of the network could answer.
func schemeOf(reg name.Registry) string {
	host := hostOf(reg.RegistryStr())
	addr, err := netip.ParseAddr(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback() {
		return reg.Scheme()
	}
	return "https"
}

// registryBlobs reads from one repository.
type registryBlobs struct {
	repo   name.Repository
	puller *remote.Puller
}

var _ blobs = (*registryBlobs)(nil)

func (b *registryBlobs) get(ctx context.Context, ref name.Reference) ([]byte, error) {
	desc, err := b.puller.Get(ctx, ref)
	if err != nil {
		return nil, registryError(ctx, err)
	}
	if len(desc.Manifest) > maxManifestBytes {
		return nil, fmt.Errorf("%w: the manifest has more than %d bytes", ErrLimit, maxManifestBytes)
	}
	return desc.Manifest, nil
}

func (b *registryBlobs) manifest(ctx context.Context, d digest) ([]byte, error) {
	return b.get(ctx, b.repo.Digest(d.String()))
}

func (b *registryBlobs) blob(ctx context.Context, d digest) (io.ReadCloser, error) {
	layer, err := b.puller.Layer(ctx, b.repo.Digest(d.String()))
	if err != nil {
		return nil, registryError(ctx, err)
	}
	rc, err := layer.Compressed()
	if err != nil {
		return nil, registryError(ctx, err)
	}
	return &registryBody{ctx: ctx, ReadCloser: rc}, nil
}

// registryBody gives errors in the middle of a transfer their sentinel.
type registryBody struct {
	ctx context.Context // the request's own
	io.ReadCloser
}

func (b *registryBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = registryError(b.ctx, err)
	}
	return n, err
}

// registryError turns what the client reports into our sentinels.
func registryError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, known := range []error{ErrStalled, ErrAddress, ErrNotRegistry, ErrLimit, ErrDigest} {
		if errors.Is(err, known) {
			return err
		}
	}
	// The client's own check of redirects, which comes before ours, has no sentinel.
	if strings.Contains(err.Error(), "SSRF protection") {
		return fmt.Errorf("%w: %w", ErrAddress, err)
	}
	var te *transport.Error
	if !errors.As(err, &te) {
		return fmt.Errorf("%w: check the connection and the name, or name an image of this machine (docker-archive:FILE, oci:DIR, dir:PATH): %w", ErrUnreachable, err)
	}
	err = shortError{err}
	switch te.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: check the name and the tag: %w", ErrNotFound, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: check the name, or log in (\"msb login\", \"docker login\"): %w", ErrUnauthorized, err)
	case http.StatusTooManyRequests:
		return fmt.Errorf("%w: it limits the rate of requests; wait or log in: %w", ErrUnreachable, err)
	case http.StatusOK:
		return fmt.Errorf("%w: %w", ErrNotRegistry, err)
	default:
		return fmt.Errorf("%w: it answers with an error: %w", ErrUnreachable, err)
	}
}
