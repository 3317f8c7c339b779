//go:build containerdtest && kubernetestest

package shim_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  progressDeadlineSeconds: 3600
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      runtimeClassName: msb
      terminationGracePeriodSeconds: 1
      containers:
        - name: httpd
          image: IMAGE
          imagePullPolicy: Never
          command: [/bin/sh, -c, "echo $VERSION > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
          env: [{name: VERSION, value: first}]
          ports: [{containerPort: 8080, name: http}]
          startupProbe: {httpGet: {path: /, port: http}, periodSeconds: 1, failureThreshold: 600, timeoutSeconds: 60}
          readinessProbe: {tcpSocket: {port: http}, periodSeconds: 2, timeoutSeconds: 60}
          livenessProbe: {exec: {command: [test, "!", -e, /tmp/sick]}, periodSeconds: 2, timeoutSeconds: 60}
          resources: {limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
`

// testDeployment: probes, a Service, a rolling update, and a restart by a liveness probe.
func testDeployment(t *testing.T, c *cluster) {
	s := c.in(t, "deployment")
	s.apply(t, deployment)
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout="+slow.String())
	address := s.kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	serves := func(want string) func() bool {
		return func() bool {
			return within(t, "/run/netns/"+c.netns, func() string { return get("", address+":80") }) == want
		}
	}
	c.until(t, "the Service", serves("first\n"))
	s.kubectl(t, "set", "env", "deployment/web", "VERSION=second")
	s.kubectl(t, "rollout", "status", "deployment/web", "--timeout="+slow.String())
	c.until(t, "the Service after the update", serves("second\n"))
	s.kubectl(t, "scale", "deployment/web", "--replicas=1")
	restarts := []string{"get", "pods", "-l", "app=web", "-o", "jsonpath={range .items[*]}{.status.containerStatuses[0].restartCount},{end}"}
	s.eventually(t, "0,", restarts...)
	s.kubectl(t, "exec", "deployment/web", "--", "touch", "/tmp/sick")
	s.eventually(t, "1,", restarts...)
	s.kubectl(t, "wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout="+slow.String())
	c.until(t, "the Service after the restart", serves("second\n"))
}

const jobs = `
apiVersion: batch/v1
kind: Job
metadata: {name: NAME}
spec:
  completions: 2
  parallelism: 2
  backoffLimit: 0
  template:
    spec:
      runtimeClassName: msb
      restartPolicy: Never
      containers:
        - {name: work, image: IMAGE, imagePullPolicy: Never, command: [/bin/sh, -c, "echo worked; exit CODE"], resources: {limits: {memory: 64Mi}}}
`

// testJob: one that succeeds, and one that fails.
func testJob(t *testing.T, c *cluster) {
	s := c.in(t, "job")
	for name, of := range map[string]struct{ code, condition string }{"good": {"0", "Complete"}, "bad": {"7", "Failed"}} {
		s.apply(t, strings.NewReplacer("NAME", name, "CODE", of.code).Replace(jobs))
		s.kubectl(t, "wait", "--for=condition="+of.condition, "job/"+name, "--timeout="+slow.String())
	}
	if out := s.kubectl(t, "logs", "-l", "job-name=good"); out != "worked\nworked\n" {
		t.Errorf("logs: %q", out)
	}
	if out := s.kubectl(t, "get", "pods", "-l", "job-name=bad", "-o", "jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}"); out != "7" {
		t.Errorf("the exit code of what failed: %s", out)
	}
}

const statefulSet = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: msb-db}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: DIR}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      runtimeClassName: msb
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1000, fsGroup: 2000}
      containers:
        - name: db
          image: IMAGE
          imagePullPolicy: Never
          command: [/bin/sh, -c, "hostname >> /data/log; exec sleep 100000"]
          volumeMounts: [{name: data, mountPath: /data}]
          resources: {limits: {memory: 64Mi}}
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Mi}}}
`

// testStatefulSet: what a pod wrote to its PersistentVolumeClaim is there when the pod is made again, under the same name.
func testStatefulSet(t *testing.T, c *cluster) {
	dir := c.file("volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // hostPath has no fsGroup
		t.Fatal(err)
	}
	s := c.in(t, "statefulset")
	t.Cleanup(func() { c.kubectl(t, "delete", "pv", "msb-db", "--wait=false") })
	s.apply(t, strings.ReplaceAll(statefulSet, "DIR", dir))
	s.kubectl(t, "rollout", "status", "statefulset/db", "--timeout="+slow.String())
	first := s.kubectl(t, "get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}")
	s.kubectl(t, "delete", "pod", "db-0", "--timeout="+slow.String())
	c.until(t, "another pod db-0", func() bool {
		uid := s.try("get", "pod", "db-0", "-o", "jsonpath={.metadata.uid}").out
		return uid != "" && uid != first
	})
	s.ready(t, "db-0")
	written := func() any { b, err := os.ReadFile(dir + "/log"); return fmt.Sprintf("%q, %v", b, err) }
	c.until(t, "both pods' lines", func() bool { return written() == `"db-0\ndb-0\n", <nil>` }, written)
}

const sidecars = `
apiVersion: v1
kind: Pod
metadata: {name: several}
spec:
  runtimeClassName: msb
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  volumes: [{name: shared, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
  initContainers:
    - name: first
      image: IMAGE
      imagePullPolicy: Never
      command: [/bin/sh, -c, "echo first >> /shared/log; echo memory > /memory/file"]
      volumeMounts: [{name: shared, mountPath: /shared}, {name: memory, mountPath: /memory}]
      resources: {limits: {memory: 32Mi}}
    - name: sidecar
      image: IMAGE
      imagePullPolicy: Never
      restartPolicy: Always
      command: [/bin/sh, -c, "echo sidecar >> /shared/log; trap 'exit 0' TERM; httpd -p 9000 -h /shared; while :; do sleep 1; done"]
      startupProbe: {tcpSocket: {port: 9000}, periodSeconds: 1, failureThreshold: 600}
      volumeMounts: [{name: shared, mountPath: /shared}]
      resources: {limits: {memory: 32Mi}}
    - name: second
      image: IMAGE
      imagePullPolicy: Never
      command: [/bin/sh, -c, "echo second >> /shared/log"]
      volumeMounts: [{name: shared, mountPath: /shared}]
      resources: {limits: {memory: 32Mi}}
  containers:
    - name: main
      image: IMAGE
      imagePullPolicy: Never
      command: [/bin/sh, -c, "wget -q -O- http://127.0.0.1:9000/log; cat /memory/file; echo because > /dev/termination-log"]
      volumeMounts: [{name: shared, mountPath: /shared}, {name: memory, mountPath: /memory}]
      resources: {limits: {memory: 32Mi}}
`

// testContainers: init containers run in their order, a sidecar serves them and the main container, and ends after it.
func testContainers(t *testing.T, c *cluster) {
	s := c.in(t, "containers")
	s.apply(t, sidecars)
	s.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/several", "--timeout="+slow.String())
	if out := s.kubectl(t, "logs", "several", "-c", "main"); out != "first\nsidecar\nsecond\nmemory\n" {
		t.Errorf("the main container's log: %q", out)
	}
	if out := s.kubectl(t, "get", "pod", "several", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.message}{.status.initContainerStatuses[1].state.terminated.exitCode}"); out != "because\n0" {
		t.Errorf("the termination message and the sidecar's exit code: %q", out)
	}
}

const manyPods = `
---
apiVersion: v1
kind: Pod
metadata: {name: p%d}
spec:
  runtimeClassName: msb
  terminationGracePeriodSeconds: 1
  containers:
    - {name: c, image: IMAGE, imagePullPolicy: Never, command: [sleep, "100000"], resources: {limits: {memory: 32Mi}, requests: {cpu: 10m}}}
`

// testTen: ten pods at once.
func testTen(t *testing.T, c *cluster) {
	s := c.in(t, "ten")
	var all strings.Builder
	for i := range 10 {
		fmt.Fprintf(&all, manyPods, i)
	}
	s.apply(t, all.String())
	s.kubectl(t, "wait", "--for=condition=Ready", "pod", "--all", "--timeout="+slow.String())
}
