//go:build containerdtest

package shim_test

import (
	"context"
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainerdCRI: what a kubelet asks containerd for, with a network of CNI's. The twin of the pod that shares processes is
// the one that doesn't.
func TestContainerdCRI(t *testing.T) {
	n, r := criNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ns := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER} // as the kubelet asks, unless processes are shared
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1"}, Hostname: "web", LogDirectory: n.file("logs"),
		DnsConfig: &cri.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"svc.cluster.local"}},
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: ns},
			Resources:       &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20},
		},
	}
	sb, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "msb"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil {
			t.Error(err)
		}
		if _, err := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sb.PodSandboxId}); err != nil {
			t.Error(err)
		}
		n.isClean(t)
	}()
	st, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sb.PodSandboxId})
	if err != nil || st.Status.State != cri.PodSandboxState_SANDBOX_READY || !strings.HasPrefix(st.Status.Network.GetIp(), "10.213.7.") {
		t.Errorf("the pod's status: %v, %v", st, err)
	}
	container := func(pid cri.NamespaceMode) (string, error) {
		c, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sb.PodSandboxId, SandboxConfig: pod, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: pid.String()}, Image: &cri.ImageSpec{Image: testImage}, LogPath: "c.log",
			Mounts:  []*cri.Mount{{ContainerPath: "/image", Image: &cri.ImageSpec{Image: testImage}, Readonly: true}}, // an image volume
			Command: []string{"/bin/sh", "-c", "trap 'exit 6' TERM; echo logged; while :; do sleep 0.1; done"},
			Linux: &cri.LinuxContainerConfig{
				Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, CpuShares: 102, OomScoreAdj: 900},
				SecurityContext: &cri.LinuxContainerSecurityContext{
					NamespaceOptions: &cri.NamespaceOption{Pid: pid}, RunAsUser: &cri.Int64Value{Value: 1000}, SupplementalGroups: []int64{2000},
					MaskedPaths: []string{"/proc/kcore"}, ReadonlyPaths: []string{"/proc/sys"},
				},
			},
		}})
		if err != nil {
			return "", err
		}
		_, err = r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
		return c.ContainerId, err
	}
	if _, err := container(cri.NamespaceMode_POD); err == nil || !strings.Contains(err.Error(), "shareProcessNamespace") {
		t.Errorf("a container that shares the pod's processes: %v", err)
	}
	c, err := container(cri.NamespaceMode_CONTAINER)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c, Timeout: int64(patience.Seconds()), Cmd: []string{
		"/bin/sh", "-c", "hostname; cat /etc/resolv.conf; id; grep -c ' /dev/shm tmpfs ' /proc/mounts; cat /proc/sys/net/ipv4/ip_unprivileged_port_start; ip -o addr show dev eth0 scope global | awk '{print $4}'; ls /image/bin/busybox; touch /image/tmp/x 2>/dev/null || echo read-only; exit 4",
	}})
	want := "web\nsearch svc.cluster.local\nnameserver 192.0.2.53\nuid=1000(user) gid=1000(user) groups=1000(user),2000(extra)\n1\n0\n" + st.GetStatus().GetNetwork().GetIp() + "/32\n/image/bin/busybox\nread-only\n"
	if err != nil || e.ExitCode != 4 || string(e.Stdout) != want {
		t.Errorf("exec: %v, exit code %d\n%s%s", err, e.GetExitCode(), e.GetStdout(), e.GetStderr())
	}
	waitFor(t, "the container's line in the log", func() bool {
		log, err := os.ReadFile(n.file("logs/c.log"))
		return err == nil && strings.HasSuffix(string(log), " stdout F logged\n")
	})
	if s, err := r.ContainerStats(ctx, &cri.ContainerStatsRequest{ContainerId: c}); err != nil || s.Stats.Memory.GetWorkingSetBytes().GetValue() == 0 {
		t.Errorf("stats: %v, %v", s, err)
	}
	if _, err := r.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c, Timeout: int64(patience.Seconds())}); err != nil {
		t.Error(err)
	}
	if s, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c}); err != nil || s.Status.State != cri.ContainerState_CONTAINER_EXITED || s.Status.ExitCode != 6 {
		t.Errorf("after its end: %v, %v", s, err)
	}
}
