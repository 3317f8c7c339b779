package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// spawn makes and starts a child of a sandbox, within the operator's budget.
func (s childTools) spawn(ctx context.Context, parent, name string, a *machineArgs) (string, error) {
	st, err := s.own(parent, false)
	if err != nil {
		return "", err
	}
	if s.opts.Children == nil {
		return "", say("the operator's policy gives no budget for children ([agent.children]): none can be made")
	}
	cs := s.only(st).Children()
	have, err := cs.List(st.Name)
	if err != nil {
		return "", err
	}
	if !reflect.DeepEqual(have.Budget, s.opts.Children) {
		return "", say("sandbox %s was made with another budget for children than the operator's of now; children need one that is made again", have.Root)
	}
	o := sandbox.ChildOptions{Name: name, Image: a.Image, CPUs: a.CPUs, Memory: a.MemoryMB << 20, Pull: image.PullNever, Program: s.opts.Program}
	if o.Policy, err = s.childPolicy(st, a); err != nil {
		return "", err
	}
	for _, ref := range s.opts.Images {
		if image.SameReference(ref, a.Image) {
			o.Pull = image.PullMissing
		}
	}
	child, err := cs.Make(ctx, st.Name, o)
	if errors.Is(err, sandbox.ErrExists) {
		return "", s.taken(name)
	}
	if err != nil {
		return "", s.opts.imageFault(a.Image, err)
	}
	m, made, err := s.use(ctx, child)
	if err != nil { // a child that doesn't start is removed
		return "", errors.Join(err, cs.Remove(context.WithoutCancel(ctx), st.Name, child))
	}
	if err := m.Close(); err != nil {
		return "", err
	}
	text, err := asJSON(row(made, s.label))
	return fmt.Sprintf("child %s of sandbox %s runs, for at most %s: its end removes it with its files\n%s", child, st.Name, made.Lifetime, text), err
}

// childPolicy is the policy that a call asks for, under the parent's; nil for the parent's own.
func (s childTools) childPolicy(parent *sandbox.Status, a *machineArgs) (*policies.Policy, error) {
	if a.Policy == nil && a.Allow == nil {
		return nil, nil
	}
	above, err := s.only(parent).Policy(parent.Name)
	if err != nil {
		return nil, err
	}
	under := s.opts
	under.Floor = above
	return under.policy(a)
}

func (s childTools) listChildren(parent string) (string, error) {
	st, err := s.own(parent, false)
	if err != nil {
		return "", err
	}
	have, err := s.only(st).Children().List(st.Name)
	if err != nil {
		return "", err
	}
	type child struct {
		listed
		Parent string `json:"parent"`
	}
	all := struct {
		Children []child              `json:"children"`
		Made     int                  `json:"made"`
		Budget   *sandbox.ChildBudget `json:"budget"`
	}{[]child{}, have.Made, have.Budget}
	for i := range have.Children {
		all.Children = append(all.Children, child{row(&have.Children[i], s.label), have.Children[i].Parent})
	}
	return asJSON(all)
}

// destroyChild removes a child of any of this server's sandboxes.
func (s childTools) destroyChild(ctx context.Context, name string) (string, error) {
	st, err := s.own(name, true)
	if err != nil {
		return "", err
	}
	if name == "" || st.Parent == "" {
		return "", say("sandbox %s is no child; child_list shows those that are", st.Name)
	}
	return s.stop(ctx, st.Name, true)
}

// childTools are the toolset "children".
type childTools struct{ *server }

func (s childTools) all() []toolSpec {
	type args struct {
		Sandbox string `json:"sandbox"`
		Name    string `json:"name"`
		machineArgs
	}
	const propParent = `"sandbox":{"type":"string","description":"the parent; default: \"default\""}`
	return []toolSpec{
		{
			name: "child_spawn", title: "Make a child sandbox", open: true, hint: "spawn worker helper sandbox for a part of the work", call: adapter(func(ctx context.Context, a *args) (string, error) {
				return s.spawn(ctx, a.Sandbox, a.Name, &a.machineArgs)
			}),
			description: "Make and start a sandbox that belongs to another and may do no more than it, within the operator's budget. It is used as any, by its name, and removed when its time is over.",
			properties: propParent + `,"name":{"type":"string"},"image":{"type":"string","description":"default: the parent's"},"cpus":{"type":"integer"},"memory_mb":{"type":"integer"},` +
				`"allow":{"type":"array","items":{"type":"string"},"description":"destinations; narrows the parent's policy"},"policy":{"type":"string","description":"msb policy file as TOML; same limits"}`,
		},
		{
			name: "child_list", title: "List child sandboxes", readOnly: true, idempotent: true, hint: "children of a sandbox, budget left", call: adapter(func(_ context.Context, a *args) (string, error) { return s.listChildren(a.Sandbox) }),
			description: "List the children of a sandbox, and the budget, as JSON.", properties: propParent,
		},
		{
			name: "child_destroy", title: "Remove a child sandbox", destructive: true, hint: "delete child sandbox", call: adapter(func(ctx context.Context, a *args) (string, error) { return s.destroyChild(ctx, a.Name) }),
			description: "Stop a child and delete it with its files and its own children.", properties: `"name":{"type":"string"}`, required: []string{"name"},
		},
	}
}

// memoryMB reads 512M or 1G; "" is 0.
func memoryMB(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "M"
	}
	size, err := policies.ParseSize(text)
	if err != nil {
		return 0, wrong("memory %q: write 512M or 1G", printed(text))
	}
	return size >> 20, nil
}
