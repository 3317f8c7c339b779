package image

import (
	"runtime"
	"time"
)

// Image is a resolved image: its disk is in the cache and may be attached.
type Image struct {
	// Ref is the reference as it was asked for.
	Ref string
	// Digest names the content, "sha256:…": the manifest of the selected
	// platform for registries and oci:, the configuration for docker-archive:,
	// a hash over names, metadata and contents for dir:, what the owner of the
	// bytes says for builtin.
	Digest string
	// DiskPath is the host path of an ext4 file system of SizeBytes bytes. It is
	// shared by every sandbox of this image: attach it read-only.
	DiskPath string
	// Config is what the image says about running it.
	Config Config
	// SizeBytes is the size of the file system; the file is larger, by a hole.
	SizeBytes int64
	// Platform is what the image was built for.
	Platform Platform
	// Cached is true when the disk was in the cache already.
	Cached bool
	// Created is when the disk was written on this machine.
	Created time.Time

	anonymous bool // it was fetched without credentials
}

// Config is the part of an OCI image configuration that running it needs,
// validated: no string holds a NUL, every Env entry is NAME=value with a
// non-empty name, WorkingDir is absolute and clean.
type Config struct {
	Env        []string `json:"env,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// WorkingDir is a guest path, "/" when the image names none.
	WorkingDir string `json:"workingDir,omitempty"`
	// User is "", "user", "uid", "user:group" or "uid:gid"; names are looked up
	// in the guest.
	User string `json:"user,omitempty"`
	// StopSignal is "", a name with SIG in front, or a number from 1 to 64.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Platform is an operating system, an architecture in Go's words and, for arm,
// a variant.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"`
}

// String is the platform in the form that container tools print, "linux/arm64/v8".
func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// DefaultPlatform is what the guest runs here: Linux on the host's architecture.
func DefaultPlatform() Platform {
	return Platform{OS: "linux", Architecture: runtime.GOARCH}
}

// Pull says when a registry is asked.
type Pull string

// The pull policies. References that name a digest are never asked for twice.
const (
	// PullMissing asks the registry only when the cache has no such reference.
	PullMissing Pull = "missing"
	// PullAlways asks which digest the reference means now, and fetches that if
	// the cache does not have it.
	PullAlways Pull = "always"
	// PullNever works from the cache alone.
	PullNever Pull = "never"
)

// Options are the choices of one Resolve.
type Options struct {
	// Platform is the wanted platform; the zero value is DefaultPlatform().
	Platform Platform
	// Pull is the pull policy; "" is PullMissing.
	Pull Pull
	// Anonymous asks a registry without the user's credentials and on public addresses only,
	// and ignores cached images that were fetched in another way. It is for references that
	// somebody else chose.
	Anonymous bool
	// Progress is told what happens; nil for silence.
	Progress Progress
}
