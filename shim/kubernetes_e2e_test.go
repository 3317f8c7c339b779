//go:build containerdtest && kubernetestest

package shim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// spec is what ginkgo reports of a test.
type spec struct {
	ContainerHierarchyTexts    []string
	LeafNodeType, LeafNodeText string
	State                      string
	RunTime                    int64
	Failure                    struct{ Message string }
	CapturedGinkgoWriterOutput string
}

// e2e runs tests of e2e.test with ginkgo's runner, some at once, as a user of the cluster. It returns the results by the tests' names,
// of those of node conformance that were not run, too.
func (c *cluster) e2e(t *testing.T, runtime, user string, run e2eRun) (map[string]string, error) {
	program := func(name string) string { return filepath.Join(os.Getenv(envKubernetes), name) }
	report := runtime + ".json"
	args := append([]string{program("ginkgo"), "--procs=" + strconv.Itoa(run.procs), "--no-color", "--seed=1", "--timeout=3h", "--silence-skips", "--output-dir=" + c.dir, "--json-report=" + report}, run.flags...)
	args = append(args, program("e2e.test"), "--", "--kubeconfig="+c.pki.file(user+".conf"), "--provider=skeleton", "--kubectl-path="+program("kubectl"), "--disable-log-dump")
	log, err := os.Create(c.file("e2e-" + runtime + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := inside(c.netns, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, c.dir
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	var suites []struct{ SpecReports []spec }
	b, err := os.ReadFile(c.file(report))
	if err == nil {
		err = json.Unmarshal(b, &suites)
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w; e2e.test says:\n%s", err, text[max(0, len(text)-8<<10):])
	}
	results := map[string]string{}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			r.add(t, runtime, results)
		}
	}
	return results, nil
}

// add adds a test's result.
func (r *spec) add(t *testing.T, runtime string, results map[string]string) {
	_, name, _ := strings.Cut(strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " "), "] ")
	switch {
	case r.LeafNodeType != "It":
		if r.State != "passed" && r.State != "skipped" {
			t.Errorf("%s: %s: %s %s", runtime, r.LeafNodeType, r.State, r.Failure.Message)
		}
		return
	case r.State != "skipped" || r.RunTime > 0:
		results[name] = r.State
		t.Logf("%s: %s (%d s) %s %.1000s", runtime, r.State, r.RunTime/1e9, name, r.Failure.Message)
		if out := r.CapturedGinkgoWriterOutput; r.State != "passed" && r.State != "skipped" {
			t.Logf("its output ends with:\n%s", out[max(0, len(out)-4<<10):])
		}
	case strings.Contains(name, "[NodeConformance]"):
		results[name] = notRun
	}
}
