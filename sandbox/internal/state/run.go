package state

import "time"

// RunRecord is what a running sandbox leaves beside its state. A kill leaves it behind, so it counts only if the
// control socket answers.
type RunRecord struct {
	Started    time.Time `json:"started"`
	Supervisor ProcessID `json:"supervisor"`
	VMM        ProcessID `json:"vmm"`
	Info       *Info     `json:"info,omitempty"` // once it is ready
	// PolicyRefused is of the last change of the policy file.
	PolicyRefused string `json:"policy_refused,omitempty"`
	// Paused is set by Home.Pause.
	Paused bool `json:"paused,omitempty"`
	// AutoRemove is the Spec's.
	AutoRemove bool `json:"auto_remove,omitempty"`
}

// End is how a run of a named sandbox ended.
type End struct {
	Time time.Time `json:"time"`
	// Kind and Message say why it ended by itself; empty after a stop.
	Kind    Kind   `json:"kind,omitempty"`
	Message string `json:"message,omitempty"`
}
