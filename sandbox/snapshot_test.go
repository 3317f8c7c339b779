package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
	"github.com/msb-project/msb/sandbox/internal/state"
	"github.com/msb-project/msb/secretproxy/ca"
)

// onDisk writes text into the disk of a sandbox, as its guest does.
func onDisk(t *testing.T, h *Home, name, text string) {
	t.Helper()
	f, err := os.OpenFile(namedPath(h, name, state.UpperDisk), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 40<<20)
	must(t, errors.Join(err, f.Close()))
}

func wantOnDisk(t *testing.T, h *Home, name, text string) {
	t.Helper()
	f, err := os.Open(namedPath(h, name, state.UpperDisk))
	must(t, err)
	defer func() { _ = f.Close() }()
	got := make([]byte, len(text))
	if _, err := f.ReadAt(got, 40<<20); err != nil || string(got) != text {
		t.Errorf("the disk of %s has %q (%v), want %q", name, got, err, text)
	}
}

func TestSnapshotsAreRestored(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	onDisk(t, h, "web", "before")
	s, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Labels: map[string]string{"a": "b"}})
	must(t, err)
	if s.Name != "web-1" || s.Sandbox != "web" || s.Parent != "" || s.Running || s.ImageDigest != "sha256:0" || s.Disk != 64<<20 || s.Data < 1<<20 || s.Labels["a"] != "b" {
		t.Errorf("%+v", s)
	}
	onDisk(t, h, "web", "after")
	must(t, h.SetEnv(t.Context(), "web", "SET=after"))
	second, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{})
	must(t, err)
	if second.Name != "web-2" || second.Parent != "web-1" || second.Digest == s.Digest {
		t.Errorf("%+v", second)
	}
	jobs := namedPath(h, "web", state.JobsDir)
	must(t, os.Mkdir(jobs, 0o700))
	must(t, (&state.StoredJob{JobStatus: JobStatus{Name: "a", State: JobExited}}).Create(jobs))
	must(t, h.Snapshots().Restore(t.Context(), "web-1", ""))
	wantOnDisk(t, h, "web", "before")
	if jobs, err := h.Jobs("web"); err != nil || len(jobs) > 0 {
		t.Errorf("jobs of the disk before: %+v, %v", jobs, err)
	}
	if env, err := h.Env("web"); err != nil || !slices.Equal(env, []string{"SET=after"}) {
		t.Errorf("a restore changed the settings: %q, %v", env, err)
	}
	third, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "again"})
	must(t, err)
	if third.Parent != "web-1" || third.Digest != s.Digest {
		t.Errorf("%+v, want the digest of web-1", third)
	}
	if _, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "again"}); !errors.Is(err, ErrSnapshotExists) || KindOf(err) != KindSandbox {
		t.Errorf("a name that is taken: %v", err)
	}
	ranges, err := h.Snapshots().Diff("web-1", "web-2")
	if err != nil || !slices.Equal(ranges, []DiskRange{{Start: 40 << 20, Bytes: 1 << 20}}) {
		t.Errorf("diff: %v, %v", ranges, err)
	}
	all, err := h.Snapshots().List()
	if err != nil || len(all) != 3 || all[0].Name != "again" {
		t.Errorf("%+v, %v", all, err)
	}
	// A name of its own, but for the number: the next number is above it.
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "web-7"})
	must(t, err)
	if next, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{}); err != nil || next.Name != "web-8" {
		t.Errorf("behind web-7: %+v, %v", next, err)
	}
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "web-10"}) // before web-2 in the alphabet
	must(t, err)
	if next, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{}); err != nil || next.Name != "web-11" {
		t.Errorf("behind web-10: %+v, %v", next, err)
	}
	// Other names, and another sandbox of the name.
	must(t, h.Rename(t.Context(), "web", "shop"))
	if err := h.Snapshots().Restore(t.Context(), "web-2", ""); !errors.Is(err, ErrNoSandbox) || !strings.Contains(err.Error(), "msb clone web-2 NEWNAME") {
		t.Errorf("under the old name: %v", err)
	}
	must(t, h.Snapshots().Restore(t.Context(), "web-2", "shop"))
	wantOnDisk(t, h, "shop", "after")
	must(t, aNamed(t, h, "web"))
	if err := h.Snapshots().Restore(t.Context(), "web-2", ""); !errors.Is(err, ErrSnapshotOf) || KindOf(err) != KindSandbox {
		t.Errorf("into another sandbox of the name: %v", err)
	}
	must(t, h.Snapshots().Remove("web-1"))
	must(t, h.Snapshots().Restore(t.Context(), "again", "shop"))
	wantOnDisk(t, h, "shop", "before")
	if _, err := h.Snapshots().Inspect("web-1"); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("one that was removed: %v", err)
	}
}

