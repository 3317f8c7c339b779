//go:build containerdtest && kubernetestest

package shim_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  containers:
    - {name: c, image: IMAGE, imagePullPolicy: Never, command: [/bin/sh, -c, "echo up; exec sleep 100000"], resources: {limits: {memory: 64Mi}}}
`

func (s *space) plain(t *testing.T, name string) {
	t.Helper()
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", name))
	s.ready(t, name)
}

const lifeOf = "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}"

// testRestarts: kubelet and containerd are restarted and killed under a running pod, which goes on: the same container. When
// its shim is killed, and so its machine, the kubelet makes a new one.
func testRestarts(t *testing.T, c *cluster) {
	s := c.in(t, "restarts")
	s.plain(t, "p")
	if r := s.sh("p", "echo kept > /tmp/kept"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	before := s.kubectl(t, "get", "pod", "p", "-o", lifeOf)
	keepsRunning := func(what string) {
		t.Helper()
		c.until(t, "exec after "+what, func() bool { return s.sh("p", "cat /tmp/kept").out == "kept\n" })
		s.ready(t, "p")
		if after := s.kubectl(t, "get", "pod", "p", "-o", lifeOf); after != before {
			t.Errorf("%s: the pod was %s, and is %s", what, before, after)
		}
	}
	for what, by := range map[string]syscall.Signal{"is restarted": syscall.SIGTERM, "is killed": syscall.SIGKILL} {
		c.halt("kubelet", by)
		c.run(t, "kubelet")
		keepsRunning("kubelet " + what)
		_ = c.daemon.Process.Signal(by)
		c.stop(t)
		c.start(t)
		keepsRunning("containerd " + what)
	}
	var shim int
	for _, p := range c.processes() {
		if strings.Contains(p.line, "containerd-shim-msb-v1 -namespace k8s.io ") {
			shim = p.pid
		}
	}
	if shim == 0 {
		t.Fatalf("no shim among %v", c.processes())
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, "1", "get", "pod", "p", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	s.ready(t, "p")
	c.until(t, "exec after the shim is killed", func() bool { return s.sh("p", "test ! -e /tmp/kept && echo new").out == "new\n" })
}

const sized = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {sizeLimit: 1Mi}}]
  containers:
    - name: c
      image: IMAGE
      imagePullPolicy: Never
      command: [/bin/sh, -c, "LINE; exec sleep 100000"]
      volumeMounts: [{name: scratch, mountPath: /scratch}]
      resources: {limits: {memory: 64Mi}}
`

// testEviction: by the size of a volume, by a node that lacks memory, and by a drain. The twin of each is a pod that stays.
func testEviction(t *testing.T, c *cluster) {
	s := c.in(t, "eviction")
	s.apply(t, strings.NewReplacer("NAME", "small", "LINE", "true").Replace(sized))
	s.apply(t, strings.NewReplacer("NAME", "big", "LINE", "dd if=/dev/zero of=/scratch/file bs=1M count=4").Replace(sized))
	const reason = "jsonpath={.status.reason}"
	s.eventually(t, "Evicted", "get", "pod", "big", "-o", reason)
	s.ready(t, "small")
	s.kubectl(t, "delete", "pod", "big", "--timeout="+slow.String())

	// A soft threshold above the memory that the node has. Hard ones are taken off what the node has for pods.
	config := c.kubeletConfig()
	c.write(t, "kubelet.yaml", config+"evictionSoft: {memory.available: 1Ti}\nevictionSoftGracePeriod: {memory.available: 1s}\nevictionMaxPodGracePeriod: 1\n")
	c.halt("kubelet", syscall.SIGTERM)
	c.run(t, "kubelet")
	s.eventually(t, "Evicted", "get", "pod", "small", "-o", reason)
	c.write(t, "kubelet.yaml", config)
	c.halt("kubelet", syscall.SIGTERM)
	c.run(t, "kubelet")
	c.eventually(t, "False", "get", "node", "node", "-o", `jsonpath={.status.conditions[?(@.type=="MemoryPressure")].status}`)
	c.eventually(t, "", "get", "node", "node", "-o", "jsonpath={.spec.taints}")

	s.plain(t, "drained")
	s.cluster.kubectl(t, "drain", "node", "--force", "--delete-emptydir-data", "--ignore-daemonsets", "--timeout="+slow.String())
	defer s.cluster.kubectl(t, "uncordon", "node")
	if out := s.kubectl(t, "get", "pods", "-o", "jsonpath={.items[*].status.phase}"); strings.Contains(out, "Running") {
		t.Errorf("after the drain: %s", out)
	}
}

