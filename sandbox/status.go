package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// Status is a named sandbox as `msb ls` shows it.
type Status struct {
	Name   string            `json:"name"`
	Label  string            `json:"label,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Parent is the sandbox whose child this is, and ParentCreated when that was made.
	Parent        string    `json:"parent,omitempty"`
	ParentCreated time.Time `json:"parent_created,omitzero"`
	// Root and RootCreated are likewise of the sandbox above all, whose budget counts a child.
	Root        string    `json:"root,omitempty"`
	RootCreated time.Time `json:"root_created,omitzero"`
	Running     bool      `json:"running"`
	Created     time.Time `json:"created"`
	Image       string    `json:"image"`
	Digest      string    `json:"digest"`
	// CPUs and Memory, in bytes, are the running machine's, or those of the next start; NextCPUs and NextMemory are those
	// of the next start where they differ from a running machine's.
	CPUs       int   `json:"cpus"`
	Memory     int64 `json:"memory_bytes"`
	NextCPUs   int   `json:"next_cpus,omitempty"`
	NextMemory int64 `json:"next_memory_bytes,omitempty"`
	Disk       int64 `json:"disk_bytes"`
	// Used is what the disk takes on the host.
	Used       int64  `json:"disk_used_bytes"`
	PolicyFile string `json:"policy_file,omitempty"`
	// IdleStop and Lifetime, in nanoseconds, are as in Config.
	IdleStop time.Duration `json:"idle_stop,omitempty"`
	Lifetime time.Duration `json:"lifetime,omitempty"`
	// Ran is how much of Lifetime is used, in nanoseconds; while it runs, to the minute.
	Ran time.Duration `json:"ran,omitempty"`
	// Directories are those of this machine that the guest sees.
	Directories []Directory `json:"directories,omitempty"`
	// Volumes are those that the guest sees.
	Volumes []Volume `json:"volumes,omitempty"`
	// Ports are those that are published.
	Ports []Port `json:"ports,omitempty"`
	// Dir is the sandbox's own directory under $MSB_HOME.
	Dir string `json:"directory"`
	// Audit and Pcap are the files of its records, Console is the log of its kernel.
	Audit   string `json:"audit"`
	Pcap    string `json:"pcap,omitempty"`
	Console string `json:"console"`
	// ParentPlaceholders are those of the sandboxes from which it was cloned: the secret's name by the placeholder.
	ParentPlaceholders map[string]string `json:"parent_placeholders,omitempty"`
	// ParentFiles are files that hold one, as last searched by Home.ParentFiles; MoreParentFiles says that there are
	// others.
	ParentFiles     []string `json:"parent_files,omitempty"`
	MoreParentFiles bool     `json:"more_parent_files,omitempty"`
	// Started and Info are of the run; Info comes when the guest is ready.
	Started *time.Time `json:"started,omitempty"`
	Info    *Info      `json:"info,omitempty"`
	// Paused is of Home.Pause.
	Paused bool `json:"paused,omitempty"`
	// PolicyRefused says why a change of the policy file was refused: the previous policy is in force.
	PolicyRefused string `json:"policy_refused,omitempty"`
	// Restart is the policy of `--restart`, RestartCount how often it has restarted the main command.
	Restart      string `json:"restart,omitempty"`
	RestartCount int    `json:"restart_count,omitempty"`
	// Resumes says that the next start goes on from a snapshot's memory.
	Resumes bool `json:"resumes,omitempty"`
	// End is how the run before ended, if it was not killed.
	End *End `json:"end,omitempty"`
	// Problem says why the state can't be read; the other fields are empty then.
	Problem string `json:"problem,omitempty"`
}

// List returns the named sandboxes, damaged ones included, by name.
func (h *Home) List() ([]Status, error) {
	names, err := sandboxNames(h)
	if err != nil {
		return nil, err
	}
	l := newLister(h, names)
	defer l.close()
	all := make([]Status, len(names))
	l.recall(names, all)
	removed := false
	for i, name := range names {
		if all[i].Name != "" {
			continue
		}
		st, err := l.inspect(i, name)
		if errors.Is(err, ErrNoSandbox) {
			removed = true // just now
			continue
		}
		if err != nil {
			st = &Status{Name: name, Dir: namedPath(h, name), Problem: err.Error()}
		}
		all[i] = *st
	}
	if removed {
		all = slices.DeleteFunc(all, func(s Status) bool { return s.Name == "" })
	}
	return all, nil
}

// nameList is the names of the sandboxes, in order, as of a time when their directory was unchanged for long enough.
type nameList struct {
	at    stamp
	names []string
}

// sandboxNames are in order. They are OpenHome's, unless the directory has changed.
func sandboxNames(h *Home) ([]string, error) {
	dir := filepath.Join(h.dir, state.NamedDir)
	if h.listed.at != (stamp{}) && h.listed.at == stampOf(unix.AT_FDCWD, dir) {
		return h.listed.names, nil
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && CheckName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Inspect tells about the sandbox of that name.
func (h *Home) Inspect(name string) (*Status, error) {
	st, err := loadStored(h, name)
	if err != nil {
		return nil, Fail(err)
	}
	dir := namedPath(h, name)
	s := &Status{
		Name: name, Label: st.Label, Labels: st.Labels, Parent: st.Parent, ParentCreated: st.ParentCreated, Root: st.Root, RootCreated: st.RootCreated, Created: st.Created, Image: st.Image, Digest: st.ImageDigest, CPUs: st.CPUs, Memory: st.Memory,
		Disk: st.Disk, IdleStop: st.IdleStop, Lifetime: st.Lifetime, Ran: st.Ran, PolicyFile: st.PolicyFile, Directories: st.Directories, Volumes: st.Volumes, Ports: st.Ports, Dir: dir, Used: allocated(filepath.Join(dir, state.UpperDisk)),
		ParentPlaceholders: st.ParentPlaceholders, Audit: auditLog(st, dir), Pcap: st.Pcap, Console: filepath.Join(dir, state.ConsoleLog),
	}
	if !st.Restart.None() {
		s.Restart = st.Restart.String()
	}
	if main, err := state.ReadJob(filepath.Join(dir, state.JobsDir), MainJob); err == nil {
		s.RestartCount = main.Restarts
	}
	if conn, err := state.DialControl(dir); err == nil {
		_ = conn.Close()
		var r state.RunRecord
		s.Running = true
		if state.ReadJSON(dir, state.InfoFile, &r) == nil {
			s.Started, s.Info, s.Paused, s.PolicyRefused = &r.Started, r.Info, r.Paused, r.PolicyRefused
			s.sizeOf(r.Info)
		}
		return s, nil
	}
	var end End
	if state.ReadJSON(dir, state.EndFile, &end) == nil {
		s.End = &end
	}
	memory, err := state.FindMemory(dir)
	s.Resumes = err == nil && memory != ""
	return s, nil
}

// sizeOf shows the size of a machine that runs.
func (s *Status) sizeOf(run *Info) {
	if run == nil {
		return
	}
	if run.CPUs != 0 && run.CPUs != s.CPUs {
		s.CPUs, s.NextCPUs = run.CPUs, s.CPUs
	}
	if run.Memory != 0 && run.Memory != s.Memory {
		s.Memory, s.NextMemory = run.Memory, s.Memory
	}
}
