package image

import (
	"context"
	"errors"
	"fmt"
)

// resolver asks a source what it holds for a platform.
type resolver interface {
	resolve(ctx context.Context, want Platform, limits sizeLimits) (*resolved, error)
}

// Resolve returns the image that ref means, from the cache or fetched now. Its
// errors wrap the sentinels of this package; after an error the cache is as it was.
func (s *Store) Resolve(ctx context.Context, ref string, opts Options) (*Image, error) {
	rep := newReporter(ref, opts.Progress, s.now)
	img, err := s.resolve(ctx, ref, opts, rep)
	if err != nil {
		rep.phase(PhaseFailed)
		return nil, fmt.Errorf("image %.200q: %w", ref, spaceError(s.dir, err))
	}
	img.Ref = ref
	rep.done(img.Cached)
	return img, nil
}

func (s *Store) resolve(ctx context.Context, ref string, opts Options, rep *reporter) (*Image, error) {
	src, err := s.parseReference(ref)
	if err != nil {
		return nil, err
	}
	want := opts.Platform
	if want == (Platform{}) {
		want = DefaultPlatform()
	}
	if r, ok := src.(registrySource); ok {
		r.anonymous = opts.Anonymous
		src = r
	} else {
		opts.Anonymous = false // what is on this machine was named, or is approved
	}
	key := src.canonical()
	if key != "" {
		if img, err := s.byPolicy(key, want, opts); img != nil || err != nil {
			return img, err
		}
	}
	rep.phase(PhaseResolving)
	r, err := src.resolve(ctx, want, s.opts.limits)
	if err != nil {
		return nil, err
	}
	if r.close != nil {
		defer r.close()
	}
	img, err := s.ensureDisk(ctx, r, opts.Anonymous, rep)
	if err != nil {
		return nil, err
	}
	if key == "" {
		key = ref
	}
	return img, s.saveRef(key, want, r)
}

// byPolicy answers from the cache where the policy lets it.
func (s *Store) byPolicy(key string, want Platform, opts Options) (*Image, error) {
	switch opts.Pull {
	case PullMissing, "":
		return s.loadRef(key, want, opts.Anonymous), nil
	case PullNever:
		if img := s.loadRef(key, want, opts.Anonymous); img != nil {
			return img, nil
		}
		return nil, fmt.Errorf("%w for %s: pull it first, or leave out the pull policy %q", ErrNotCached, want, PullNever)
	case PullAlways:
		return nil, nil
	default:
		return nil, fmt.Errorf("%w: pull policy %q is none of %q, %q, %q", ErrReference, opts.Pull, PullMissing, PullAlways, PullNever)
	}
}

// ensureDisk returns the disk of r, made now by this or another process if need be. An anonymous pull doesn't use a disk
// that was made with the user's credentials: the author of a manifest may name layers that only the user may read.
func (s *Store) ensureDisk(ctx context.Context, r *resolved, anonymous bool, rep *reporter) (*Image, error) {
	if img := s.loadDisk(r.digest); img != nil && (img.anonymous || !anonymous) {
		return img, nil
	}
	l, err := waitLock(ctx, s.lockPath(r.digest), func() { rep.phase(PhaseWaiting) })
	if err != nil {
		return nil, err
	}
	defer l.release()
	img := s.loadDisk(r.digest)
	if img != nil && (img.anonymous || !anonymous) {
		return img, nil
	}
	if img == nil {
		if err := s.dropDisk(r.digest); err != nil {
			return nil, err
		}
	}
	if err := s.build(ctx, r, rep); err != nil {
		return nil, err
	}
	if img = s.loadDisk(r.digest); img == nil {
		return nil, errors.New("the disk that was just written can't be read back")
	}
	img.Cached = false
	return img, nil
}
