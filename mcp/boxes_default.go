package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// defaultName is the sandbox that is made by itself.
const defaultName = "default"

// createDefault makes the default sandbox. Clients call several tools at once: one of the calls makes it, and the others
// take no place meanwhile.
func (b *boxes) createDefault(ctx context.Context, name string) error {
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := b.own(name, false); !errors.Is(err, sandbox.ErrNoSandbox) {
		return err
	}
	err := b.create(ctx, name, &machineArgs{})
	if again := b.defaultName(); errors.Is(err, sandbox.ErrExists) && again != name { // one of another policy did
		err = b.create(ctx, again, &machineArgs{})
	}
	if errors.Is(err, sandbox.ErrExists) && b.has(b.defaultName()) { // another server made it
		err = nil
	}
	return err
}

// defaultName is "default", or another where somebody else has a sandbox of that name.
func (b *boxes) defaultName() string {
	name, _ := b.byDefault()
	return name
}

// byDefault is defaultName with the sandbox of that name, nil if there is none. One that was made under another name stays
// the default when "default" is free again: it has the files.
func (b *boxes) byDefault() (string, *sandbox.Status) {
	other := defaultName + "-" + b.label[len(b.family):][:6]
	if st, err := b.opts.Home.Inspect(other); err == nil && st.Label == b.label {
		return other, st
	}
	st, err := b.opts.Home.Inspect(defaultName)
	switch {
	case errors.Is(err, sandbox.ErrNoSandbox):
		return defaultName, nil
	case err != nil || st.Label != b.label:
		return other, nil
	}
	return defaultName, st
}

// about gives a result of a call to the default sandbox a first line where that isn't "default". was is what byDefault said
// of it before the call.
func (b *boxes) about(name string, was *sandbox.Status, text string) string {
	if name == defaultName || was == nil && !b.has(name) { // nothing was made
		return text
	}
	line := "sandbox " + name + ", which is the default here"
	if older := b.older(); was == nil && len(older) > 0 {
		line = fmt.Sprintf("sandbox %s is new and empty: %s was %s, and stays as it is; "+getBack, name, strings.Join(older, ", "), madeBefore)
	}
	return line + "\n" + text
}

// older are the default sandboxes of other versions of the floor.
func (b *boxes) older() []string {
	mine, _ := b.mine() // it is only said
	var names []string
	for i := range mine {
		if name := mine[i].Name; mine[i].Label != b.label && (name == defaultName || strings.HasPrefix(name, defaultName+"-")) {
			names = append(names, name)
		}
	}
	return names
}
