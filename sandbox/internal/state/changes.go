package state

import (
	"maps"
	"time"
)

// StopNotice is the file in the guest that announces a stop.
const StopNotice = "/run/msb-stop"

// Changes are the settings of a sandbox that can be changed later. nil keeps a
// setting.
type Changes struct {
	// Lifetime and IdleStop are limits, 0 for none, and take effect at once. Keep starts the time of both again.
	Lifetime *time.Duration `json:"lifetime,omitempty"`
	IdleStop *time.Duration `json:"idle_stop,omitempty"`
	Keep     bool           `json:"keep,omitempty"`
	// Restart takes effect at once.
	Restart *Restart `json:"restart,omitempty"`
	// Paused pauses or resumes the guest: only while the sandbox runs, and for this run only.
	Paused *bool `json:"paused,omitempty"`
	// Ask and Answer are of a request for more of the network.
	Ask    *Request       `json:"ask,omitempty"`
	Answer *RequestAnswer `json:"answer,omitempty"`
	// CPUs and Memory, in bytes, take effect at the next start.
	CPUs   *int   `json:"cpus,omitempty"`
	Memory *int64 `json:"memory,omitempty"`
	// Labels are set after those of RemoveLabels are removed.
	Labels       map[string]string `json:"labels,omitempty"`
	RemoveLabels []string          `json:"remove_labels,omitempty"`
}

// Apply makes the changes. The caller has checked them.
func (c *Changes) Apply(st *Stored) {
	set(&st.Lifetime, c.Lifetime)
	set(&st.IdleStop, c.IdleStop)
	set(&st.Restart, c.Restart)
	set(&st.CPUs, c.CPUs)
	set(&st.Memory, c.Memory)
	if c.Keep || st.Lifetime == 0 {
		st.Ran = 0
	}
	labels := maps.Clone(st.Labels)
	for _, key := range c.RemoveLabels {
		delete(labels, key)
	}
	if labels == nil && len(c.Labels) > 0 {
		labels = map[string]string{}
	}
	maps.Copy(labels, c.Labels)
	st.Labels = labels
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
