package agentpb

// ChildDir is mounted in the workload's root of a sandbox that may have children, ChildSocket is where its programs ask for
// them, and ChildProgram the agent's own program that does so.
const (
	ChildDir     = "/run/msb"
	ChildSocket  = ChildDir + "/children.sock"
	ChildProgram = ChildDir + "/msb-ctl"
)

// MaxChildRequest bounds a ChildRequest with its newline, in bytes: twice a policy, which JSON escapes.
const MaxChildRequest = 128 << 10

// The verbs of a ChildRequest.
const (
	ChildPing    = "ping"
	ChildSpawn   = "spawn"
	ChildList    = "list"
	ChildExec    = "exec"
	ChildDestroy = "destroy"
	ChildRun     = "run"
)

// ChildRequest is what a program of a sandbox asks for: a line of JSON at the beginning of a connection. The connection's
// end takes it back.
type ChildRequest struct {
	Verb string `json:"verb"`
	// Name is a child's, as ChildSpawn gave it: of ChildExec and ChildDestroy.
	Name string `json:"name,omitempty"`
	// Argv is a command: of ChildExec and ChildRun.
	Argv []string `json:"argv,omitempty"`
	// The rest is of ChildSpawn and ChildRun; what is left out is the parent's.
	Image     string   `json:"image,omitempty"`
	CPUs      int      `json:"cpus,omitempty"`
	MemoryMiB int64    `json:"memory_mib,omitempty"`
	Policy    *string  `json:"policy,omitempty"` // TOML
	Allow     []string `json:"allow,omitempty"`
	NoNetwork bool     `json:"no_network,omitempty"` // without Policy and Allow
}

// ChildReply is a line of JSON. Each has one field; Error, Exit and Result end the answer.
type ChildReply struct {
	Stdout []byte  `json:"stdout,omitempty"`
	Stderr []byte  `json:"stderr,omitempty"`
	Error  string  `json:"error,omitempty"`
	Exit   *int    `json:"exit,omitempty"` // a program's exit code
	Result *string `json:"result,omitempty"`
}
