//go:build containerdtest && kubernetestest

package shim_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

var (
	update = flag.Bool("update", false, "write down the results of TestNodeConformance")
	focus  = flag.String("focus", "", "run those tests of TestNodeConformance alone whose names match this expression")
)

// conformanceFile lists Kubernetes' own tests, each with its result with runc and with msb, and why these differ:
//
//	RUNC MSB NAME | WHY
const conformanceFile = "testdata/nodeconformance.txt"

// unknown is a result that was not recorded yet.
const unknown = "-"

type conformance struct {
	runc, msb string
	name, why string
}

// TestNodeConformance runs tests of Kubernetes' e2e.test, those of a list, in pods of runc and in pods of msb, and compares the results
// with those that are written down.
func TestNodeConformance(t *testing.T) {
	text, err := os.ReadFile(conformanceFile)
	if err != nil {
		t.Fatal(err)
	}
	only := regexp.MustCompile(*focus)
	var all, want []conformance
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), " ", 3); len(f) == 3 && f[0] != "#" {
			name, why, _ := strings.Cut(f[2], " | ")
			all = append(all, conformance{f[0], f[1], name, why})
			if only.MatchString(name) {
				want = append(want, all[len(all)-1])
			}
		}
	}
	c := startCluster(t)
	c.floor(t, podsReached)
	settings, err := os.ReadFile(c.file("shim.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "shim.toml", string(settings)+"host_profiles = \"drop\"\n") // most of these pods have RuntimeDefault
	c.importE2EImages(t)
	c.feed(t, everyPodMSB, "apply", "-f", "-")
	c.becomes(t, "msb")
	msb := c.e2e(t, "msb", want)
	c.kubectl(t, "delete", "mutatingadmissionpolicybinding", "msb")
	c.becomes(t, "")
	runc := c.e2e(t, "runc", want)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	for _, w := range all {
		if !slices.Contains(want, w) {
			runc[w.name], msb[w.name] = w.runc, w.msb
		} else if w.runc != unknown && runc[w.name] != w.runc || w.msb != unknown && msb[w.name] != w.msb {
			t.Errorf("%s: runc %s, msb %s; want %s, %s", w.name, runc[w.name], msb[w.name], w.runc, w.msb)
		}
		if runc[w.name] != msb[w.name] && w.why == "" && slices.Contains(want, w) {
			t.Errorf("%s: no reason for the difference", w.name)
		}
		fmt.Fprintf(&out, "%s %s %s", runc[w.name], msb[w.name], w.name)
		if w.why != "" {
			out.WriteString(" | " + w.why)
		}
		out.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(conformanceFile, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// podsReached lets pods connect to each other, as they may with runc.
const podsReached = `
[[egress.allow]]
name = "pods"
cidrs = ["10.213.7.0/24"]
ports = ["1-65535"]
protocol = "tcp"
private = true
`

// everyPodMSB gives each new pod the runtime class, with its overhead, which the API server looks at before policies are applied.
const everyPodMSB = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: msb}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: none, expression: "!has(object.spec.runtimeClassName)"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: |
          [JSONPatch{op: "add", path: "/spec/runtimeClassName", value: "msb"},
           JSONPatch{op: "add", path: "/spec/overhead", value: {"memory": "256Mi", "cpu": "50m"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: msb}
spec: {policyName: msb}
`

// becomes waits until new pods have a runtime class.
func (c *cluster) becomes(t *testing.T, class string) {
	t.Helper()
	c.eventually(t, "class "+class+".", "run", "probe", "--image", testImage, "--dry-run=server", "-o", "jsonpath=class {.spec.runtimeClassName}.")
}

// e2e runs the tests of the list, and returns their results by name.
func (c *cluster) e2e(t *testing.T, runtime string, list []conformance) map[string]string {
	t.Helper()
	report := c.file(runtime + ".json")
	args := []string{
		filepath.Join(os.Getenv(envKubernetes), "e2e.test"), "--kubeconfig=" + c.pki.file("admin.conf"), "--provider=skeleton", "--kubectl-path=" + filepath.Join(os.Getenv(envKubernetes), "kubectl"),
		"--disable-log-dump", "--ginkgo.v", "--ginkgo.json-report=" + report, "--ginkgo.no-color", "--ginkgo.seed=1", "--ginkgo.timeout=3h",
	}
	for _, l := range list {
		args = append(args, "--ginkgo.focus="+regexp.QuoteMeta("] "+l.name))
	}
	log, err := os.Create(c.file("e2e-" + runtime + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := inside(c.netns, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.dir
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(report)
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%v; e2e.test says:\n%s", err, text[max(0, len(text)-8<<10):])
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			RunTime                    int64
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			_, name, _ := strings.Cut(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "), "] ")
			at := slices.IndexFunc(list, func(l conformance) bool { return strings.HasPrefix(name, l.name) })
			if at < 0 || r.LeafNodeType != "It" || r.State == "skipped" && r.RunTime == 0 {
				continue
			}
			results[list[at].name] = r.State
			t.Logf("%s: %s (%d s) %s %.1000s", runtime, r.State, r.RunTime/1e9, list[at].name, r.Failure.Message)
		}
	}
	return results
}

// importE2EImages makes the images that the tests name: of Debian's busybox, and of Kubernetes' agnhost.
func (c *cluster) importE2EImages(t *testing.T) {
	t.Helper()
	busybox, err := busyboxLayer()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(os.Getenv(envKubernetes), "agnhost"))
	if err != nil {
		t.Fatal(err)
	}
	const curl = "#!/bin/sh\nexec wget -q -O - \"$@\"\n" // which Alpine's image has
	var agnhost bytes.Buffer
	w := tar.NewWriter(&agnhost)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "agnhost", Mode: 0o755, Size: int64(len(program))}), write(w, program),
		w.WriteHeader(&tar.Header{Name: "bin/curl", Mode: 0o755, Size: int64(len(curl))}), write(w, []byte(curl)),
		w.WriteHeader(&tar.Header{Name: "agnhost-2", Typeflag: tar.TypeSymlink, Linkname: "agnhost"}),
		w.WriteHeader(&tar.Header{Name: "uploads/", Typeflag: tar.TypeDir, Mode: 0o755}), w.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	const of = "registry.k8s.io/e2e-test-images/"
	path := []string{"PATH=/bin:/"}
	for name, i := range map[string]struct {
		config v1.Config
		layers [][]byte
	}{
		of + "busybox:1.37.0-1":        {v1.Config{Cmd: []string{"sh"}, Env: path}, [][]byte{busybox}},
		of + "nonroot:1.5":             {v1.Config{Cmd: []string{"sh"}, Env: path, User: "1234"}, [][]byte{busybox}},
		of + "agnhost:2.63.0":          {v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: path}, [][]byte{busybox, agnhost.Bytes()}},
		of + "nginx:1.27-0":            {v1.Config{Entrypoint: []string{"/agnhost", "test-webserver"}, Env: path}, [][]byte{busybox, agnhost.Bytes()}},
		"registry.k8s.io/pause:3.10.2": {v1.Config{Entrypoint: []string{"/agnhost", "pause"}, Env: path}, [][]byte{busybox, agnhost.Bytes()}},
	} {
		dir := c.file("e2e-image")
		err := writeImage(dir, dir+".tar", name, i.config, i.layers...)
		if err != nil {
			t.Fatal(err)
		}
		c.must(t, "-n", "k8s.io", "images", "import", "--local", dir+".tar")
		if err := errors.Join(os.RemoveAll(dir), os.Remove(dir+".tar")); err != nil {
			t.Fatal(err)
		}
	}
}

func write(w *tar.Writer, b []byte) error {
	_, err := w.Write(b)
	return err
}