func TestRunningSandboxesAreNotRestored(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	run, err := lockNamed(h, "web")
	must(t, err)
	l, err := state.ListenControl(run.dir)
	must(t, err)
	if err := h.Snapshots().Restore(t.Context(), "s", ""); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "msb stop web") {
		t.Errorf("%v, want ErrRunning", err)
	}
	must(t, errors.Join(l.Close(), run.lock.Close()))
	// One of another sandbox is never restored: nobody stops this one for it.
	must(t, aNamed(t, h, "other"))
	run, err = lockNamed(h, "other")
	must(t, err)
	l, err = state.ListenControl(run.dir)
	must(t, err)
	if err := h.Snapshots().Restore(t.Context(), "s", "other"); !errors.Is(err, ErrSnapshotOf) || errors.Is(err, ErrRunning) {
		t.Errorf("%v, want ErrSnapshotOf", err)
	}
	must(t, errors.Join(l.Close(), run.lock.Close()))
}

// TestI13_KilledRestoresLeaveOneDisk: whatever a restore that was killed left is no obstacle, and the disk is the old one
// or the new one.
func TestI13_KilledRestoresLeaveOneDisk(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	onDisk(t, h, "web", "first")
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	onDisk(t, h, "web", "later")
	must(t, os.WriteFile(namedPath(h, "web", state.NewUpperDisk), []byte("half"), 0o600))
	wantOnDisk(t, h, "web", "later")
	must(t, h.Snapshots().Restore(t.Context(), "s", ""))
	wantOnDisk(t, h, "web", "first")
	if _, err := os.Lstat(namedPath(h, "web", state.NewUpperDisk)); err == nil {
		t.Error("half a disk is left")
	}
	must(t, h.Remove(t.Context(), "web"))
}

// TestDamagedSnapshotsReplaceNothing has a chunk changed under a restore and a clone.
func TestDamagedSnapshotsReplaceNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	onDisk(t, h, "web", "first")
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	chunks, err := filepath.Glob(filepath.Join(h.Dir(), state.SnapshotsDir, "chunks", "*", "*"))
	must(t, err)
	must(t, os.Chmod(chunks[0], 0o600))
	must(t, os.Truncate(chunks[0], 100))
	if !h.Snapshots().Has("s") || h.Snapshots().Has("none") {
		t.Error("a damaged snapshot is none, or one that was never made is one")
	}
	if err := h.Snapshots().Restore(t.Context(), "s", ""); !errors.Is(err, ErrSnapshotDamaged) {
		t.Errorf("restore: %v", err)
	}
	if err := h.Snapshots().Clone(t.Context(), "s", "other", CloneOptions{}); !errors.Is(err, ErrSnapshotDamaged) {
		t.Errorf("clone: %v", err)
	}
	wantOnDisk(t, h, "web", "first")
	if there(t, namedPath(h, "web", state.NewUpperDisk)) {
		t.Error("the part of a disk that was restored is left")
	}
	if all, err := h.List(); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestClonesHaveTheDisk(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	onDisk(t, h, "web", "first")
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	onDisk(t, h, "web", "later")
	must(t, h.Clone(t.Context(), "web", "one", CloneOptions{}))
	must(t, h.Snapshots().Clone(t.Context(), "s", "two", CloneOptions{}))
	wantOnDisk(t, h, "one", "later")
	wantOnDisk(t, h, "two", "first")
	onDisk(t, h, "one", "other")
	wantOnDisk(t, h, "web", "later")
	for _, to := range []string{"web", "one"} {
		if err := h.Clone(t.Context(), "web", to, CloneOptions{}); !errors.Is(err, ErrExists) {
			t.Errorf("onto %s: %v", to, err)
		}
		if err := h.Snapshots().Clone(t.Context(), "s", to, CloneOptions{}); !errors.Is(err, ErrExists) {
			t.Errorf("a snapshot onto %s: %v", to, err)
		}
	}
	if err := errors.Join(h.Clone(t.Context(), "nosuch", "x", CloneOptions{})); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("%v", err)
	}
	if err := h.Snapshots().Clone(t.Context(), "nosuch", "x", CloneOptions{}); !errors.Is(err, ErrNoSnapshot) {
		t.Errorf("%v", err)
	}
	if err := h.Snapshots().Restore(t.Context(), "s", "two"); !errors.Is(err, ErrSnapshotOf) {
		t.Errorf("into a clone: %v", err)
	}
	// A snapshot of a clone that has not been started yet brings the same disk back, which is another sandbox's.
	st, err := loadStored(h, "two")
	must(t, err)
	const theirs = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	st.ForgetCA = theirs
	must(t, state.WriteJSON(namedPath(h, "two"), state.StoredFile, st))
	_, err = h.Snapshots().Create(t.Context(), "two", SnapshotOptions{Name: "unborn"})
	must(t, err)
	st.NewIdentity, st.ForgetCA = false, "" // as its first start does
	must(t, state.WriteJSON(namedPath(h, "two"), state.StoredFile, st))
	must(t, h.Snapshots().Restore(t.Context(), "unborn", ""))
	if st, err := loadStored(h, "two"); err != nil || !st.NewIdentity || st.ForgetCA != theirs {
		t.Errorf("restored to before its first start it keeps another's identity, or trusts its authority: %+v, %v", st, err)
	}
	needed, err := h.NeededImages()
	if err != nil || len(needed) != 5 { // three sandboxes, two snapshots
		t.Errorf("%v, %v", needed, err)
	}
}

