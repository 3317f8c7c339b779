//go:build containerdtest && kubernetestest

package shim_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	update = flag.Bool("update", false, "write down the results of TestNodeConformance")
	focus  = flag.String("focus", "", "run those tests of TestNodeConformance alone whose names match this expression")
	full   = flag.Bool("full", false, "TestNodeConformance: every test of node conformance, and not a list of 40")
	procs  = flag.Int("procs", 3, "TestNodeConformance: tests at once with each runtime")
)

// Records of Kubernetes' own tests, each with its result with runc and with msb, and why it isn't passed with both:
//
//	RUNC MSB NAME | WHY
//
// A name of the list is the beginning of a test's.
const (
	listOfForty = "testdata/nodeconformance.txt"
	listOfAll   = "testdata/nodeconformance-full.txt"
)

// notRun is the result of a test that isn't run.
const notRun = "-"

type conformance struct {
	runc, msb string
	name, why string
}

// TestNodeConformance runs tests of Kubernetes' e2e.test in pods of runc and, beside them in the same cluster, in pods of msb, and
// compares the results with those that are written down.
func TestNodeConformance(t *testing.T) {
	file := listOfForty
	if *full {
		file = listOfAll
	}
	record := readRecord(t, file)
	c := startCluster(t)
	c.floor(t, podsReached)
	settings, err := os.ReadFile(c.file("shim.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "shim.toml", string(settings)+"host_profiles = \"drop\"\n") // most of these pods have RuntimeDefault
	c.importE2EImages(t)
	c.pki.issue(t, userMSB, userMSB, "system:masters")
	c.pki.kubeconfig(t, userMSB, server)
	c.usersPodsMSB(t)
	runs := record.runs()
	got := map[string]map[string]string{"runc": {}, "msb": {}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for runtime, user := range map[string]string{"runc": "admin", "msb": userMSB} {
		for i, r := range runs {
			all.Go(func() {
				results, err := c.e2e(t, fmt.Sprintf("%s-%d", runtime, i), user, r)
				if err != nil {
					t.Errorf("%s: %v", runtime, err)
				}
				mu.Lock()
				defer mu.Unlock()
				for name, result := range results {
					if result != notRun || got[runtime][name] == "" {
						got[runtime][name] = result
					}
				}
			})
		}
	}
	all.Wait()
	after := record.with(t, got["runc"], got["msb"])
	if *update {
		after.write(t, file, c.versions(t))
	}
}

// record is what a file says of tests.
type record struct {
	comments []string
	tests    []conformance
}

func readRecord(t *testing.T, file string) *record {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if f := strings.SplitN(line, " ", 3); strings.HasPrefix(line, "#") {
			r.comments = append(r.comments, line)
		} else if len(f) == 3 {
			name, why, _ := strings.Cut(f[2], " | ")
			r.tests = append(r.tests, conformance{f[0], f[1], name, why})
		}
	}
	return r
}

// e2eRun is a run of ginkgo's: the flags that choose its tests, and how many are run at once.
type e2eRun struct {
	flags []string
	procs int
}

// runs are those that make up the record, beside each other. Slow tests wait for most of their time.
func (r *record) runs() []e2eRun {
	only := regexp.MustCompile(*focus)
	if *full {
		of := func(labels string, procs int) e2eRun {
			run := e2eRun{[]string{"--label-filter=NodeConformance && !Disruptive && " + labels}, procs}
			if *focus != "" {
				run.flags = append(run.flags, "--focus="+*focus)
			}
			return run
		}
		return []e2eRun{of("!Slow", *procs), of("Slow", slowAtOnce)}
	}
	var flags []string
	for _, c := range r.tests {
		if only.MatchString(c.name) {
			flags = append(flags, "--focus="+regexp.QuoteMeta("] "+c.name))
		}
	}
	return []e2eRun{{flags, *procs}}
}

// slowAtOnce is how many slow tests are run beside each other: all.
const slowAtOnce = 10

// with is the record with new results. What differs from it fails the test, and so does a test that isn't passed with both runtimes
// if nothing says why.
func (r *record) with(t *testing.T, runc, msb map[string]string) *record {
	t.Helper()
	only := regexp.MustCompile(*focus)
	tests := slices.Clone(r.tests)
	known := func(name string) bool {
		return slices.ContainsFunc(tests, func(c conformance) bool { return c.name == name })
	}
	for name := range runc {
		if *full && !known(name) {
			tests = append(tests, conformance{notRun, notRun, name, ""})
			if !*update {
				t.Errorf("%s: not in %s", name, listOfAll)
			}
		}
	}
	if *full {
		slices.SortStableFunc(tests, func(a, b conformance) int { return strings.Compare(a.name, b.name) })
	}
	out := &record{comments: r.comments}
	for _, c := range tests {
		if !only.MatchString(c.name) {
			out.tests = append(out.tests, c)
			continue
		}
		now := c
		var found bool
		if now.runc, found = resultOf(runc, c.name); !found {
			t.Errorf("%s: e2e.test has no such test", c.name)
			continue
		}
		now.msb, _ = resultOf(msb, c.name)
		if !*update && now != c {
			t.Errorf("%s: runc %s, msb %s; want %s, %s", c.name, now.runc, now.msb, c.runc, c.msb)
		}
		if (now.runc != "passed" || now.msb != "passed") && now.why == "" {
			t.Errorf("%s: runc %s, msb %s, and nothing says why", c.name, now.runc, now.msb)
		}
		if now.runc == "passed" && now.msb == "passed" && *update {
			now.why = ""
		}
		out.tests = append(out.tests, now)
	}
	return out
}

// resultOf finds a test's result: of the list of 40 by the beginning of its name.
func resultOf(results map[string]string, name string) (string, bool) {
	if got, ok := results[name]; ok || *full {
		return got, ok
	}
	for test, got := range results {
		if strings.HasPrefix(test, name) {
			return got, true
		}
	}
	return "", false
}

// summary is the line of a record that says what was run, and how much of it passed.
const summary = "# Kubernetes "

func (r *record) write(t *testing.T, file, versions string) {
	t.Helper()
	count := func(of func(conformance) string) (text string) {
		numbers := map[string]int{}
		for _, c := range r.tests {
			numbers[of(c)]++
		}
		for _, state := range []string{"passed", "failed", "skipped", notRun} {
			if n := numbers[state]; n > 0 {
				text += fmt.Sprintf(", %d %s", n, strings.Replace(state, notRun, "not run", 1))
			}
			delete(numbers, state)
		}
		for state, n := range numbers {
			text += fmt.Sprintf(", %d %s", n, state)
		}
		return strings.TrimPrefix(text, ", ")
	}
	var out strings.Builder
	for _, line := range r.comments {
		if !strings.HasPrefix(line, summary) {
			out.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&out, "%s%s. %d tests; with runc %s; with msb %s.\n", summary, versions, len(r.tests),
		count(func(c conformance) string { return c.runc }), count(func(c conformance) string { return c.msb }))
	for _, c := range r.tests {
		fmt.Fprintf(&out, "%s %s %s", c.runc, c.msb, c.name)
		if c.why != "" {
			out.WriteString(" | " + c.why)
		}
		out.WriteString("\n")
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// versions are those of Kubernetes and of what runs its pods.
func (c *cluster) versions(t *testing.T) string {
	t.Helper()
	node := c.kubectl(t, "get", "node", "node", "-o", "jsonpath={.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}")
	runc, err := exec.Command("runc", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(runc), "\n")
	groups := "1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		groups = "2"
	}
	return strings.ReplaceAll(node, "://", " ") + ", " + strings.Replace(first, "runc version", "runc", 1) + ", control groups of version " + groups
}

// podsReached lets pods reach each other, as they may with runc.
const podsReached = `
[[egress.allow]]
name = "pods"
cidrs = ["10.213.7.0/24"]
ports = ["1-65535"]
protocol = "tcp"
private = true

[[egress.allow]]
name = "pods by UDP"
cidrs = ["10.213.7.0/24"]
ports = ["1-65535"]
protocol = "udp"
private = true
`

// userMSB is who makes the namespaces whose pods get the runtime class msb.
const userMSB = "e2e-msb"

// usersPods label the namespaces that a user makes, and give each new pod in them the runtime class, with its overhead, which the API
// server looks at before policies are applied.
const usersPods = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: namespaces}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]}
  matchConditions: [{name: user, expression: "request.userInfo.username == 'USER'"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/of", value: "msb"}]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: pods}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {of: msb}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
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
metadata: {name: namespaces}
spec: {policyName: namespaces}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: pods}
spec: {policyName: pods}
`

// usersPodsMSB applies these policies, and waits until they hold: in a namespace of the user's, and in no other.
func (c *cluster) usersPodsMSB(t *testing.T) {
	t.Helper()
	c.feed(t, strings.ReplaceAll(usersPods, "USER", userMSB), "apply", "-f", "-")
	as := []string{"--as=" + userMSB, "--as-group=system:masters"}
	c.eventually(t, "msb", append(as, "create", "namespace", "probe", "--dry-run=server", "-o", "jsonpath={.metadata.labels.of}")...)
	for name, of := range map[string]struct {
		as   []string
		want string
	}{"probe-msb": {as, "class msb."}, "probe-runc": {nil, "class ."}} {
		c.kubectl(t, append(of.as, "create", "namespace", name)...)
		c.eventually(t, of.want, "-n", name, "run", "probe", "--image", testImage, "--dry-run=server", "-o", "jsonpath=class {.spec.runtimeClassName}.")
		c.kubectl(t, "delete", "namespace", name, "--wait=false")
	}
}
