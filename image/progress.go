package image

// Phase is a step of Resolve.
type Phase string

// The phases, in the order in which they come. Waiting, Fetching and Writing are
// left out when the cache has the image.
const (
	// PhaseResolving: the registry is asked what the reference means.
	PhaseResolving Phase = "resolving"
	// PhaseWaiting: another process pulls this very image.
	PhaseWaiting Phase = "waiting"
	// PhaseFetching: layers are read; Done and Total count compressed bytes.
	PhaseFetching Phase = "fetching"
	// PhaseWriting: the disk is written; Done and Total count bytes of files.
	PhaseWriting Phase = "writing"
	// PhaseDone: the disk is there.
	PhaseDone Phase = "done"
	// PhaseFailed: Resolve returns an error.
	PhaseFailed Phase = "failed"
)

// Event is one report of progress.
type Event struct {
	Phase Phase
	// Ref is the reference that is resolved.
	Ref string
	// Layer is the digest of the layer that moved, or "".
	Layer string
	// Layers and LayersDone count layers.
	Layers, LayersDone int
	// Done and Total are bytes over all layers; Total is 0 while unknown.
	Done, Total int64
	// Cached is true on PhaseDone when nothing had to be fetched.
	Cached bool
}

// Progress receives events. Calls come from several goroutines but never two at
// a time, and must return quickly: the pull waits for them.
type Progress interface {
	Report(Event)
}
