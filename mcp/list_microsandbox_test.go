package mcp

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// TestMicrosandboxList, each tool by what it does.
func TestMicrosandboxList(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	p := withList(t, listMicrosandbox, func(o *Options) {
		o.Directories, o.Lifetime = []sandbox.Directory{{Host: shared, Guest: "/shared"}}, time.Hour
	})
	p.says(t, false, "check_installed", nil, `{"installed":true}`)
	p.says(t, false, "sandbox_run", m{"image": "builtin", "command": "echo $A", "env": m{"A": "b"}, "cpus": 2, "memoryMib": 256}, "/bin/sh|-c|echo $A")
	if cfg := p.fake.runs[0]; cfg.CPUs != 2 || cfg.Memory != 256<<20 || cfg.Floor == nil {
		t.Errorf("ran with %d CPUs, %d bytes, floor %v", cfg.CPUs, cfg.Memory, cfg.Floor)
	}
	p.says(t, false, "volume_create", m{"name": "data", "sizeMib": 64}, "volume data of 64 MB")
	p.says(t, true, "volume_create", m{"name": "data"}, "exists already")
	p.says(t, true, "volume_create", m{"name": "big", "sizeMib": 1 << 30}, "give it 16 to 10240")
	p.says(t, true, "volume_create", m{"name": "../x"}, "invalid volume name")
	p.says(t, false, "sandbox_create", m{
		"name": "web", "image": "builtin", "cpus": 1, "memoryMib": 256, "workdir": "/srv", "env": m{"A": "b"}, "hostname": "host", "maxDuration": 60, "idleTimeout": 30,
		"volumes": []m{
			{"type": "named", "source": "data", "guestPath": "/data", "readonly": true}, {"type": "tmpfs", "guestPath": "/scratch", "sizeMib": 8},
			{"type": "bind", "source": shared, "guestPath": "/shared", "readonly": true},
		},
		"patches": []m{
			{"type": "text", "path": "/a", "content": "one\n"}, {"type": "append", "path": "/a", "content": "two\n"}, {"type": "symlink", "path": "/l", "target": "/a"},
			{"type": "text", "path": "/b", "content": "x", "mode": 0o755}, {"type": "text", "path": "/c", "content": "x"}, {"type": "remove", "path": "/c"}, {"type": "mkdir", "path": "/d"},
		},
	}, `"name":"web"`, `"running":`)
	files := p.fake.running["web"].files
	if files["/a"] != "one\ntwo\n" || files["/l"] != "link to /a" || files["mode of /b"] != "-rwxr-xr-x" || files["mode of /a"] != "-rw-r--r--" || files["/c"] != "" {
		t.Errorf("patched: %v", files)
	}
	st, err := p.opts.Home.Inspect("web")
	if err != nil || st.Memory != 256<<20 || st.Lifetime != time.Minute || st.IdleStop != 30*time.Second || len(st.Volumes) != 1 || !st.Volumes[0].ReadOnly || st.Volumes[0].Guest != "/data" {
		t.Errorf("%+v, %v", st, err)
	}
	if env, err := p.opts.Home.Env("web"); err != nil || strings.Join(env, " ") != "A=b" {
		t.Errorf("variables %v, %v", env, err)
	}
	p.says(t, true, "volume_remove", m{"name": "data"}, "remove these first")
	p.says(t, false, "volume_list", nil, `"name":"data","size_mb":64`, `"sandboxes":["web"]`)
	p.says(t, false, "sandbox_list", nil, `"name":"web"`)
	p.says(t, false, "sandbox_inspect", m{"name": "web"}, `"lifetime_s":60`)
	var dir string
	var ran []string
	p.fake.exec = func(_ context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		dir, ran = o.Dir, o.Argv
		_, err := io.WriteString(o.Stdout, "out")
		return sandbox.ExitStatus{}, err
	}
	for _, c := range []struct {
		tool string
		args m
		dir  string
		argv string
	}{
		{"sandbox_exec", m{"command": "ls", "args": []string{"-l", "a b"}, "env": m{"X": "y"}, "timeout": 5}, "/srv", "ls|-l|a b"},
		{"sandbox_exec", m{"command": "ls", "cwd": "/tmp"}, "/tmp", "ls"},
		{"sandbox_shell", m{"command": "cd /; ls | wc", "timeout": 5}, "/srv", "/bin/sh|-c|cd /; ls | wc"},
	} {
		c.args["name"] = "web"
		p.says(t, false, c.tool, c.args, "exit code 0", "untrusted", "out")
		if dir != c.dir || strings.Join(ran, "|") != c.argv {
			t.Errorf("%s ran %v in %s", c.tool, ran, dir)
		}
	}
	p.says(t, false, "sandbox_fs_write", m{"name": "web", "path": "/new/f", "content": "text"}, "1 files written")
	p.says(t, false, "sandbox_fs_read", m{"name": "web", "path": "/new/f"}, "text")
	p.says(t, false, "sandbox_fs_list", m{"name": "web", "path": "/"}, "entries")
	p.says(t, false, "sandbox_fs_mkdir", m{"name": "web", "path": "/e"}, "/e is there")
	p.says(t, false, "sandbox_fs_stat", m{"name": "web", "path": "/new/f"}, "owner")
	p.says(t, false, "sandbox_fs_remove", m{"name": "web", "path": "/new/f"}, "removed")
	p.says(t, true, "sandbox_fs_read", m{"name": "web", "path": "/new/f"}, "/new/f")
	p.says(t, false, "sandbox_metrics", m{"name": "web"}, `"memoryLimitBytes":268435456`, `"cpuPercent":0`)
	p.says(t, false, "sandbox_stop", m{"name": "web", "force": true}, "web was not running") // the fake's runs are not the state directory's
	p.fake.running = map[string]*fakeMachine{}
	p.says(t, true, "sandbox_metrics", m{"name": "web"}, "does not run")
	p.says(t, false, "sandbox_remove", m{"name": "web"}, "web removed")
	p.says(t, false, "volume_remove", m{"name": "data"}, "removed")
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "volumes": []m{{"type": "bind", "source": shared, "guestPath": "/shared"}}}, "can't be bound") // which is shared read-only
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "entrypoint": []string{"sh"}}, "entrypoint")
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "maxDuration": 3601}, "give it 1 to 3600")
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "workdir": "srv"}, "absolute path")
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "patches": []m{{"type": "text", "path": "/a", "mode": 0o4755}}}, "bits of permissions")
	p.says(t, true, "sandbox_create", m{"name": "x", "image": "builtin", "patches": make([]m, 0), "volumes": []m{{"type": "tmpfs", "guestPath": "/t", "sizeMib": 1 << 30}}}, "at most 2048")
}

