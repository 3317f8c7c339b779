package mcp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

const childFloor = "[egress]\ndefault = \"deny\"\n[[egress.allow]]\nhosts = [\"a.example\", \"b.example\"]\n[agent]\ntools = [\"children\", \"manage\"]\nsandboxes = 2\n[agent.children]\ncount = 2\ntotal = 4\ncpus = 4\nlifetime = \"5m\"\n"

// TestI15_AgentsChildrenKeepToTheBudget: they are made within the budget, used as any sandbox, and go with their parent.
func TestI15_AgentsChildrenKeepToTheBudget(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, childFloor) })
	p.says(t, true, "child_spawn", nil, "no such sandbox")
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.says(t, false, "sandbox_create", m{"name": "second"})
	p.says(t, true, "sandbox_create", m{"name": "third"}, "too many sandboxes")
	p.says(t, false, "child_spawn", m{"name": "kid", "cpus": 1, "memory_mb": 256, "allow": []string{"a.example:443"}}, "child kid of sandbox default runs, for at most 5m0s", `"name":"kid"`)
	st, err := p.opts.Home.Inspect("kid")
	if err != nil || st.Parent != "default" || st.Label != p.label || st.CPUs != 1 || st.Memory != 256<<20 || st.Lifetime != 5*time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
	reaches := func(host string) bool {
		pol, err := p.opts.Home.Policy("kid")
		if err != nil {
			t.Fatal(err)
		}
		a, err := sandbox.Explain(pol, host+":443", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return !a.Denied()
	}
	if !reaches("a.example") || reaches("b.example") {
		t.Errorf("the child reaches a.example %v, b.example %v", reaches("a.example"), reaches("b.example"))
	}
	p.says(t, false, "sandbox_exec", m{"sandbox": "kid", "command": "id"}, "exit code 0")
	p.says(t, true, "sandbox_reset", m{"sandbox": "kid"}, "is a child") // its stop would remove it
	own := ownSnapshots{p.boxes}
	if _, err := own.takeSnapshot(t.Context(), "kid", "saved"); err != nil {
		t.Error(err)
	}
	if _, err := own.restore(t.Context(), "saved", "kid"); err == nil || !strings.Contains(err.Error(), "is a child") {
		t.Errorf("a child's snapshot: %v", err)
	}
	for _, bad := range []m{{"name": "../x"}, {"cpus": 3}, {"memory_mb": 4096}, {"image": "alpine"}, {"policy": "version = 1\n[secrets.K]\n"}, {"policy": "version = 1\n[agent]\n"}, {"name": "second"}, {"sandbox": "other"}} {
		p.says(t, true, "child_spawn", bad)
	}
	p.says(t, true, "child_spawn", m{"sandbox": "kid"}, "1 deep at most")
	p.says(t, false, "child_spawn", nil, "child default-")
	p.says(t, true, "child_spawn", nil, "at most 2 may be at once")
	p.says(t, false, "child_list", nil, `"name":"kid"`, `"parent":"default"`, `"made":2`, `"total":4`)
	p.says(t, false, "child_list", m{"sandbox": "second"}, `"children":[]`)
	p.says(t, true, "child_destroy", m{"name": "second"}, "is no child")
	p.says(t, false, "child_destroy", m{"name": "kid"}, "kid removed")
	p.says(t, false, "child_spawn", nil, "child default-")
	p.says(t, false, "sandbox_stop", m{"sandbox": "default", "remove": true}, "default removed")
	if mine, err := p.mine(); err != nil || len(mine) != 1 || mine[0].Name != "second" {
		t.Errorf("left: %+v, %v", mine, err)
	}
	other := serve(t, func(o *Options) {
		o.Home, o.Floor = p.opts.Home, policy(t, strings.Replace(childFloor, "count = 2", "count = 1", 1))
	})
	other.says(t, true, "child_spawn", m{"sandbox": "second"}, "another budget")
	none := serve(t, func(o *Options) { o.Tools = []string{"children"} })
	none.says(t, false, "sandbox_exec", m{"command": "true"})
	none.says(t, true, "child_spawn", nil, "no budget for children")
}

// TestI15_ChildrenAskUnderTheirParentsPolicy: what a call asks for a child is judged by the parent's policy, and not by the
// operator's, which has more. The twin is what the parent has.
func TestI15_ChildrenAskUnderTheirParentsPolicy(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, childFloor) })
	p.says(t, false, "sandbox_create", m{"name": "narrow", "allow": []string{"a.example:443"}})
	for host, refused := range map[string]bool{"a.example": false, "b.example": true} {
		for key, ask := range map[string]any{"allow": []string{host + ":443"}, "policy": "version = 1\n[[egress.allow]]\nhosts = [\"" + host + "\"]\n"} {
			p.says(t, false, "child_spawn", m{"sandbox": "narrow", "name": "kid", key: ask})
			pol, err := p.opts.Home.Policy("kid")
			if err != nil {
				t.Fatal(err)
			}
			if a, err := sandbox.Explain(pol, host+":443", "", ""); err != nil || a.Denied() != refused {
				t.Errorf("%s: a child reaches %s: %v, %v", key, host, !a.Denied(), err)
			}
			p.says(t, false, "child_destroy", m{"name": "kid"})
		}
	}
}

