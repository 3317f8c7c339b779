package shim

// Annotations of the OCI spec that containerd's CRI sets (pkg/cri/annotations), and those of msb, which a pod carries.
const (
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
