package image

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/internal/owned"
)

// A reference that somebody else chose never brings what only this user may have: not by a pull, and not from what
// the user's own pulls left in the cache.
func TestI15_AnonymousPullsBringNothingPrivate(t *testing.T) {
	reg := newTestRegistry(t)
	files := fixture{layers: [][]byte{layerOf(t, "n", "of this user only")}}
	private := reg.push(t, files, "private/app:v1")
	public := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "of everybody")}}, "public/app:v1")
	// The attacker's repository has the private manifest, and none of its layers.
	stolen := reg.push(t, files, "stolen/app:v1")
	var names []string
	serve := func(w http.ResponseWriter, req *http.Request) {
		_, _, known := req.BasicAuth()
		if known {
			names = append(names, req.URL.Path)
		}
		switch path := req.URL.Path; {
		case !known && (path == "/v2/" || strings.HasPrefix(path, "/v2/private/")):
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasPrefix(path, "/v2/stolen/app/blobs/"):
			w.WriteHeader(http.StatusForbidden)
		default:
			reg.serve(w, req)
		}
	}
	handler := http.HandlerFunc(serve)
	reg.any.Store(&handler)

	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	auth := base64.StdEncoding.EncodeToString([]byte("user:password"))
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host(), auth)
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	s := openStore(t, StoreOptions{dialPolicy: func(dialTarget) error { return nil }})
	refuse := func(ref string, pull Pull) {
		t.Helper()
		if img, err := s.Resolve(t.Context(), ref, Options{Anonymous: true, Pull: pull}); err == nil {
			t.Errorf("%s (%s): %+v", ref, pull, img)
		}
	}
	refuse(private, PullMissing)
	if len(names) != 0 {
		t.Errorf("the user's name was given for %q", names)
	}
	mine := mustResolve(t, s, private, Options{}) // the user's own pull, which is the twin
	if got := debugfs(t, mine.DiskPath, "cat n"); got != "of this user only" || len(names) == 0 {
		t.Errorf("%q, %q", got, names)
	}
	names = nil
	for _, ref := range []string{private, stolen} {
		refuse(ref, PullMissing)
		refuse(ref, PullAlways)
		refuse(ref, PullNever)
	}
	// Another registry gives the manifest to anybody. The user's own pull of it needs none of its layers, and names the
	// private disk.
	open := newTestRegistry(t)
	opened := open.push(t, files, "stolen/app:v1")
	if got := mustResolve(t, s, opened, Options{}); got.DiskPath != mine.DiskPath {
		t.Errorf("%s has a disk of its own: %s", opened, got.DiskPath)
	}
	refuse(opened, PullNever)
	if again := mustResolve(t, s, private, Options{Pull: PullNever}); again.Digest != mine.Digest {
		t.Errorf("the user's own image is gone: %+v", again)
	}
	// What is public comes, whoever asked first; without a second fetch it comes again.
	own := mustResolve(t, s, public, Options{})
	foreign := filepath.Join(filepath.Dir(own.DiskPath), "foreign")
	mustWrite(t, foreign, nil)
	if _, err := s.Resolve(t.Context(), public, Options{Anonymous: true}); !errors.Is(err, owned.ErrForeign) {
		t.Errorf("a disk beside what msb did not make is replaced: %v", err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Error(err)
	}
	mustResolve(t, s, public, Options{Anonymous: true})
	if len(names) == 0 {
		t.Error("the user's own pull was anonymous")
	}
	mustResolve(t, s, public, Options{Anonymous: true, Pull: PullNever})
}

func TestI15_AnonymousPullsStayOnPublicAddresses(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "inside")}}, "app:v1")
	s := openStore(t, StoreOptions{})
	before := reg.gets.Load()
	for _, r := range []string{ref, strings.Replace(ref, "127.0.0.1", "localhost", 1)} {
		if _, err := s.Resolve(t.Context(), r, Options{Anonymous: true}); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want ErrAddress", r, err)
		}
	}
	if got := reg.gets.Load(); got != before {
		t.Errorf("%d requests reached this machine", got-before)
	}
	mustResolve(t, s, ref, Options{}) // the twin
}
