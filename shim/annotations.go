package shim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Annotations of the OCI spec that containerd's CRI sets (pkg/cri/annotations), and those of msb, which a pod carries.
const (
	annotationPrefix = "msb.dev/" // of all that are msb's

	annotationType    = "io.kubernetes.cri.container-type"
	annotationSandbox = "io.kubernetes.cri.sandbox-id"

	annotationPodName      = "io.kubernetes.cri.sandbox-name"
	annotationPodNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationPodUID       = "io.kubernetes.cri.sandbox-uid"
	annotationContainer    = "io.kubernetes.cri.container-name"

	annotationMemory    = "io.kubernetes.cri.sandbox-memory"
	annotationCPUPeriod = "io.kubernetes.cri.sandbox-cpu-period"
	annotationCPUQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	annotationCPUShares = "io.kubernetes.cri.sandbox-cpu-shares"

	annotationPolicy  = "msb.dev/policy"
	annotationCapture = "msb.dev/capture"
	annotationAudit   = "msb.dev/audit"
	annotationToken   = "msb.dev/service-account-token" //nolint:gosec // G101: a name

	// typeSandbox is the annotationType of the container that stands for the pod, whose image (pause) is not run.
	typeSandbox = "sandbox"
)

// checkAnnotations refuses an annotation of msb's that there isn't: a pod whose policy is misspelt would have all that the
// floor allows.
func checkAnnotations(annotations map[string]string) error {
	own := []string{annotationPolicy, annotationCapture, annotationAudit, annotationToken}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, annotationPrefix) && !slices.Contains(own, key) {
			return refused(fmt.Sprintf("there is no annotation %s; write one of %s, or leave it out", key, strings.Join(own, ", ")))
		}
	}
	return nil
}