const updates = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {key: VALUE}
---
apiVersion: v1
kind: Secret
metadata: {name: plain}
stringData: {key: secret-VALUE}
---
apiVersion: v1
kind: Pod
metadata: {name: updated, labels: {of: labels}}
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, fsGroup: 2000}
  volumes:
    - {name: settings, configMap: {name: settings}}
    - {name: plain, secret: {secretName: plain, defaultMode: 0440}}
    - {name: all, projected: {sources: [{configMap: {name: settings}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}}
    - {name: scratch, emptyDir: {}}
    - {name: image, image: {reference: IMAGE, pullPolicy: Never}}
  containers:
    - name: c
      image: IMAGE
      imagePullPolicy: Never
      command: [sleep, "100000"]
      env:
        - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: KEY, valueFrom: {configMapKeyRef: {name: settings, key: key}}}
      volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: plain, mountPath: /plain}
        - {name: all, mountPath: /all, readOnly: true}
        - {name: scratch, mountPath: /scratch}
        - {name: image, mountPath: /image}
        - {name: settings, mountPath: /one, subPath: key}
      resources: {limits: {memory: 64Mi}}
`

// testVolumes: ConfigMap, Secret, projected, downwardAPI, emptyDir and image, with subPath, fsGroup and modes; an update of a ConfigMap
// and a Secret comes to a running pod, and not to a subPath.
func testVolumes(t *testing.T, c *cluster) {
	s := c.in(t, "volumes")
	with := func(value string) string { return strings.ReplaceAll(updates, "VALUE", value) }
	s.apply(t, with("old"))
	s.ready(t, "updated")
	ip := s.kubectl(t, "get", "pod", "updated", "-o", "jsonpath={.status.podIP}")
	const look = "cat /settings/key /plain/key /all/key /all/labels /one; echo; echo $KEY $IP"
	if r := s.sh("updated", look); r.out != "oldsecret-oldoldof=\"labels\"old\nold "+ip+"\n" {
		t.Errorf("%+v", r)
	}
	const rights = "stat -L -c '%a %g' /plain/key /scratch; touch /scratch/mine && stat -c %g /scratch/mine; touch /all/no 2>/dev/null || echo read-only; ls /image/bin/busybox; touch /image/tmp/no 2>/dev/null || echo read-only"
	if r := s.sh("updated", rights); r.out != "440 2000\n2777 2000\n2000\nread-only\n/image/bin/busybox\nread-only\n" {
		t.Errorf("%+v", r)
	}
	s.apply(t, with("new"))
	c.until(t, "the updates", func() bool {
		return s.sh("updated", look).out == "newsecret-newnewof=\"labels\"old\nold "+ip+"\n"
	}, func() any { return s.sh("updated", look) })
}

// badPolicies are annotations that fail a pod, and what its events say.
var badPolicies = map[string]struct{ annotations, want string }{
	"unknown-key": {"msb.dev/policy: \"version = 1\\nsurprise = 2\\n\"", "msb.dev/policy:2:1: surprise: unknown key"},
	"beyond":      {"msb.dev/policy: \"version = 1\\n[[egress.deny]]\\nhosts = [\\\"a.example\\\"]\\n[dns]\\nservers = [\\\"udp://192.0.2.1\\\"]\\n\"", "beyond the node's floor"},
	"capture":     {"msb.dev/capture: /etc/x", "write \\\"on\\\" or \\\"off\\\""},
}

// testRefusals: a bad policy is in the pod's events, with its line, and so is what a machine can't honour. The twin is every
// other test's pod.
func testRefusals(t *testing.T, c *cluster) {
	s := c.in(t, "refusals")
	want := map[string]string{"network": "hostNetwork", "processes": "shareProcessNamespace", "privileged": "privileged"}
	for name, bad := range badPolicies {
		s.apply(t, strings.NewReplacer("NAME, labels: {app: NAME}", name+", annotations: {"+bad.annotations+"}", "NAME", name).Replace(plainPod))
		want[name] = bad.want
	}
	for name, spec := range map[string]string{"network": "hostNetwork: true", "processes": "shareProcessNamespace: true"} {
		s.apply(t, strings.ReplaceAll(strings.Replace(plainPod, "spec:\n", "spec:\n  "+spec+"\n", 1), "NAME", name))
	}
	s.apply(t, strings.ReplaceAll(strings.Replace(plainPod, "resources:", "securityContext: {privileged: true}, resources:", 1), "NAME", "privileged"))
	for name, want := range want {
		c.until(t, "the events of "+name+" to say "+want, func() bool {
			return strings.Contains(s.events(name), want) || strings.Contains(s.events(name), strings.ReplaceAll(want, `\`, ""))
		}, func() any { return s.events(name) })
	}
}

func (s *space) events(pod string) string {
	return s.try("get", "events", "--field-selector=involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}").out
}

// secretPods are one whose policy names a value of a Secret, and one without a policy.
const secretPods = `
apiVersion: v1
kind: Secret
metadata: {name: api}
stringData: {token: VALUE}
---
apiVersion: v1
kind: Pod
metadata:
  name: named
  annotations:
    msb.dev/policy: |
      version = 1
      [[egress.allow]]
      hosts = ["echo.msb.internal"]
      protocol = "https"
      methods = ["GET"]
      [hosts]
      "echo.msb.internal" = "builtin:echo"
      [secrets.KEY]
      from = "file:api/token"
      hosts = ["echo.msb.internal"]
      in = ["header:Authorization"]
