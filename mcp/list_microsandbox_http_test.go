package mcp

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestMicrosandboxHTTPList, each tool by what it does.
func TestMicrosandboxHTTPList(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	p := withList(t, listMicrosandboxHTTP, func(o *Options) {
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared"}}
		o.Floor = policy(t, "[[ingress.allow]]\ncidrs = [\"127.0.0.0/8\"]\n")
	})
	box := func(name, namespace string, more m) m {
		all := m{"sandbox": name, "namespace": namespace}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	for _, tool := range []string{"sandbox_run_command", "sandbox_stop"} {
		args := box("default", "default", nil)
		if tool != "sandbox_stop" {
			args["command"] = "true"
		}
		p.speaks(t, p.says(t, true, tool, args, "no such sandbox"))
	}
	p.says(t, false, "sandbox_start", box("web", "default", m{"config": m{
		"image": "builtin", "memory": 256, "cpus": 2, "volumes": []string{shared + ":/shared"}, "ports": []string{"0:80"}, "envs": []string{"A=b=c"},
	}}), "sandbox web runs", `"name":"web"`)
	st, err := p.opts.Home.Inspect("web")
	if err != nil || st.Memory != 256<<20 || st.CPUs != 2 || len(st.Ports) != 1 || st.Ports[0].Guest != 80 {
		t.Errorf("%+v, %v", st, err)
	}
	if env, err := p.opts.Home.Env("web"); err != nil || strings.Join(env, " ") != "A=b=c" {
		t.Errorf("variables %v, %v", env, err)
	}
	p.says(t, false, "sandbox_start", box("web", "default", m{"config": m{"cpus": 1}}), "was there already")
	p.says(t, true, "sandbox_start", box("web", "team/../a", nil), "letters, digits")
	p.says(t, true, "sandbox_start", box("", "team", nil), "letters, digits")
	p.says(t, false, "sandbox_start", box("web", "Team_A", nil), "sandbox web runs")
	p.says(t, false, "sandbox_start", box("Web.1", "default", nil), "sandbox Web.1 runs")

	var ran []string
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		ran = o.Argv
		_, err := io.WriteString(o.Stdout, "out")
		return sandbox.ExitStatus{}, err
	}
	p.says(t, false, "sandbox_run_command", box("web", "Team_A", m{"command": "ls", "args": []string{"-l", "a b"}}), "exit code 0", "out")
	if strings.Join(ran, "|") != "ls|-l|a b" {
		t.Errorf("ran %v", ran)
	}
	p.says(t, false, "sandbox_run_code", box("web", "default", m{"code": "1", "language": "python"}), "step 1 of 1 (python): exit code 0")
	p.says(t, false, "sandbox_run_code", box("web", "default", m{"code": "1", "language": "nodejs"}), "exit code 0")
	if ran[0] != "node" {
		t.Errorf("nodejs ran %v", ran)
	}
	p.says(t, true, "sandbox_run_code", box("web", "default", m{"code": "1", "language": "ruby"}), "it is python or nodejs")

	var got struct {
		Sandboxes []map[string]any `json:"sandboxes"`
	}
	figures := func(args m) map[string]map[string]any {
		t.Helper()
		got.Sandboxes = nil
		if err := json.Unmarshal([]byte(p.says(t, false, "sandbox_get_metrics", args)), &got); err != nil {
			t.Fatal(err)
		}
		all := map[string]map[string]any{}
		for _, one := range got.Sandboxes {
			all[one["namespace"].(string)+"/"+one["name"].(string)] = one
		}
		return all
	}
	p.fake.mu.Lock()
	delete(p.fake.running, "web")
	p.fake.mu.Unlock()
	all := figures(m{"namespace": "*"})
	if len(all) != 3 || all["default/web"]["running"] != false || all["default/web"]["cpu_usage"] != nil || all["default/web"]["memory_usage"] != nil {
		t.Errorf("all: %v", all)
	}
	if one := all["Team_A/web"]; one["running"] != true || one["memory_usage"] != 512.0 || one["cpu_usage"] != 0.0 || one["disk_usage"] == nil || len(one) != 6 {
		t.Errorf("one that runs: %v", one)
	}
	for want, args := range map[string]m{"Team_A/web": {"namespace": "Team_A"}, "default/Web.1": {"namespace": "default", "sandbox": "Web.1"}} {
		if all := figures(args); len(all) != 1 || all[want] == nil {
			t.Errorf("%v: %v", args, all)
		}
	}
	if all := figures(m{"namespace": "*", "sandbox": "web"}); len(all) != 2 {
		t.Errorf("of all namespaces: %v", all)
	}
	p.says(t, true, "sandbox_get_metrics", m{"namespace": "default", "sandbox": "none"}, "no such sandbox")
	p.says(t, false, "sandbox_stop", box("web", "Team_A", nil), "removed with its files")
	if all := figures(m{"namespace": "*"}); len(all) != 2 || all["Team_A/web"] != nil {
		t.Errorf("after a stop: %v", all)
	}
	for _, config := range []m{
		{"volumes": []string{"/etc:/x"}}, {"volumes": []string{"x"}}, {"ports": []string{"x"}}, {"ports": []string{"0.0.0.0:8080:80"}}, {"ports": []string{"22:22"}},
		{"envs": []string{"A"}}, {"envs": []string{"A=1", "A=2"}}, {"cpus": 99}, {"memory": 1}, {"image": "microsandbox/python"}, {"image": "/etc"},
	} {
		p.speaks(t, p.says(t, true, "sandbox_start", box("bad", "default", m{"config": config})))
	}
	if _, err := p.opts.Home.Inspect("bad"); err == nil {
		t.Error("a refused sandbox is there")
	}
	plain := withList(t, listMicrosandboxHTTP, nil)
	plain.says(t, true, "sandbox_start", box("a", "default", m{"config": m{"ports": []string{"0:80"}}}), "[[ingress.allow]]")
}

