// Package assets holds the files that a guest is made of and that msb carries
// inside itself: the agent's root disk and the image called "builtin"; and the
// program that the guest's VMM starts in.
//
//	guest/build.sh ─► guest/assets/bin/*.gz ─► (go:embed) ─► AgentRoot, Builtin
//	                  guest/assets/bin/vmm-*                 VMM
//
// In a clean clone bin/ is empty and the package still builds; its functions
// then return ErrNotBuilt.
//
// It does not protect against whoever can write msb's own binary: what is
// embedded is trusted as the binary is. Digest is for cache keys.
package assets
