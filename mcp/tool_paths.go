package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/msb-project/msb/agentd/agentclient"
)

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
