package shim

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// kubeletPod is a kubelet's directory of a pod with the Secret "api", as its atomic writer leaves it.
func kubeletPod(t *testing.T) (kubelet, pod string) {
	t.Helper()
	kubelet = t.TempDir()
	pod = filepath.Join(kubelet, "pods", "u1")
	secret := filepath.Join(pod, "volumes/kubernetes.io~secret/api")
	for name, text := range map[string]string{
		"volumes/kubernetes.io~secret/api/..1/token":      "the-value-of-the-secret",
		"volumes/kubernetes.io~csi/vault/mount/key":       "another-value",
		"volumes/kubernetes.io~configmap/settings/colour": "blue",
	} {
		at := filepath.Join(pod, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"..data": "..1", "token": "..data/token", "out": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(secret, link)); err != nil {
			t.Fatal(err)
		}
	}
	return kubelet, pod
}

func secretPolicy(from string) string {
	return "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\nports = [443]\n[secrets.KEY]\nfrom = \"file:" + from + "\"\nin = [\"header:Authorization\"]\nhosts = [\"api.example\"]\n"
}

// podConfig is a pod's configuration with a policy of its own.
func podConfig(t *testing.T, floor, kubelet, policy string, annotations map[string]string) (sandbox.Config, error) {
	t.Helper()
	dir := t.TempDir()
	s := newSettings()
	s.Home, s.Kubelet, s.Floor = dir, kubelet, filepath.Join(dir, "floor.toml")
	if err := errors.Join(os.WriteFile(s.Floor, []byte(floor), 0o600), s.check()); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{annotationPolicy: policy}
	maps.Copy(all, annotations)
	return machineConfig("id1", &specs.Spec{Annotations: all}, s)
}

// TestSecretsOfThePodsOwnVolumes: its policy names them without a grant of the floor's, which still says where they may go.
func TestSecretsOfThePodsOwnVolumes(t *testing.T) {
	t.Parallel()
	kubelet, pod := kubeletPod(t)
	uid := map[string]string{annotationPodUID: "u1"}
	for from, want := range map[string]string{
		"api/token": filepath.Join(pod, "volumes/kubernetes.io~secret/api/token"),
		"vault/key": filepath.Join(pod, "volumes/kubernetes.io~csi/vault/mount/key"),
	} {
		cfg, err := podConfig(t, floorText, kubelet, secretPolicy(from), uid)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		if got := cfg.Policy.Secrets[0].From.Value; got != want {
			t.Errorf("%s is read from %s", from, got)
		}
		if _, err := policies.Tighten(cfg.Floor, cfg.Policy); err != nil { // as the supervisor does
			t.Errorf("under the floor that the supervisor gets: %v", err)
		}
		if got := hiddenVolumes(cfg.Policy, pod); !slices.Equal(got, []string{strings.Split(from, "/")[0]}) {
			t.Errorf("hidden: %q", got)
		}
	}
}

// TestI14_SecretVolumesAreThePodsOwn: no name leads to another file of the node, and no pod reads another's.
func TestI14_SecretVolumesAreThePodsOwn(t *testing.T) {
	t.Parallel()
	kubelet, _ := kubeletPod(t)
	for _, c := range []struct{ floor, from, uid, want string }{
		{floorText, "api/token", "", "none made this one"},
		{floorText, "api/token", "u2", "no Secret's volume api"},
		{floorText, "api/token", "../u1", "none made this one"},
		{floorText, "api/nothing", "u1", "has no key nothing"},
		{floorText, "api/out", "u1", "escapes"},
		{floorText, "settings/colour", "u1", "no Secret's volume settings"},
		{floorText, "api/..data/token", "u1", "file:VOLUME/KEY"},
		{floorText, "api/..1", "u1", "file:VOLUME/KEY"},
		{floorText, "../api/token", "u1", "file:VOLUME/KEY"},
		{floorText, "token", "u1", "file:VOLUME/KEY"},
		{floorText, "../../etc/passwd", "u1", "file:VOLUME/KEY"},
		{floorText, filepath.Join(kubelet, "pods/u1/volumes/kubernetes.io~secret/api/token"), "u1", "floor names no secret"},
		{"version = 1\n[[egress.allow]]\nhosts = [\"other.example\"]\n", "api/token", "u1", "beyond the node's floor"},
	} {
		_, err := podConfig(t, c.floor, kubelet, secretPolicy(c.from), map[string]string{annotationPodUID: c.uid})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q of pod %q: got %v, want %q", c.from, c.uid, err, c.want)
		}
	}
}

// TestI8_SourcesAreNoMounts: what is a secret's source is kept from the guest, by whatever path it is mounted, and nothing else.
func TestI8_SourcesAreNoMounts(t *testing.T) {
	t.Parallel()
	kubelet, dir := kubeletPod(t)
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(kubelet, link); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		source, target string
		token, visible bool
	}{
		{at("volumes/kubernetes.io~secret/api"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/api/token"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/../kubernetes.io~secret/api"), "/a", false, false},
		{filepath.Join(link, "pods/u1/volumes/kubernetes.io~secret/api"), "/a", false, false},
		{at("volume-subpaths/api/c/0"), "/a", false, false},
		{at("volumes/kubernetes.io~secret/apis"), "/a", false, true},
		{at("volume-subpaths/apis/c/0"), "/a", false, true},
		{at("volumes/kubernetes.io~configmap/settings"), "/a", false, true},
		{filepath.Join(kubelet, "pods/u2/volumes/kubernetes.io~secret/api"), "/a", false, true},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath, false, false},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath + "/", false, false},
		{at("volumes/kubernetes.io~projected/kube-api-access"), tokenPath, true, true},
		{"/proc", "/proc", false, true},
	} {
		p := &pod{kubelet: dir, hidden: []string{"api"}, token: c.token}
		spec := &specs.Spec{Mounts: []specs.Mount{{Source: c.source, Destination: c.target}}}
		if got := len(p.visible(spec).Mounts) == 1; got != c.visible || len(spec.Mounts) != 1 {
			t.Errorf("%s at %s: visible %v, want %v", c.source, c.target, got, c.visible)
		}
	}
}
