package audit

import (
	"slices"
	"strings"
)

// Bounds on what one event holds (invariant 11): a guest chooses these strings,
// and a queue of long ones would be a way to fill memory and disk.
const (
	maxPath   = 2048 // bytes of Path
	maxString = 512  // bytes of every other string
	// maxMessage bounds Message: a refused policy's holds the faults of a file, each with its remedy.
	maxMessage = 4096
	maxList    = 64 // entries of Names, Answers, Removed
	maxLabels  = 16 // entries of Labels
)

// cutMark ends what was cut.
const cutMark = "…"

// bounded returns ev within the bounds, and its path without a query.
func bounded(ev Event) Event {
	if i := strings.IndexAny(ev.Path, "?#"); i >= 0 {
		ev.Path = ev.Path[:i]
	}
	ev.Path = cut(ev.Path, maxPath)
	for _, s := range [...]*string{&ev.Sandbox, &ev.Proto, &ev.SNI, &ev.Host, &ev.Method, &ev.Action, &ev.Rule, &ev.Reason, &ev.Class, &ev.Secret, &ev.Place, &ev.Job, &ev.Program, &ev.Verb, &ev.Child} {
		*s = cut(*s, maxString)
	}
	ev.Message = cut(ev.Message, maxMessage)
	ev.Kind = Kind(cut(string(ev.Kind), maxString))
	ev.Names = cutList(ev.Names)
	ev.Labels = cutLabels(ev.Labels)
	if ev.DNS != nil && !ev.DNS.within() {
		d := *ev.DNS
		d.Name, d.Type, d.Outcome, d.Upstream = cut(d.Name, maxString), cut(d.Type, maxString), cut(d.Outcome, maxString), cut(d.Upstream, maxString)
		d.Answers, d.Removed = cutList(d.Answers), cutList(d.Removed)
		ev.DNS = &d
	}
	return ev
}

// within says that nothing of d has to be cut.
func (d *DNSDetail) within() bool {
	for _, s := range [...]string{d.Name, d.Type, d.Outcome, d.Upstream} {
		if len(s) > maxString {
			return false
		}
	}
	for _, list := range [...][]string{d.Answers, d.Removed} {
		if len(list) > maxList || slices.ContainsFunc(list, func(s string) bool { return len(s) > maxString }) {
			return false
		}
	}
	return true
}

// cut returns s with at most about n bytes. What is cut is copied, so that the
// event doesn't hold the whole of a large buffer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + cutMark
}

func cutList(list []string) []string {
	if len(list) > maxList {
		list = list[:maxList:maxList]
	}
	for i, s := range list {
		if len(s) > maxString {
			list = append([]string(nil), list...)
			for ; i < len(list); i++ {
				list[i] = cut(list[i], maxString)
			}
			break
		}
	}
	return list
}
