package mcp

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// maxSentence bounds an error's text, in bytes: a policy may have many faults.
const maxSentence = 4000

// withoutCommands removes the commands that an error of package sandbox recommends: a model would look for a shell on the
// host to run them. remedy names the tool to use instead.
func withoutCommands(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		clauses := slices.DeleteFunc(strings.Split(line, "; "), func(c string) bool { return strings.Contains(c, "`msb ") })
		lines[i] = strings.Join(clauses, "; ")
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	return strings.ReplaceAll(strings.Join(lines, "\n"), "was started without -i", "was started without stdin: true")
}

// jobRemedies are what the tool job offers.
var jobRemedies = []struct {
	err  error
	next string
}{
	{sandbox.ErrNoJob, "the action list shows the jobs"},
	{sandbox.ErrJobExists, "choose another name, or remove it with the action remove once it has ended"},
	{sandbox.ErrJobRunning, "end it with the action kill first"},
	{sandbox.ErrJobLimit, "remove one that has ended with the action remove"},
	{sandbox.ErrJobInput, "start a job with stdin: true to give it input"},
}

// remedy says what to do if the error itself doesn't.
func remedy(err error) string {
	var advice advised
	if errors.As(err, &advice) {
		return advice.next
	}
	for _, r := range jobRemedies {
		if errors.Is(err, r.err) {
			return r.next
		}
	}
	var grants *sandbox.GrantsError
	switch {
	case errors.As(err, &grants):
		return "tell the operator that what the policy file takes has to be approved again"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled, and its program ended"
	case errors.Is(err, syscall.ENOTDIR): // of a guest's path
		return "a part of the path is a file; give one whose parts are directories"
	case errors.Is(err, sandbox.ErrNotRunning):
		return "start it with sandbox_exec or any other call"
	}
	switch sandbox.KindOf(err) { //nolint:exhaustive // the others' sentences say it
	case sandbox.KindImageUnknown:
		return "leave image out, or take one that sandbox_list shows"
	case sandbox.KindNoBackend, sandbox.KindKVMPermission:
		return "tell the operator to run msb doctor"
	case sandbox.KindNoSpace:
		return "remove sandboxes with sandbox_stop (remove: true), or tell the operator that the disk is full"
	case sandbox.KindGuestMemory:
		return "make a sandbox with a larger memory_mb"
	case sandbox.KindAgent, sandbox.KindGuestPanic:
		return "call again: a sandbox that ended starts again, with its files"
	}
	return ""
}

// imageFault adds the images that can be used to an error about one that isn't in the cache.
func (o *Options) imageFault(name string, err error) error {
	if !errors.Is(err, image.ErrNotCached) {
		return err
	}
	images, listErr := o.images()
	if listErr != nil {
		return err
	}
	return say("image %s is not in the cache, and the operator lets only some be pulled; leave image out, or take one of these: %s",
		printed(name), printedList(slices.Concat(images.Pullable, images.Cached)))
}

// maxImages bounds the images that are named.
const maxImages = 50

// builtinImage is said of the image that is always there.
const builtinImage = "busybox alone: sh and small tools; no bash, Python, Node.js or package manager"

// images are those that a sandbox can be made of.
type images struct {
	Cached   []string `json:"cached"`
	Pullable []string `json:"may_be_pulled"`
	Builtin  string   `json:"builtin"`
}

func (o *Options) images() (images, error) {
	all := images{[]string{sandbox.DefaultImage}, append([]string{}, o.Images...), builtinImage}
	if own := o.Floor.Sandbox.Image; own != "" && !policies.LocalImage(own) && !slices.Contains(all.Pullable, own) {
		all.Pullable = append(all.Pullable, own)
	}
	store, err := sandbox.Store(o.Home)
	if err != nil {
		return all, err
	}
	cached, err := store.List()
	if err != nil {
		return all, err
	}
	for i := range cached {
		if cached[i].Ref != "" && cached[i].Ref != sandbox.DefaultImage && len(all.Cached) < maxImages && !policies.LocalImage(cached[i].Ref) { // which names files of the host, and can't be used
			all.Cached = append(all.Cached, cached[i].Ref)
		}
	}
	return all, nil
}

func printedList(names []string) string {
	if len(names) == 0 {
		return "there are none"
	}
	shown := make([]string, 0, maxImages)
	for _, n := range names[:min(len(names), maxImages)] {
		shown = append(shown, printed(n))
	}
	return strings.Join(shown, ", ")
}

// toolFailure is a failed call, whose text is its result. It refers to nothing else, since it may be kept for long.
type toolFailure struct {
	text    string
	why     string // for the log
	refused bool   // before anything was done
}

func (f *toolFailure) Error() string { return cmp.Or(f.why, "the program failed") }

// failure is an error as a result.
func failure(err error) *toolFailure {
	refused := errors.Is(err, errArgs) || errors.Is(err, sandbox.ErrName) || errors.Is(err, sandbox.ErrJobName)
	return &toolFailure{text: sentence(err), why: printed(err.Error()), refused: refused}
}
