package image

import (
	"errors"
	"strings"

	"github.com/msb-project/msb/image/rootfs"
)

// Sentinels for callers; the wrapping error says which entry, reference or
// directory it was and what to do about it.
var (
	// ErrReference means the reference can't be read.
	ErrReference = errors.New("invalid image reference")
	// ErrNotFound means that the registry, directory or archive has no such image.
	ErrNotFound = errors.New("image not found")
	// ErrNotCached means PullNever was asked for and the cache has no such image.
	ErrNotCached = errors.New("image is not in the cache")
	// ErrPlatform means that the image has no variant for the wanted platform.
	ErrPlatform = errors.New("image has no variant for this platform")
	// ErrUnauthorized means that the registry refused the credentials, or wants some.
	ErrUnauthorized = errors.New("registry refused access")
	// ErrNotRegistry means that the server answered with something else than the registry protocol.
	ErrNotRegistry = errors.New("server does not speak the registry protocol")
	// ErrUnreachable means that the registry could not be reached.
	ErrUnreachable = errors.New("registry is unreachable")
	// ErrStalled means that a transfer made no progress for too long.
	ErrStalled = errors.New("transfer stalled")
	// ErrAddress means that a redirect led to an address that an image pull may not reach.
	ErrAddress = errors.New("refused to connect to a special-purpose address")
	// ErrDigest means that bytes do not match the digest they were asked for by.
	ErrDigest = errors.New("digest mismatch")
	// ErrHostile means that a layer holds an entry that no sound image has.
	ErrHostile = rootfs.ErrHostile
	// ErrLimit means that the image is over one of the limits.
	ErrLimit = rootfs.ErrLimit
	// ErrConfig means that the image's manifest or configuration is malformed.
	ErrConfig = errors.New("invalid image configuration")
	// ErrNoSpace means that the disk is full.
	ErrNoSpace = errors.New("no space left on the disk")
)

// maxForeignText bounds the words of a registry or a credential helper in an error, in bytes.
const maxForeignText = 1 << 10

// shortError is an error with foreign words in it, which may be many.
type shortError struct{ error }

// Error implements error.
func (e shortError) Error() string {
	text := e.error.Error()
	if len(text) <= maxForeignText {
		return text
	}
	return strings.ToValidUTF8(text[:maxForeignText], "") + "…"
}

// Unwrap is for errors.Is and errors.As.
func (e shortError) Unwrap() error { return e.error }
