package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/guest/assets"
	"github.com/msb-project/msb/policies"
)

// Store opens the image cache of a home, with the image that msb carries inside itself.
func Store(home *Home) (*image.Store, error) { return store(home, "") }

// store is Store, with the built-in image of program if this one has none.
func store(home *Home, program string) (*image.Store, error) {
	return image.Open(home.Images(), image.StoreOptions{Builtin: func() (image.Builtin, error) { return builtin(program) }})
}

func resolve(ctx context.Context, home *Home, cfg *Config, admitted *Admission) (*image.Image, error) {
	store, err := store(home, cfg.Program)
	if err != nil {
		return nil, err
	}
	o := image.Options{Pull: cfg.Pull, Progress: cfg.Progress, Anonymous: cfg.PolicyImage && !admitted.Credentials}
	img, err := store.Resolve(ctx, cfg.Image, o)
	if o.Anonymous && (errors.Is(err, image.ErrUnauthorized) || errors.Is(err, image.ErrAddress)) {
		err = fmt.Errorf("%w; a policy's image is asked for without your credentials and on public addresses: name it on the command line, or run `msb policy trust %s`",
			err, policies.QuoteArgs([]string{cfg.Policy.File}))
	}
	return img, err
}

// builtinPath is where the built-in image's programs are.
const builtinPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func builtin(program string) (image.Builtin, error) {
	part := guestPart(assets.Builtin(), program)
	digest, err := part.Digest()
	if err != nil {
		return image.Builtin{}, err
	}
	return image.Builtin{
		Digest: "sha256:" + digest,
		Config: image.Config{Env: []string{builtinPath}, Cmd: []string{"/bin/sh"}, WorkingDir: "/root"},
		Open:   part.Open,
	}, nil
}

// agentDisk returns the agent's root disk, which is written once for each version, and again if it is damaged.
func agentDisk(home *Home, program string) (string, error) {
	part := guestPart(assets.AgentRoot(), program)
	digest, err := part.Digest()
	if err != nil {
		return "", err
	}
	path := filepath.Join(home.Guest(), "agentd-"+digest[:16]+".ext4")
	err = cachefile.Ensure(path, func(w io.Writer) error {
		r, err := part.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(w, r)
		return errors.Join(err, r.Close())
	})
	if err != nil {
		return "", fmt.Errorf("the agent's disk: %w", err)
	}
	return path, nil
}