// TestBirdChildren under the list's names.
func TestBirdChildren(t *testing.T) {
	t.Parallel()
	p := withList(t, listBird, func(o *Options) {
		o.Floor = policy(t, strings.Replace(childFloor, "[\"children\", \"manage\"]", "[\"bird\"]", 1))
	})
	p.says(t, false, "exec", m{"command": "true"})
	p.says(t, false, "spawn", m{"name": "kid", "cpus": 1, "memory": "256M"}, "child kid of sandbox default runs")
	p.says(t, false, "children", nil, `"name":"kid"`, `"memory_mb":256`)
	p.speaks(t, p.says(t, true, "spawn", m{"memory": "much"}, "512M or 1G"))
	p.speaks(t, p.says(t, true, "spawn", m{"parent": "none"}, "no such sandbox"))
	p.speaks(t, p.says(t, true, "destroy_child", m{"name": "default"}, "is no child"))
	p.says(t, false, "destroy_child", m{"name": "kid"}, "kid removed")
}

// TestI17_ChildrenWithoutTheirRootCount as sandboxes: nothing else bounds those that a removal has left. The twin removes
// their parent by the tool, which leaves none.
func TestI17_ChildrenWithoutTheirRootCount(t *testing.T) {
	t.Parallel()
	for _, tool := range []bool{false, true} {
		p := serve(t, func(o *Options) { o.Floor = policy(t, childFloor) })
		p.says(t, false, "sandbox_create", m{"name": "top"})
		for _, kid := range []string{"kid1", "kid2"} {
			p.says(t, false, "child_spawn", m{"sandbox": "top", "name": kid})
		}
		if n, err := p.counted(); err != nil || len(n) != 1 {
			t.Errorf("%d count, %v", len(n), err)
		}
		if tool {
			p.says(t, false, "sandbox_stop", m{"sandbox": "top", "remove": true}, "top removed")
		} else if err := p.opts.Home.Remove(t.Context(), "top"); err != nil {
			t.Fatal(err)
		}
		if n, err := p.mine(); err != nil || (len(n) == 0) != tool {
			t.Errorf("left: %+v, %v", n, err)
		}
		if tool {
			p.says(t, false, "sandbox_create", m{"name": "next"})
			continue
		}
		p.says(t, true, "sandbox_create", m{"name": "next"}, "too many sandboxes")
		p.says(t, false, "sandbox_stop", m{"sandbox": "kid1", "remove": true}, "kid1 removed")
		p.says(t, false, "sandbox_create", m{"name": "next"})
	}
}

// TestI15_ChildrenThatDoNotStartAreRemoved, and take no place in the budget. The twin starts.
func TestI15_ChildrenThatDoNotStartAreRemoved(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, childFloor) })
	p.says(t, false, "sandbox_create", m{"name": "top"})
	for range 3 { // the budget has 2 at once
		p.fake.startErr = errors.New("no machine starts")
		p.says(t, true, "child_spawn", m{"sandbox": "top", "name": "kid"})
		if have, err := p.opts.Home.Children().List("top"); err != nil || len(have.Children) != 0 {
			t.Fatalf("left: %+v, %v", have, err)
		}
	}
	p.fake.startErr = nil
	p.says(t, false, "child_spawn", m{"sandbox": "top", "name": "kid"}, "child kid of sandbox top runs")
}

// TestI17_ChildrenOfAnOlderMSBCountForTheirParent: an older msb wrote down no root.
func TestI17_ChildrenOfAnOlderMSBCountForTheirParent(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Floor = policy(t, childFloor) })
	p.says(t, false, "sandbox_create", m{"name": "top"})
	p.says(t, false, "child_spawn", m{"sandbox": "top", "name": "kid"})
	file := filepath.Join(p.opts.Home.Dir(), "sandboxes", "kid", "sandbox.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var stored m
	if err := json.Unmarshal(text, &stored); err != nil || stored["root"] != "top" {
		t.Fatalf("%v, %v", stored["root"], err)
	}
	delete(stored, "root")
	delete(stored, "root_created")
	if text, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	counts := func() int {
		t.Helper()
		all, err := p.counted()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := counts(); n != 1 {
		t.Errorf("%d count beside their parent, want it alone", n)
	}
	if err := p.opts.Home.Remove(t.Context(), "top"); err != nil {
		t.Fatal(err)
	}
	if n := counts(); n != 1 {
		t.Errorf("%d count without their parent, want the child", n)
	}
}
