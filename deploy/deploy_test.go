package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/msb-project/msb/policies"
)

const namespace = "msb-system"

// kinds are the types of the objects that base and chart have; one that is not here fails the tests.
var kinds = map[string]func() any{
	"Namespace":     func() any { return &corev1.Namespace{} },
	"ConfigMap":     func() any { return &corev1.ConfigMap{} },
	"Pod":           func() any { return &corev1.Pod{} },
	"DaemonSet":     func() any { return &appsv1.DaemonSet{} },
	"NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
	"RuntimeClass":  func() any { return &nodev1.RuntimeClass{} },
}

// objects decodes a stream of YAML documents as the API server does: a key that it doesn't know is an error.
func objects(t *testing.T, text []byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var meta struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		if kinds[meta.Kind] == nil {
			t.Fatalf("nobody knows the kind %q: %s", meta.Kind, doc)
		}
		object := kinds[meta.Kind]()
		if err := yaml.UnmarshalStrict(doc, object); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		all[meta.Kind+" "+meta.Metadata.Name] = object
	}
	return all
}

// base renders the Kustomize base.
func base(t *testing.T) map[string]any {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "base")
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

// chart renders the Helm chart with changed values.
func chart(t *testing.T, values map[string]any) (map[string]any, error) {
	t.Helper()
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	render, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "msb", Namespace: namespace}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, render)
	if err != nil {
		return nil, err
	}
	var all []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			all = append(all, text)
		}
	}
	return objects(t, []byte(strings.Join(all, "\n---\n"))), nil
}

func mustYAML(t *testing.T, v any) string {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestChartIsLinted: nothing that helm lint --strict would complain about.
func TestChartIsLinted(t *testing.T) {
	t.Parallel()
	for _, m := range lint.AllWithKubeVersionAndSchemaValidation("chart", nil, namespace, nil, false).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// TestBaseAndChartAreEqual: Kustomize and Helm install the same, but for the comments in the operator's files, and the
// namespace, which helm makes by --create-namespace.
func TestBaseAndChartAreEqual(t *testing.T) {
	t.Parallel()
	fromBase := base(t)
	fromChart, err := chart(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	delete(fromBase, "Namespace "+namespace)
	for _, all := range []map[string]any{fromBase, fromChart} {
		for key, text := range all["ConfigMap msb-node"].(*corev1.ConfigMap).Data {
			all["ConfigMap msb-node"].(*corev1.ConfigMap).Data[key] = withoutComments(text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fromBase)) {
		if got, want := mustYAML(t, fromChart[name]), mustYAML(t, fromBase[name]); got != want {
			t.Errorf("%s: the chart has\n%s\nand the base\n%s", name, got, want)
		}
	}
	if len(fromBase) != len(fromChart) {
		t.Errorf("the base has %d objects, the chart %d", len(fromBase), len(fromChart))
	}
}

func withoutComments(text string) (out string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			out += line
		}
	}
	return out
}

// TestChartTakesValues: each value is where it is meant to be, and one that doesn't exist is an error.
func TestChartTakesValues(t *testing.T) {
	t.Parallel()
	got, err := chart(t, map[string]any{
		"image":        map[string]any{"repository": "images.example/msb-node", "tag": "1.2.3", "pullPolicy": "Always"},
		"nodeSelector": map[string]any{"pool": "sandboxes"},
		"floor":        "version = 1\n# mine\n", "settings": "memory = \"1G\"\n",
		"runtimeClass": map[string]any{"name": "vm", "overhead": map[string]any{"memory": "1Gi", "cpu": "1"}},
		"prefix":       "/usr/local/msb",
		"containerd":   map[string]any{"restart": "service k3s restart", "config": "/var/lib/k3s/config.toml", "dropIn": "/var/lib/k3s/conf.d/msb.toml"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const flags = "--containerd-config=/var/lib/k3s/config.toml --drop-in=/var/lib/k3s/conf.d/msb.toml --prefix=/usr/local/msb --restart=service k3s restart"
	set := got["DaemonSet msb-node"].(*appsv1.DaemonSet).Spec.Template.Spec
	class := got["RuntimeClass vm"].(*nodev1.RuntimeClass)
	config := got["ConfigMap msb-node"].(*corev1.ConfigMap)
	for _, c := range []struct{ got, want string }{
		{set.Containers[0].Image, "images.example/msb-node:1.2.3"},
		{string(set.Containers[0].ImagePullPolicy), "Always"},
		{set.NodeSelector["pool"], "sandboxes"},
		{strings.Join(set.Containers[0].Args, " "), flags + " run"},
		{strings.Join(set.Containers[0].ReadinessProbe.Exec.Command, " "), "/msb-node " + flags + " check"},
		{config.Data["floor.toml"], "version = 1\n# mine\n"},
		{config.Data["shim.toml"], "memory = \"1G\"\n"},
		{class.Handler, "msb"},
		{class.Scheduling.NodeSelector["pool"], "sandboxes"},
		{class.Overhead.PodFixed.Memory().String() + " " + class.Overhead.PodFixed.Cpu().String(), "1Gi 1"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for _, wrong := range []map[string]any{
		{"flor": "version = 1"},
		{"image": map[string]any{"version": "1"}},
		{"containerd": map[string]any{"config": "relative.toml"}},
		{"prefix": "opt/msb"},
	} {
		if _, err := chart(t, wrong); err == nil {
			t.Errorf("no error with the values %v", wrong)
		}
	}
}

// TestInstallerHasNoMoreThanItNeeds: no token of the API, no privileged container, nothing that the network could tell it.
func TestInstallerHasNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	all := base(t)
	pod := all["DaemonSet msb-node"].(*appsv1.DaemonSet).Spec.Template.Spec
	security := pod.Containers[0].SecurityContext
	if *pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostPID || pod.HostIPC || security.Privileged != nil ||
		*security.AllowPrivilegeEscalation || security.Capabilities.Drop[0] != "ALL" || len(security.Capabilities.Add) != 3 {
		t.Errorf("it has %s", mustYAML(t, pod))
	}
	policy := all["NetworkPolicy msb-node"].(*networkingv1.NetworkPolicy).Spec
	if len(policy.Ingress)+len(policy.Egress) > 0 || len(policy.PolicyTypes) != 2 {
		t.Errorf("its network policy is %s", mustYAML(t, policy))
	}
}

// TestSamplesAreRight: their objects and the policies in them, which the floor of the chart's documentation must allow.
func TestSamplesAreRight(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("samples", "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects(t, text)
	files, err := filepath.Glob("samples/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				t.Fatal(err)
			}
			if policy := find(object, "msb.dev/policy"); policy != "" {
				found++
				if _, err := policies.Parse(file, []byte(policy), nil); err != nil {
					t.Error(err)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s has %d policies", file, found)
		}
	}
}

// find returns the text under a key, at any depth.
func find(object map[string]any, key string) string {
	if text, ok := object[key].(string); ok {
		return text
	}
	for _, v := range object {
		if inner, ok := v.(map[string]any); ok {
			if text := find(inner, key); text != "" {
				return text
			}
		}
	}
	return ""
}