// TestI13_SlowClonesAreNotSwept: a clone whose disk takes longer than what is taken for left over.
func TestI13_SlowClonesAreNotSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	old := time.Now().Add(-time.Hour)
	var temp string
	must(t, makeClone(h, cloneOf(st, "other", ""), "web", func(dir string) error {
		temp = dir
		must(t, errors.Join(os.WriteFile(filepath.Join(dir, state.UpperDisk), nil, 0o600), os.Chtimes(dir, old, old)))
		return sweepNamed(h)
	}))
	if all, err := h.List(); err != nil || len(all) != 2 || all[0].Problem != "" {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, h.Remove(t.Context(), "other"))
	// The twin: one that was killed.
	must(t, os.Mkdir(temp, 0o700))
	must(t, errors.Join(os.WriteFile(filepath.Join(temp, state.LockFile), nil, 0o600), os.WriteFile(filepath.Join(temp, state.UpperDisk), nil, 0o600), os.Chtimes(temp, old, old)))
	must(t, sweepNamed(h))
	if _, err := os.Lstat(temp); err == nil {
		t.Error("what a kill left is still there")
	}
}

// TestClonesGetAnotherPolicy: what the parent's policy was approved to take is not approved for it.
func TestClonesGetAnotherPolicy(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Grants = grants.Set{{}}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	file := filepath.Join(t.TempDir(), "policy.toml")
	must(t, os.WriteFile(file, []byte("version = 1\n[egress]\ndefault = \"public\"\n"), 0o600))
	must(t, h.Clone(t.Context(), "web", "one", CloneOptions{PolicyFile: file}))
	st, err = loadStored(h, "one")
	if err != nil || st.PolicyFile != file || len(st.Grants) > 0 || !strings.Contains(st.Policy, "public") {
		t.Errorf("%+v, %v", st, err)
	}
	if err := h.Clone(t.Context(), "web", "two", CloneOptions{PolicyFile: file + "x"}); !errors.Is(err, ErrPolicyMissing) {
		t.Errorf("%v, want ErrPolicyMissing", err)
	}
	if all, err := h.List(); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestI18_ClonesShareNoIdentity: each field of a sandbox's state is kept by a clone or not. A field that is new has to be
// in one of the lists.
func TestI18_ClonesShareNoIdentity(t *testing.T) {
	t.Parallel()
	kept := []string{
		"Version", "Policy", "PolicyName", "PolicyFile", "Floor", "Between", "Grants", "NoNet", "Containers", "HTTPProxy", "Backend", "Cold", "CPUs", "Memory", "Env", "Directories", "Volumes", "Caches", "Hide", "DirectoryUser",
		"Tmpfs", "ReadOnly", "Restart", "IdleStop", "Lifetime", "Labels", "PolicyPath", "FloorPath", "Disk", "Image", "PolicyImage", "ImageDigest", "ImageConfig", "HideCredentials",
		"OperatorDirectories", "OperatorVolumes", "Credentials",
	}
	own := []string{"Name", "Hostname", "Created", "Placeholders", "NewIdentity", "ForgetCA", "ParentPlaceholders", "Label", "Audit", "AuditLabels", "Pcap", "PcapOptions", "Ports", "AutoRemove", "Renamed", "Ran", "Requests", "Parent", "ParentCreated", "Root", "RootCreated", "Children"}
	parent := &state.Stored{
		Spec: state.Spec{
			Name: "web", Hostname: "by-hand", Audit: "/a", AuditLabels: map[string]string{"pod": "web"}, Pcap: "/p", PcapOptions: PcapOptions{Off: true}, Ports: []Port{{Host: 80, Guest: 8080}}, AutoRemove: true,
			Policy: "p", Env: []string{"A=b"}, Grants: grants.Set{},
		},
		Created: time.Unix(1, 0), Placeholders: map[string]string{"KEY": "placeholder"}, Label: "a program's", Labels: map[string]string{"a": "b"}, Renamed: "x", Ran: time.Hour,
		Parent: "above", ParentCreated: time.Unix(1, 0), Root: "top", RootCreated: time.Unix(1, 0), Children: &policies.ChildBudget{Count: 1},
		Requests: []state.Request{{ID: "k3x7pq2m", State: state.RequestApproved}},
	}
	clone := cloneOf(parent, "other", "certs")
	was, is := reflect.ValueOf(*parent), reflect.ValueOf(*clone)
	for _, f := range reflect.VisibleFields(was.Type()) {
		if f.Anonymous {
			continue
		}
		same := reflect.DeepEqual(was.FieldByIndex(f.Index).Interface(), is.FieldByIndex(f.Index).Interface())
		switch {
		case slices.Contains(kept, f.Name) == slices.Contains(own, f.Name):
			t.Errorf("is %s kept by a clone, or its own?", f.Name)
		case slices.Contains(kept, f.Name) != same:
			t.Errorf("%s was %v and is %v", f.Name, was.FieldByIndex(f.Index), is.FieldByIndex(f.Index))
		}
	}
	if clone.Name != "other" || clone.Hostname != "other" || clone.Placeholders != nil || clone.Ports[0] != (Port{Guest: 8080}) || clone.ForgetCA != "certs" || clone.ParentPlaceholders["placeholder"] != "KEY" {
		t.Errorf("%+v", clone)
	}
	again := cloneOf(clone, "third", "")
	if again.ParentPlaceholders["placeholder"] != "KEY" {
		t.Errorf("a clone of the clone knows %v", again.ParentPlaceholders)
	}
	if clone.Labels["a"] = "c"; parent.Labels["a"] != "b" || parent.Ports[0].Host != 80 {
		t.Error("a change to the clone changed the parent")
	}
}

// TestI18_ClonesGetNoAuthority: the certificate goes along, to be taken out of the trust stores, and the key does not; the
// twin shows that it lies in the parent's directory.
func TestI18_ClonesGetNoAuthority(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	authority, err := ca.New("web")
	must(t, err)
	must(t, authority.Save(namedPath(h, "web", state.CaFile)))
	must(t, os.WriteFile(namedPath(h, "web", state.SSHHostKey), []byte("PRIVATE KEY"), 0o600))
	if b, err := os.ReadFile(namedPath(h, "web", state.CaFile)); err != nil || !strings.Contains(string(b), "PRIVATE KEY") {
		t.Fatalf("the parent has no key: %v", err)
	}
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	must(t, h.Clone(t.Context(), "web", "one", CloneOptions{}))
	must(t, h.Snapshots().Clone(t.Context(), "s", "two", CloneOptions{}))
	for _, dir := range []string{namedPath(h, "one"), namedPath(h, "two"), filepath.Join(h.Dir(), state.SnapshotsDir, "names", "s")} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Name() == state.UpperDisk {
				continue
			}
			if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || strings.Contains(string(b), "PRIVATE KEY") {
				t.Errorf("%s/%s holds a key (%v)", dir, e.Name(), err)
			}
		}
	}
	for _, name := range []string{"one", "two"} {
		st, err := loadStored(h, name)
		if err != nil || st.ForgetCA != string(authority.CertPEM()) {
			t.Errorf("%s forgets %q (%v), want the parent's certificate", name, st.ForgetCA, err)
		}
	}
	// A clone that never ran has not taken its parent's certificate out of the disk yet: its own clones have to.
	second, err := ca.New("one")
	must(t, err)
	must(t, second.Save(namedPath(h, "one", state.CaFile)))
	both := string(authority.CertPEM()) + string(second.CertPEM())
	_, err = h.Snapshots().Create(t.Context(), "one", SnapshotOptions{Name: "of-one"})
	must(t, err)
	must(t, h.Clone(t.Context(), "one", "three", CloneOptions{}))
	must(t, h.Snapshots().Clone(t.Context(), "of-one", "four", CloneOptions{}))
	for _, name := range []string{"three", "four"} {
		if st, err := loadStored(h, name); err != nil || st.ForgetCA != both {
			t.Errorf("%s forgets %q (%v), want the certificates of all above it", name, st.ForgetCA, err)
		}
	}
}

