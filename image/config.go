package image

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/msb-project/msb/internal/lazyregexp"
)

const (
	// maxConfigStrings bounds the entries of Env, Entrypoint and Cmd each; Linux
	// passes at most 2 MiB of both to a process.
	maxConfigStrings = 4096
	// maxConfigString is Linux's MAX_ARG_STRLEN, the longest argument or variable. Bytes.
	maxConfigString = 128 << 10
	// maxGuestPath is Linux's PATH_MAX. Bytes.
	maxGuestPath = 4096
)

var (
	userPattern   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,254}$`)
	signalPattern = lazyregexp.New(`^(SIG[A-Z][A-Z0-9+-]{0,15}|[1-9]|[1-5][0-9]|6[0-4])$`)
)

// configFile is what an image configuration says, checked.
type configFile struct {
	config   Config
	platform Platform
	diffIDs  []digest
}

func parseConfigFile(raw []byte) (*configFile, error) {
	if err := checkJSON("the configuration", raw); err != nil {
		return nil, err
	}
	var f v1.ConfigFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("%w: it is not an OCI image configuration: %w", ErrConfig, err)
	}
	if f.RootFS.Type != "" && f.RootFS.Type != "layers" {
		return nil, fmt.Errorf("%w: its root file system is of type %q, only \"layers\" is known", ErrConfig, f.RootFS.Type)
	}
	c := Config{
		Env: f.Config.Env, Entrypoint: f.Config.Entrypoint, Cmd: f.Config.Cmd,
		WorkingDir: f.Config.WorkingDir, User: f.Config.User, StopSignal: f.Config.StopSignal,
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	out := &configFile{config: c, platform: Platform{OS: f.OS, Architecture: f.Architecture, Variant: f.Variant}}
	for i, d := range f.RootFS.DiffIDs {
		id, err := parseDigest(d.String())
		if err != nil {
			return nil, fmt.Errorf("%w: diffID %d: %w", ErrConfig, i+1, err)
		}
		out.diffIDs = append(out.diffIDs, id)
	}
	return out, nil
}

// validate checks c and brings WorkingDir into its clean absolute form. Variables
// of every name are kept, LD_PRELOAD too: they reach the workload, which the image
// brings anyway, and never agentd.
func (c *Config) validate() error {
	for _, list := range []struct {
		what  string
		items []string
	}{{"Env", c.Env}, {"Entrypoint", c.Entrypoint}, {"Cmd", c.Cmd}} {
		if err := checkStrings(list.what, list.items); err != nil {
			return err
		}
	}
	for _, e := range c.Env {
		key, _, ok := strings.Cut(e, "=")
		if !ok || key == "" || strings.ContainsAny(key, "\n\r") {
			return fmt.Errorf("%w: Env entry %.80q is not NAME=value", ErrConfig, e)
		}
	}
	if err := c.cleanWorkingDir(); err != nil {
		return err
	}
	if err := checkUser(c.User); err != nil {
		return err
	}
	if c.StopSignal != "" && !signalPattern.MatchString(c.StopSignal) {
		return fmt.Errorf("%w: StopSignal %.80q is no signal name or number", ErrConfig, c.StopSignal)
	}
	return nil
}

func checkStrings(what string, items []string) error {
	if len(items) > maxConfigStrings {
		return fmt.Errorf("%w: %s has %d entries, at most %d are allowed", ErrConfig, what, len(items), maxConfigStrings)
	}
	for _, s := range items {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: %s entry %.80q holds a NUL byte", ErrConfig, what, s)
		}
		if len(s) > maxConfigString {
			return fmt.Errorf("%w: %s entry %.80q… is longer than %d bytes", ErrConfig, what, s, maxConfigString)
		}
	}
	return nil
}

func (c *Config) cleanWorkingDir() error {
	for part := range strings.SplitSeq(c.WorkingDir, "/") {
		if part == ".." {
			return fmt.Errorf("%w: WorkingDir %.80q holds \"..\"", ErrConfig, c.WorkingDir)
		}
	}
	if strings.ContainsAny(c.WorkingDir, "\x00\n\r") || len(c.WorkingDir) >= maxGuestPath {
		return fmt.Errorf("%w: WorkingDir %.80q is no path", ErrConfig, c.WorkingDir)
	}
	c.WorkingDir = path.Clean("/" + c.WorkingDir)
	return nil
}

func checkUser(user string) error {
	if user == "" {
		return nil
	}
	name, group, hasGroup := strings.Cut(user, ":")
	if !userPattern.MatchString(name) || (hasGroup && !userPattern.MatchString(group)) {
		return fmt.Errorf("%w: User %.80q is not user[:group]", ErrConfig, user)
	}
	return nil
}
