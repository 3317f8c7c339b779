package mcp

import (
	"fmt"
	"slices"
	"strings"
)

// AllTools names every toolset.
const AllTools = "all"

// Toolsets are the names of the toolsets that a server has on request, since each tool costs every conversation its
// description. The tools of jobs and network are always there.
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
