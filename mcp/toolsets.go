package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

// AllTools names every toolset.
const AllTools = "all"

// Toolsets are the names of tools that a server has on request: each tool costs every conversation its description. The
// tools of jobs and network are there by themselves.
func Toolsets() []string {
	return []string{"files", "images", "jobs", "manage", "metrics", "network", "volumes", "snapshots", "ports", "git", "sync", "children"}
}

func checkToolsets(names []string) error {
	for _, n := range names {
		if n != AllTools && !slices.Contains(Toolsets(), n) && !slices.Contains(Lists(), n) {
			return fmt.Errorf("toolset %q: it is none of %s, %s, and none of the lists %s", n, strings.Join(Toolsets(), ", "), AllTools, strings.Join(Lists(), ", "))
		}
	}
	return checkAlone(names)
}

// moreTools are the tools of the toolsets that the operator asked for.
func (s *server) moreTools() []toolSpec {
	sets := map[string][]toolSpec{
		"files": {
			{
				name: "fs_stat", title: "Look at a file", idempotent: true, hint: "file size mode owner modified exists", call: s.files.fsStat,
				description: "Type, mode, size, owner and time of a file of a sandbox.", properties: propSandbox + "," + propPath, required: []string{"path"},
			},
			{
				name: "fs_mkdir", title: "Make a directory", idempotent: true, hint: "mkdir new directory", call: s.files.fsMkdir,
				description: "Make a directory in a sandbox, and those above it.", properties: propSandbox + "," + propPath, required: []string{"path"},
			},
			{
				name: "fs_rename", title: "Rename a file", destructive: true, hint: "mv move rename file directory", call: s.files.fsRename,
				description: "Rename a file or directory in a sandbox; a file of the new name is replaced.",
				properties:  propSandbox + "," + propPath + `,"to":{"type":"string","description":"new absolute path"}`, required: []string{"path", "to"},
			},
			{
				name: "fs_remove", title: "Remove a file", destructive: true, hint: "rm delete file directory", call: s.files.fsRemove,
				description: "Remove a file, or an empty directory; with recursive: true a directory with all that it holds.",
				properties:  propSandbox + "," + propPath + `,"recursive":{"type":"boolean"}`, required: []string{"path"},
			},
			{
				name: "fs_append", title: "Append to a file", destructive: true, hint: "add to the end of a file", call: s.files.fsAppend,
				description: "Write behind the end of a file of a sandbox; one that is missing is made.",
				properties:  propSandbox + "," + propPath + `,"content":{"type":"string"},"base64":{"type":"boolean","description":"content is base64"}`, required: []string{"path", "content"},
			},
			{
				name: "fs_search", title: "Search files", idempotent: true, hint: "grep find text in files, file names", call: s.fsSearch,
				description: "Lines that hold a text in the files below a directory, or the files whose names fit a pattern. Needs grep or find in the image.",
				properties:  propSandbox + "," + propPath + `,"text":{"type":"string","description":"exact text"},"name":{"type":"string","description":"shell pattern, e.g. *.py; with text: only in these"}`, required: []string{"path"},
			},
			{
				name: "fs_upload", title: "Copy from this machine", destructive: true, idempotent: true, hint: "copy host file directory into sandbox", call: s.files.fsUpload,
				description: "Copy a file or directory of the operator's machine into a sandbox. Only from the directories that the operator shares: sandbox_list shows them.",
				properties:  propSandbox + `,"from":{"type":"string","description":"absolute path on the operator's machine"},"to":{"type":"string","description":"directory of the sandbox, or the new name in one"}`, required: []string{"from", "to"},
			},
			{
				name: "fs_download", title: "Copy to this machine", destructive: true, idempotent: true, hint: "copy sandbox file directory to host", call: s.files.fsDownload,
				description: "Copy a file or directory of a sandbox to the operator's machine. Only into directories that the operator shares writable.",
				properties:  propSandbox + `,"from":{"type":"string","description":"absolute path in the sandbox"},"to":{"type":"string","description":"directory of the operator's machine, or the new name in one"}`, required: []string{"from", "to"},
			},
		},
		"images": {{
			name: "image_list", title: "List images", readOnly: true, idempotent: true, hint: "which images are there, python node", call: s.imageList,
			description: "List the images that a sandbox can be made of, as JSON: those in the cache, and those that may be pulled.",
		}},
		"manage": manageTools{s}.all(),
		"metrics": {{
			name: "sandbox_metrics", title: "What a sandbox uses", idempotent: true, hint: "cpu memory disk usage load processes", call: s.sandboxMetrics,
			description: "Memory, disk, processor time and processes of a sandbox, as it says itself, as JSON.", properties: propSandbox,
		}},
		"volumes":   s.volumeTools(),
		"snapshots": s.snapshotTools(),
		"ports":     portTools{s}.all(),
		"git":       gitTools{s}.all(),
		"sync":      syncTools{s}.all(),
		"children":  childTools{s}.all(),
	}
	var all []toolSpec
	for _, name := range Toolsets() {
		if s.hasToolset(name) {
			all = append(all, sets[name]...)
		}
	}
	return all
}

