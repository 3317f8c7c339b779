package image

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/renameio/v2"
	"github.com/tailscale/hujson"
)

const (
	dockerConfigEnv  = "DOCKER_CONFIG"
	dockerConfigFile = "config.json"
	// maxDockerConfig bounds docker's configuration, in bytes.
	maxDockerConfig = 4 << 20
)

// StoredLogin says where credentials are.
type StoredLogin struct {
	// File is docker's configuration. Helper is the credential helper that stores the credentials; "" if they are in File,
	// unencrypted.
	File, Helper string
	// Shadowed is Podman's file of credentials, if pulls used it until now: once docker's file exists, Podman's isn't read.
	Shadowed string
}

// StoreLogin keeps credentials as docker does, where its configuration says.
func (s Server) StoreLogin(l Login) (StoredLogin, error) {
	if err := l.Check(); err != nil {
		return StoredLogin{}, err
	}
	c, err := readDockerConfig()
	if err != nil {
		return StoredLogin{}, err
	}
	kept := StoredLogin{File: c.Filename, Helper: c.helper(s.key())}
	if c.text == nil {
		kept.Shadowed = podmanAuth()
	}
	auth := types.AuthConfig{Username: l.Username, Password: l.Password, ServerAddress: s.key()}
	if kept.Helper != "" {
		return kept, helperError(kept.Helper, credentials.NewNativeStore(c, kept.Helper).Store(auth))
	}
	c.AuthConfigs[s.key()] = auth
	return kept, c.Save()
}

// RemoveLogin forgets credentials, and reports whether there were any.
func (s Server) RemoveLogin() (known bool, err error) {
	c, err := readDockerConfig()
	if err != nil {
		return false, err
	}
	keys := []string{s.key()}
	if s.key() == s.Name() { // older tools wrote these
		keys = append(keys, "http://"+s.Name(), "https://"+s.Name())
	}
	for _, key := range keys {
		if helper := c.helper(key); helper != "" {
			store := credentials.NewNativeStore(c, helper)
			have, err := store.Get(key)
			if err == nil && have.Username+have.Password+have.IdentityToken != "" {
				known, err = true, store.Erase(key)
			}
			if err != nil {
				return known, helperError(helper, err)
			}
		}
		if _, ok := c.AuthConfigs[key]; ok {
			known = true
			delete(c.AuthConfigs, key)
		}
	}
	return known, c.Save()
}

// helperError names the program that failed, whose words are bounded.
func helperError(helper string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the credential helper docker-credential-%s: %w", helper, shortError{err})
}

// dockerConfig is docker's configuration. Changes edit its text, so that keys which docker's types don't know are kept.
type dockerConfig struct {
	*configfile.ConfigFile
	text   []byte // nil: there is no file
	before map[string]types.AuthConfig
}

// dockerConfigPath is the file itself where there is a link to it.
func dockerConfigPath() (string, error) {
	dir := os.Getenv(dockerConfigEnv)
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%w; set %s to the directory of docker's configuration", err, dockerConfigEnv)
		}
		dir = filepath.Join(home, ".docker")
	}
	path, err := filepath.Abs(filepath.Join(dir, dockerConfigFile))
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return filepath.EvalSymlinks(path)
}

func readDockerConfig() (*dockerConfig, error) {
	path, err := dockerConfigPath()
	if err != nil {
		return nil, err
	}
	c := &dockerConfig{ConfigFile: configfile.New(path)}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if c.text, err = io.ReadAll(io.LimitReader(f, maxDockerConfig+1)); err != nil {
		return nil, err
	}
	if len(c.text) > maxDockerConfig {
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxDockerConfig>>20)
	}
	if err := c.LoadFromReader(bytes.NewReader(c.text)); err != nil {
		return nil, fmt.Errorf("%s can't be read, and is left as it is: %w; repair it, or set %s to another directory", path, err, dockerConfigEnv)
	}
	if c.AuthConfigs == nil { // "auths": null
		c.AuthConfigs = map[string]types.AuthConfig{}
	}
	c.before = maps.Clone(c.AuthConfigs)
	return c, nil
}

// helper is the credential helper for a registry, "" for none.
func (c *dockerConfig) helper(key string) string {
	if helper, ok := c.CredentialHelpers[key]; ok {
		return helper
	}
	return c.CredentialsStore
}

// Save writes the credentials that changed, the file whole or not at all.
func (c *dockerConfig) Save() error {
	if maps.Equal(c.before, c.AuthConfigs) {
		return nil
	}
	text, err := c.edited()
	if err != nil {
		return fmt.Errorf("%s is left as it is: %w", c.Filename, err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Filename), 0o700); err != nil {
		return err
	}
	if err := replaceFile(c.Filename, text); err != nil {
		return fmt.Errorf("%s can't be written: %w", c.Filename, err)
	}
	c.text, c.before = text, maps.Clone(c.AuthConfigs)
	return nil
}

// replaceFile makes a file again that is its user's alone, whatever the one before was.
func replaceFile(path string, text []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // nothing, once it is in its place
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// edited is the text with the credentials as they are now.
func (c *dockerConfig) edited() ([]byte, error) {
	text := c.text
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	root, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	type step struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"` // a removal passes over it
	}
	var steps []step
	if auths := root.Find("/auths"); auths == nil || auths.Value.Kind() != '{' {
		steps = append(steps, step{"add", "/auths", map[string]any{}})
	}
	at := func(key string) string { return "/auths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }
	for key, auth := range c.AuthConfigs {
		if old, ok := c.before[key]; !ok || old != auth {
			steps = append(steps, step{"add", at(key), written(auth)})
		}
	}
	for key := range c.before {
		if _, ok := c.AuthConfigs[key]; !ok {
			steps = append(steps, step{Op: "remove", Path: at(key)})
		}
	}
	patch, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	if err := root.Patch(patch); err != nil {
		return nil, err
	}
	root.Format()
	return root.Pack(), nil
}

// written is what docker writes of credentials.
func written(auth types.AuthConfig) types.AuthConfig {
	if auth.Username+auth.Password != "" {
		auth.Auth = base64.StdEncoding.EncodeToString([]byte(auth.Username + ":" + auth.Password))
	}
	auth.Username, auth.Password, auth.ServerAddress = "", "", ""
	return auth
}

// podmanAuth is the file that pulls read while docker has none.
func podmanAuth() string {
	paths := []string{os.Getenv("REGISTRY_AUTH_FILE")}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		paths = append(paths, filepath.Join(dir, "containers", "auth.json"))
	}
	home, _ := os.UserHomeDir()
	if dir := cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")); filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "containers", "auth.json"))
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