// TestVolumesAreBounded in number, and in whose they are: agents of another policy file have others.
func TestI15_VolumesAreBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{"volumes"} })
	for i := range maxVolumes {
		p.says(t, false, "volume_create", m{"name": string(rune('a' + i)), "size_mb": 16})
	}
	p.says(t, true, "volume_create", m{"name": "more", "size_mb": 16}, "at most 8 may be")
	floor := policy(t, "")
	floor.Path = "/other.toml"
	other := serve(t, func(o *Options) { o.Home, o.Floor, o.Tools = p.opts.Home, floor, []string{"volumes"} })
	other.says(t, false, "volume_list", nil, `"volumes":[]`)
	other.says(t, true, "volume_remove", m{"name": "a"}, "no such volume")
	other.says(t, false, "volume_create", m{"name": "a", "size_mb": 16})
	p.says(t, false, "volume_remove", m{"name": "a"})
	other.says(t, false, "volume_list", nil, `"name":"a","size_mb":16`)
	p.says(t, true, "sandbox_create", m{"name": "x", "volumes": []string{"a:/data"}}, "no such volume: a")
	p.says(t, false, "sandbox_create", m{"name": "x", "volumes": []string{"b:/data", "c:/more:ro"}})
	if st, err := p.opts.Home.Inspect("x"); err != nil || len(st.Volumes) != 2 || st.Volumes[0].ReadOnly || !st.Volumes[1].ReadOnly {
		t.Errorf("%+v, %v", st, err)
	}
	for _, bad := range []string{"b", "b:/x:rx", "b:x", "b:/x:ro:y"} {
		p.says(t, true, "sandbox_run", m{"command": "true", "volumes": []string{bad}}, "wrong arguments")
	}
	p.says(t, false, "sandbox_run", m{"command": "true", "volumes": []string{"d:/x"}})
	if cfg := p.fake.runs[0]; len(cfg.Volumes) != 1 || !cfg.OperatorVolumes || !strings.HasSuffix(cfg.Volumes[0].Name, ".d") {
		t.Errorf("%+v", cfg.Volumes)
	}
	plain := serve(t, nil)
	plain.says(t, true, "sandbox_run", m{"command": "true", "volumes": []string{"d:/x"}}, "unknown field")
}