// hasToolset reports whether the operator asked for a toolset.
func (s *server) hasToolset(name string) bool {
	return slices.Contains(s.opts.Tools, name) || slices.Contains(s.opts.Tools, AllTools)
}

type pathArgs struct {
	Sandbox string `json:"sandbox"`
	Path    string `json:"path"`
}

func (t fileTools) fsStat(ctx context.Context, raw json.RawMessage) (string, error) {
	var a pathArgs
	return t.onPath(ctx, raw, &a, &a.Sandbox, func(f files) (string, error) {
		info, err := f.Stat(ctx, a.Path, false)
		if err != nil {
			return "", err
		}
		line := fmt.Sprintf("%s %d bytes, owner %d:%d, modified %s", info.Mode(), info.Size(), info.UID, info.GID, info.ModTime().UTC().Format(time.RFC3339))
		if info.Target != "" {
			line += ", a link\n" + marked("link target", info.Target, outputBudget)
		}
		return line, nil
	}, &a.Path)
}

func (t fileTools) fsMkdir(ctx context.Context, raw json.RawMessage) (string, error) {
	var a pathArgs
	return t.onPath(ctx, raw, &a, &a.Sandbox, func(f files) (string, error) {
		return printed(a.Path) + " is there", f.Mkdir(ctx, a.Path, agentclient.MkdirOptions{Parents: true})
	}, &a.Path)
}

func (t fileTools) fsRename(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		pathArgs
		To string `json:"to"`
	}
	return t.onPath(ctx, raw, &a, &a.Sandbox, func(f files) (string, error) {
		if _, err := f.Stat(ctx, a.Path, false); err != nil { // the error of a rename names the target
			return "", err
		}
		return printed(a.Path) + " is " + printed(a.To) + " now", f.Rename(ctx, a.Path, a.To)
	}, &a.Path, &a.To)
}

func (t fileTools) fsRemove(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		pathArgs
		Recursive bool `json:"recursive"`
	}
	return t.onPath(ctx, raw, &a, &a.Sandbox, func(f files) (string, error) {
		return printed(a.Path) + " removed", f.Remove(ctx, a.Path, a.Recursive)
	}, &a.Path)
}

func (t fileTools) fsAppend(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		pathArgs
		textArgs
	}
	return t.onPath(ctx, raw, &a, &a.Sandbox, func(f files) (string, error) {
		content, err := a.bytes(a.Path)
		if err == nil {
			err = guestFile(a.Path)
		}
		if err != nil {
			return "", err
		}
		info, err := f.WriteFile(ctx, a.Path, bytes.NewReader(content), agentclient.WriteOptions{Append: true})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s has %d bytes now", printed(a.Path), info.Size()), nil
	}, &a.Path)
}

// search prints the lines that hold $3, or the names, of files below $1 whose names fit $2. Finding nothing is no failure.
const search = `[ -e "$1" ] || { echo "there is no $1" >&2; exit 1; }
if [ -n "$3" ]; then find "$1" -type f -name "$2" -exec grep -nF -e "$3" /dev/null {} +; else find "$1" -name "$2"; fi
[ $? -le 1 ]`

func (s *server) fsSearch(ctx context.Context, raw json.RawMessage) (string, error) {
	var a struct {
		pathArgs
		Text string `json:"text"`
		Name string `json:"name"`
	}
	err := decode(raw, &a)
	switch {
	case err != nil:
	case a.Text == "" && a.Name == "":
		err = wrong("give text to look for, name (a pattern such as *.py), or both")
	case strings.Contains(a.Text, "\n"):
		err = wrong("text of several lines; look for one of them")
	default:
		err = guestPath(a.Path)
	}
	if err != nil {
		return "", err
	}
	// A path can't be taken for an option: it begins with a slash.
	text, err := execTools{s}.execOne(ctx, a.Sandbox, &program{Argv: []string{"/bin/sh", "-c", search, "sh", a.Path, cmp.Or(a.Name, "*"), a.Text}})
	if err == nil && !strings.Contains(text, "[untrusted") {
		text += "nothing found\n"
	}
	return text, err
}

func (s *server) imageList(_ context.Context, raw json.RawMessage) (string, error) {
	if err := decode(raw, &struct{}{}); err != nil {
		return "", err
	}
	all, err := s.opts.images()
	if err != nil {
		return "", err
	}
	return asJSON(all)
}

func (s *server) sandboxMetrics(ctx context.Context, raw json.RawMessage) (string, error) {
	var a sandboxArg
	if err := decode(raw, &a); err != nil {
		return "", err
	}
	return s.with(ctx, a.Sandbox, func(m machine) (string, error) {
		st, err := m.Stats(ctx)
		if err != nil {
			return "", err
		}
		return asJSON(map[string]any{
			"memory_mb": st.MemoryTotalBytes >> 20, "memory_free_mb": st.MemoryAvailableBytes >> 20, "disk_mb": st.RootTotalBytes >> 20, "disk_free_mb": st.RootAvailableBytes >> 20,
			"uptime_s": int(st.Uptime.Seconds()), "cpu_busy_s": int(st.CPUBusy.Seconds()), "processes": st.Processes, "oom_kills": st.OOMKills,
		})
	})
}