// TestSnapshotsKeepTheirImages: a disk is of no use without the image below it.
func TestSnapshotsKeepTheirImages(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	store, err := Store(h)
	must(t, err)
	img, err := store.Resolve(t.Context(), DefaultImage, image.Options{})
	must(t, err)
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.Image, st.ImageDigest = DefaultImage, img.Digest
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	_, err = h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	must(t, h.Remove(t.Context(), "web"))
	must(t, store.Remove(DefaultImage, img.Digest))
	for _, gone := range []bool{false, true} {
		if gone {
			must(t, h.Snapshots().Remove("s"))
		}
		pruned, err := h.Prune(t.Context(), PruneOptions{DryRun: true})
		if err != nil || len(pruned) > 0 != gone {
			t.Errorf("removed %v: %v, %v", gone, pruned, err)
		}
	}
}

// TestI12_SnapshotsAreNamedOrRefused: names that only look numbered don't count when the next number is chosen.
func TestI12_SnapshotsAreNamedOrRefused(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	long := strings.Repeat("a", state.MaxNameLen)
	must(t, aNamed(t, h, "web"))
	must(t, aNamed(t, h, long))
	create := func(sandbox, name string) (string, error) {
		s, err := h.Snapshots().Create(t.Context(), sandbox, SnapshotOptions{Name: name})
		if err != nil {
			return "", err
		}
		return s.Name, nil
	}
	for _, c := range []struct {
		sandbox, name, want string
		err                 error
	}{
		{"web", "web-9999999999", "web-9999999999", nil},
		{"web", "web-x", "web-x", nil},
		{"web", "", "web-1", nil},
		{"web", "../x", "", ErrSnapshotName},
		{long, "", "", ErrSnapshotName},
	} {
		if got, err := create(c.sandbox, c.name); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q of %s: %q, %v; want %q, %v", c.name, c.sandbox, got, err, c.want, c.err)
		}
	}
	must(t, os.WriteFile(namedPath(h, "web", state.OriginFile), []byte("{"), 0o600))
	if _, err := create("web", ""); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), state.OriginFile) {
		t.Errorf("with a damaged origin: %v", err)
	}
	work, err := filepath.Glob(filepath.Join(h.Dir(), state.SnapshotsDir, "tmp", "*"))
	if err != nil || len(work) > 0 {
		t.Errorf("%v is left, %v", work, err)
	}
}

// TestClonesOfSnapshotsTellWhereTheyStarted, and take another policy or none at all.
func TestClonesOfSnapshotsTellWhereTheyStarted(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{Name: "s"})
	must(t, err)
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := h.Snapshots().Clone(t.Context(), "s", "one", CloneOptions{PolicyFile: file}); !errors.Is(err, ErrPolicyMissing) || there(t, namedPath(h, "one")) {
		t.Errorf("%v, want ErrPolicyMissing and no sandbox", err)
	}
	must(t, os.WriteFile(file, []byte("version = 1\n[egress]\ndefault = \"public\"\n"), 0o600))
	must(t, h.Snapshots().Clone(t.Context(), "s", "one", CloneOptions{PolicyFile: file, Label: "mine"}))
	if st, err := loadStored(h, "one"); err != nil || st.PolicyFile != file || st.Label != "mine" || !strings.Contains(st.Policy, "public") {
		t.Errorf("%+v, %v", st, err)
	}
	if again, err := h.Snapshots().Create(t.Context(), "one", SnapshotOptions{}); err != nil || again.Parent != "s" {
		t.Errorf("%+v, %v; want s as its parent", again, err)
	}
}