// TestI15_OtherListsHideSandboxesOfOlderFloors: the tools of other servers' lists that show sandboxes leave out those that
// were made under an older version of the floor, which no call can use. The twin is a sandbox of this version.
func TestI15_OtherListsHideSandboxesOfOlderFloors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list, tool string
		args       m
		want       bool
	}{
		{listMicrosandboxHTTP, "sandbox_get_metrics", m{"namespace": "*"}, true},
		{listMicrosandboxHTTP, "sandbox_get_metrics", m{"namespace": plainNamespace}, true},
		{listMicrosandboxHTTP, "sandbox_get_metrics", m{"namespace": "*", "sandbox": "newbox"}, true},
		{listMicrosandboxHTTP, "sandbox_get_metrics", m{"namespace": "*", "sandbox": "oldbox"}, false},
		{listBird, "health", nil, true},
		{listBird, "network_info", nil, true},
	} {
		before := serve(t, nil)
		now := withList(t, c.list, func(o *Options) {
			o.Home, o.Floor = before.opts.Home, policy(t, "[[egress.allow]]\nhosts = [\"pypi.org\"]\n")
			o.Floor.Path = before.opts.Floor.Path
		})
		if before.family != now.family || before.label == now.label {
			t.Fatalf("these are no two versions of a floor: %s, %s", before.label, now.label)
		}
		for name, of := range map[string]*playground{"oldbox": before, "newbox": now} {
			if err := of.create(t.Context(), name, new(machineArgs)); err != nil {
				t.Fatal(err)
			}
		}
		text := now.says(t, false, c.tool, c.args)
		if strings.Contains(text, "oldbox") || strings.Contains(text, "newbox") != c.want {
			t.Errorf("%s %v: %s", c.tool, c.args, text)
		}
	}
}

// TestI15_NamespacesAreApart: none of two is the other's, also where one word is split into both in other ways.
func TestI15_NamespacesAreApart(t *testing.T) {
	t.Parallel()
	var all []httpBox
	for _, namespace := range []string{"default", "a", "a-b", "A", "a.b", "-", "*", "", "a/b"} {
		for _, name := range []string{"web", "b-web", "Web", "web.", "a-web", "web-" + strings.Repeat("x", 58), "WEB", "_", "", "a/web", "."} {
			all = append(all, httpBox{name, namespace})
		}
	}
	word := strings.Repeat("a", 70)
	for i := 8; i < 63; i++ {
		all = append(all, httpBox{word[i:], word[:i]})
	}
	seen := map[string]httpBox{}
	for _, b := range all {
		got, err := b.name()
		if err != nil {
			if httpName.MatchString(b.Sandbox) && httpName.MatchString(b.Namespace) {
				t.Errorf("%+v: %v", b, err)
			}
			continue
		}
		if other, twice := seen[got]; twice || sandbox.CheckName(got) != nil {
			t.Errorf("%+v is %q, as %+v is", b, got, other)
		}
		seen[got] = b
	}
	if len(seen) < 85 {
		t.Errorf("%d names", len(seen))
	}
}
