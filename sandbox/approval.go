package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// trustDir holds the user's approvals: a file for each policy file, named by the digest of its real path.
	trustDir        = "trust"
	approvalVersion = 1
	// maxApproval bounds one of them, in bytes: a grant takes some 200.
	maxApproval = 1 << 20
	// maxApprovals bounds how many there are; each takes a block of the disk.
	maxApprovals = 4096
)

// approval is what the user lets one policy file take from this machine.
type approval struct {
	Version int        `json:"version"`
	File    string     `json:"file"` // real path
	Grants  grants.Set `json:"grants"`
}

// Trust is what the user of a state directory lets policy files take from this machine.
type Trust struct{ home *Home }

// Trust is h's.
func (h *Home) Trust() Trust { return Trust{h} }

// Approved returns what the user approved for the policy file at path; nothing if there is no approval, or none that
// can be read.
func (t Trust) Approved(path string) (grants.Set, error) {
	file, at, err := approvalOf(t.home, path)
	if err != nil {
		return nil, err
	}
	a, err := readApproval(at)
	if err != nil || a.File != file {
		return nil, err
	}
	return a.Grants, nil
}

// readApproval reads one approval; the zero value if there is none, or none that can be read.
func readApproval(at string) (approval, error) {
	f, err := os.Open(at)
	if errors.Is(err, fs.ErrNotExist) {
		return approval{}, nil
	}
	if err != nil {
		return approval{}, err
	}
	defer func() { _ = f.Close() }()
	var a approval
	text, err := io.ReadAll(io.LimitReader(f, maxApproval+1))
	if err != nil {
		return approval{}, err
	}
	if len(text) > maxApproval || json.Unmarshal(text, &a) != nil || a.Version != approvalVersion {
		return approval{}, nil
	}
	return a, nil
}

// Approval is what the user lets a policy file take from this machine.
type Approval struct {
	// File is its real path. The file may be gone.
	File   string     `json:"file"`
	Grants grants.Set `json:"grants"`
}

// List returns what the user approved, in the order of the files' paths.
func (t Trust) List() ([]Approval, error) {
	names, err := os.ReadDir(filepath.Join(t.home.dir, trustDir))
	if err != nil {
		return nil, state.UnlessGone(err)
	}
	var all []Approval
	for _, n := range names {
		if !trustFile.MatchString(n.Name()) || !n.Type().IsRegular() {
			continue
		}
		a, err := readApproval(filepath.Join(t.home.dir, trustDir, n.Name()))
		if err != nil {
			return nil, err
		}
		if _, at, err := approvalOf(t.home, a.File); err != nil || filepath.Base(at) != n.Name() {
			continue // being written, or damaged: it approves nothing
		}
		all = append(all, Approval{a.File, a.Grants})
	}
	slices.SortFunc(all, func(a, b Approval) int { return strings.Compare(a.File, b.File) })
	return all, nil
}

// Approve stores that the policy file at path may take set, in place of what was approved for it before.
func (t Trust) Approve(path string, set grants.Set) error {
	file, at, err := approvalOf(t.home, path)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(approval{approvalVersion, file, set}, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxApproval {
		return fmt.Errorf("%w: %s takes more than can be written down; split it", ErrConfig, path)
	}
	if err := makeDir(filepath.Dir(at), mkdirReal); err != nil {
		return err
	}
	if _, err := os.Lstat(at); err != nil {
		if all, err := os.ReadDir(filepath.Dir(at)); err == nil && len(all) >= maxApprovals {
			return fmt.Errorf("%w: %s holds %d approvals; `msb policy trust --forget FILE` removes one, or remove those of files that are gone", ErrConfig, filepath.Dir(at), len(all))
		}
	}
	return renameio.WriteFile(at, append(text, '\n'), 0o600, renameio.WithStaticPermissions(0o600))
}

// Forget takes back what was approved for the policy file at path, and returns it; nothing if nothing was.
func (t Trust) Forget(path string) (grants.Set, error) {
	set, err := t.Approved(path)
	if err != nil {
		return nil, err
	}
	_, at, err := approvalOf(t.home, path)
	if err != nil {
		return nil, err
	}
	return set, state.UnlessGone(os.Remove(at))
}

// approvalOf returns the real path of a policy file, and the path of its approval. If a link leads to another file later,
// that is another policy.
func approvalOf(h *Home, path string) (file, at string, err error) {
	if file, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	if real, err := filepath.EvalSymlinks(file); err == nil { // else it is gone, and can still be forgotten
		file = real
	}
	sum := sha256.Sum256([]byte(file))
	return file, filepath.Join(h.dir, trustDir, hex.EncodeToString(sum[:])+".json"), nil
}