SPEC
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
SPEC
`

const secretSpec = `
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  volumes: [{name: api, secret: {secretName: api}}]
  containers:
    - name: c
      image: IMAGE
      imagePullPolicy: Never
      command: [sleep, "100000"]
      env: [{name: KEY, valueFrom: {secretKeyRef: {name: api, key: token}}}]
      volumeMounts: [{name: api, mountPath: /secrets}]
      resources: {limits: {memory: 64Mi}}
`

// testSecrets: what a policy names of a Secret is sent to its host, and is nowhere in the guest; the kubelet's update of it is
// followed. The twin is the same pod without a policy.
func testSecrets(t *testing.T, c *cluster) {
	c.floor(t, "[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\nmethods = [\"GET\"]\n[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n")
	s := c.in(t, "secrets")
	const first, second = "first-value-of-the-secret-4711", "second-value-of-the-secret-0815"
	with := func(value string) {
		s.apply(t, strings.NewReplacer("VALUE", value, "SPEC", secretSpec).Replace(secretPods))
	}
	with(first)
	s.ready(t, "named", "plain")
	const look = "cat /secrets/token; env; cat /proc/*/environ | tr '\\0' '\\n'; grep -r value-of-the-secret /etc /tmp /run /dev/shm /owned /secrets; mount"
	for pod, inside := range map[string]bool{"named": false, "plain": true} {
		if r := s.sh(pod, look); strings.Contains(r.out, first) != inside || strings.Contains(r.out, "KEY=msb_") == inside {
			t.Errorf("%s: the guest has\n%s%s", pod, r.out, r.err)
		}
	}
	// In a core dump, and on the disk with all that the guest writes, is what the environment has, marks beside it.
	const dump = "cd /tmp; ulimit -c unlimited; MARK=in-the-dump sleep 1000 & kill -ABRT $!; wait; cat core*; env > env; echo on-the-disk-of-NAME >> env; sync"
	for pod, inside := range map[string]bool{"named": false, "plain": true} {
		r := s.sh(pod, strings.ReplaceAll(dump, "NAME", pod))
		if !strings.Contains(r.out, "MARK=in-the-dump") || strings.Contains(r.out, first) != inside {
			t.Errorf("%s: a core dump of %d bytes has the value: %v; %s", pod, len(r.out), strings.Contains(r.out, first), r.err)
		}
		disk := diskWith(t, "on-the-disk-of-"+pod)
		if has := exec.Command("grep", "-qF", first, disk).Run() == nil; has != inside {
			t.Errorf("%s: the guest's disk has the value: %v", pod, has)
		}
	}
	sent := func(value string) func() bool {
		return func() bool {
			return strings.Contains(s.sh("named", "ask https://echo.msb.internal/").out, hashOf("Bearer "+value))
		}
	}
	c.until(t, "the Secret to be sent", sent(first))
	s.kubectl(t, "patch", "secret", "api", "-p", "{\"stringData\": {\"token\": "+strconv.Quote(second)+"}}")
	c.until(t, "the changed Secret to be sent", sent(second))
	if r := s.sh("named", look); strings.Contains(r.out, "value-of-the-secret") {
		t.Errorf("the guest has\n%s", r.out)
	}
}

// diskWith is the disk of the machine that wrote a text.
func diskWith(t *testing.T, text string) string {
	t.Helper()
	disks, err := filepath.Glob(home + "/run/*/upper.ext4")
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range disks {
		if exec.Command("grep", "-qF", text, disk).Run() == nil {
			return disk
		}
	}
	t.Fatalf("%s is on none of %q", text, disks)
	return ""
}
