package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// defaultName is the name of the sandbox that the first call makes.
const defaultName = "default"

// createDefault makes the default sandbox. Clients call several tools at once: one call makes it, and the others wait
// without taking a place.
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

// defaultName is "default", or another name if somebody else has a sandbox called so.
func (b *boxes) defaultName() string {
	name, _ := b.byDefault()
	return name
}

// byDefault is defaultName with the sandbox of that name, nil if there is none. A default that was made under another name
// stays the default even when "default" is free again, since it has the files.
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

// about adds a first line to the result of a call to the default sandbox, if that isn't called "default". was is what
// byDefault returned before the call.
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
	mine, _ := b.mine() // the names are only mentioned
	var names []string
	for i := range mine {
		if name := mine[i].Name; mine[i].Label != b.label && (name == defaultName || strings.HasPrefix(name, defaultName+"-")) {
			names = append(names, name)
		}
	}
	return names
}
