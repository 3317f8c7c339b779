//go:build containerdtest && kubernetestest

package shim_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func (c *cluster) kubectlArgs() []string {
	return []string{filepath.Join(os.Getenv(envKubernetes), "kubectl"), "--kubeconfig=" + c.pki.file("admin.conf"), "--cache-dir=" + c.file("kubectl")}
}

// try runs kubectl to its end, whatever that is.
func (c *cluster) try(stdin string, args ...string) result {
	cmd := inside(c.netns, append(c.kubectlArgs(), args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		stop()
	}
	r := result{out: out.String(), err: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.code = exit.ExitCode()
	case err != nil:
		r.code, r.err = -1, r.err+err.Error()
	}
	return r
}

// kubectl runs one that succeeds, and returns what it printed.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.feed(t, "", args...)
}

func (c *cluster) feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := c.try(stdin, args...)
	if r.code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// eventually waits until kubectl prints want.
func (c *cluster) eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	var got result
	c.until(t, "kubectl "+strings.Join(args, " ")+" to print "+want, func() bool {
		got = c.try("", args...)
		return strings.TrimSpace(got.out) == want
	}, func() any { return got })
}

// until waits until ok.
func (c *cluster) until(t *testing.T, what string, ok func() bool, instead ...func() any) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(slow)
	for !ok() {
		select {
		case <-tick.C:
			c.allRun(t)
		case <-deadline:
			for _, f := range instead {
				t.Logf("got %+v", f())
			}
			t.Fatalf("waited %v for %s", slow, what)
		}
	}
}

// space is a namespace of a test.
type space struct {
	*cluster
	name string
}

// in makes a namespace for a test. At its end it is deleted, and then nothing of its pods may be left on the node.
func (c *cluster) in(t *testing.T, name string) *space {
	t.Helper()
	s := &space{c, name}
	c.kubectl(t, "create", "namespace", name)
	c.eventually(t, "default", "-n", name, "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", c.try("", "-n", name, "get", "pods,events", "-o", "wide").out)
		}
		c.kubectl(t, "delete", "namespace", name, "--timeout="+slow.String())
		c.until(t, "nothing to be left", func() bool { return len(c.left(t)) == 0 }, func() any { return c.left(t) })
	})
	return s
}

func (s *space) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return s.cluster.kubectl(t, append([]string{"-n", s.name}, args...)...)
}

func (s *space) try(args ...string) result {
	return s.cluster.try("", append([]string{"-n", s.name}, args...)...)
}

func (s *space) eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	s.cluster.eventually(t, want, append([]string{"-n", s.name}, args...)...)
}

// apply makes objects of YAML, in which IMAGE is the tests' image.
func (s *space) apply(t *testing.T, yaml string) {
	t.Helper()
	s.feed(t, strings.ReplaceAll(yaml, "IMAGE", testImage), "-n", s.name, "apply", "-f", "-")
}

// ready waits for pods.
func (s *space) ready(t *testing.T, pods ...string) {
	t.Helper()
	for _, p := range pods {
		s.kubectl(t, "wait", "--for=condition=Ready", "--timeout="+slow.String(), "pod/"+p)
	}
}

// sh runs a line in a pod's first container.
func (s *space) sh(pod, line string) result {
	return s.try("exec", pod, "--", "/bin/sh", "-c", line)
}
